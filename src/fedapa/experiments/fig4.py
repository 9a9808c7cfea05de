"""``fedapa reproduce fig4``: how many windows of which count each room holds.

Expected shape: one panel per room with a bar for each count; the rooms differ in which counts they
know and in how many windows they have. Nothing is trained. Simulated rooms are counted from their
description, so that the largest need not be made for a figure of them.
"""

from fedapa.report.captions import source_text
from fedapa.report.tables.table import Table
from fedapa.stores.distribution import Distribution

__all__ = ["distribution_caption", "distribution_table"]


def distribution_caption(counted: Distribution) -> str:
    """What was counted, in words."""
    cut = f"windows of {counted.window} packets" if counted.window else "feature vectors"
    return f"{source_text(counted.source, synthetic=counted.synthetic)} · {cut}"


def distribution_table(counted: Distribution) -> Table:
    """One row per room, one column per label, one for none where there are such, and totals."""
    told = ["No label"] if counted.unlabelled else []
    rows = []
    for room, counts in counted.windows.items():
        unlabelled = counted.unlabelled.get(room, 0)
        cells = [str(counts.get(label, "–")) for label in counted.labels]
        cells += [str(unlabelled or "–")] if told else []
        rows.append([room, *cells, str(sum(counts.values()) + unlabelled)])
    categories = any(isinstance(label, str) for label in counted.labels)
    return Table(
        f"Windows by room and {'class' if categories else 'number of people'}",
        ["Room", *map(str, counted.labels), *told, "All"],
        rows,
        note=distribution_caption(counted),
    )

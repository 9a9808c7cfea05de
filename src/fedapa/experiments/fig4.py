"""``fedapa reproduce fig4``: how many windows of which count each room holds."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fedapa.errors import DataError
from fedapa.report.tables import Sheet
from fedapa.windows.store import Label, Store

__all__ = ["Distribution", "distribution", "distribution_sheet"]


@dataclass(frozen=True)
class Distribution:
    """Windows by room and label."""

    source: str
    """What the data is called: a file or a preset."""
    window: int
    """Packets of a window."""
    synthetic: bool
    windows: dict[str, dict[Label, int]]
    """For each room the windows of each label that occurs, sorted."""

    @property
    def labels(self) -> tuple[Label, ...]:
        """All labels that occur anywhere, numbers by size, words by letter."""
        found = {label for counts in self.windows.values() for label in counts}
        return tuple(sorted(found, key=lambda label: (isinstance(label, str), label)))


def distribution(path: Path, *, window: int | None = None) -> Distribution:
    """Count the windows that fit into each take of a store; no packet is read.

    Args:
        path: the store.
        window: packets of a window; the store's own recommendation if left out.
    """
    with Store(path) as store:
        length = window or store.window
        if length is None:
            raise DataError(f"{path}: does not say how long its windows are; give a window length")
        windows: dict[str, dict[Label, int]] = {}
        for room in store.rooms:
            counts: Counter[Label] = Counter()
            for take in store.recordings(room):
                counts[take.label] += take.shape[0] if take.is_features else take.shape[0] // length
            windows[room] = {
                label: counts[label]
                for label in sorted(counts, key=lambda label: (isinstance(label, str), label))
            }
        return Distribution(path.name, length, store.synthetic, windows)


def distribution_sheet(found: Distribution) -> Sheet:
    """One row a room, one column a label, and totals."""
    rows = [
        [
            room,
            *(str(counts.get(label, "–")) for label in found.labels),
            str(sum(counts.values())),
        ]
        for room, counts in found.windows.items()
    ]
    mark = "SIMULATED · " if found.synthetic else ""
    return Sheet(
        "Windows by room and "
        + (
            "class" if any(isinstance(label, str) for label in found.labels) else "number of people"
        ),
        ["Room", *(str(label) for label in found.labels), "All"],
        rows,
        note=f"{mark}{found.source} · windows of {found.window} packets",
    )

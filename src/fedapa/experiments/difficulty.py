"""``fedapa reproduce difficulty``: how far simple models get on a store, split by split.

They say how hard the data is before any net is trained, and how much a random split of windows
flatters: neighbours in one recording are near twins.
"""

from collections.abc import Sequence

import numpy as np

from fedapa.evaluation.difficulty import Score
from fedapa.report.captions import source_text
from fedapa.report.tables.table import Table

__all__ = ["difficulty_table"]


def difficulty_table(scores: Sequence[Score], source: str, *, synthetic: bool) -> Table:
    """Accuracy and error by room and on average, one pair of columns per split and model."""
    pairs = list(dict.fromkeys((score.split, score.model) for score in scores))

    def mean(chosen: Sequence[Score], metric: str) -> float:
        return float(np.mean([getattr(score, metric) for score in chosen]))

    rows = []
    for room in (*dict.fromkeys(score.room for score in scores), None):
        mine = [score for score in scores if room in (None, score.room)]
        row = [room or "mean", f"{100 * mean(mine, 'chance'):.0f} %"]
        for pair in pairs:
            cell = [score for score in mine if (score.split, score.model) == pair]
            row.append(f"{100 * mean(cell, 'accuracy'):.0f} % · {mean(cell, 'mae'):.1f}")
        rows.append(row)
    return Table(
        "Simple models: accuracy · mean absolute error in people",
        ["Room", "Commonest", *(f"{split} {model}" for split, model in pairs)],
        rows,
        note=f"{source_text(source, synthetic=synthetic)}; 'nearest' looks at raw windows, the "
        "others at statistics",
    )

"""How well members are told from others, by what is sent and who attacks."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from fedapa.report.style import MARKERS, PALETTE, SMALL, WIDTH, drawn
from fedapa.report.tables.leaks import leak_caption

__all__ = ["leaks_figure"]

_LINE = 0.17
"""Inches of a row."""


def leaks_figure(results: Mapping[str, Any]) -> Figure:
    """A point with its interval for each case, attacker and attack; the line is a guess."""
    rows = results["membership"]
    attackers = list(dict.fromkeys(row["attacker"] for row in rows))
    first = {row["attacker"]: place for place, row in reversed(list(enumerate(rows)))}
    caption = (
        "AUC of membership inference with 95 % intervals of a bootstrap over rooms; the dashed "
        f"line is a guess. {leak_caption(results)}"
    )
    with drawn(1.2 + _LINE * len(rows), caption, width=WIDTH) as figure:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            attacker = row["attacker"]
            kind = attackers.index(attacker)
            value, low, high = (row["auc"][name] for name in ("value", "low", "high"))
            axes.errorbar(
                value,
                place,
                xerr=[[max(0.0, value - low)], [max(0.0, high - value)]],
                color=PALETTE[kind],
                marker=MARKERS[kind],
                markersize=4,
                capsize=2,
                linestyle="none",
                label=attacker if place == first[attacker] else None,
            )
        axes.axvline(0.5, color="#888888", linestyle="--", linewidth=0.8)
        axes.set_yticks(
            range(len(rows)), [f"{row['title']}: {row['attack']}" for row in rows], fontsize=SMALL
        )
        axes.invert_yaxis()
        lowest = min(row["auc"]["low"] for row in rows)
        axes.set_xlim(min(0.3, lowest - 0.02), 1.02)
        axes.set_xlabel("AUC")
        axes.legend(title="Who attacks", loc="lower right", fontsize=SMALL)
    return figure

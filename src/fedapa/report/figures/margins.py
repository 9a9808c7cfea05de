"""Margins by cause: FedAPA minus Local, and what its losses give without any exchange."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedapa.algorithms import find
from fedapa.algorithms.local import Local
from fedapa.evaluation.results import REFERENCE, Paired, Setting
from fedapa.report.captions import caption
from fedapa.report.style import MARKERS, PALETTE, drawn
from fedapa.report.tables.margins import margins_of, train_loss_at

__all__ = ["margins_figure"]

_APART = 0.14
"""Of a line's height, between its two marks."""


def margins_figure(setting: Setting) -> Figure:
    """On the left a line for each cause with its two margins; on the right the train losses."""
    margins = margins_of(setting)
    bases = sum(margin.is_base for margin in margins)
    places = [number + 0.6 * (number >= bases) for number in range(len(margins))]
    reference, control = (find(name).title for name in (REFERENCE, find(REFERENCE).control))
    seeds = ", ".join(map(str, setting.seeds))
    said = (
        f"Mean over rooms and seeds {seeds} with the 95 % interval of the mean, paired over seeds; "
        "filled is clear: the interval leaves zero out. What the second mark has, the losses give "
        "without any exchange. Below the gap one thing at a time is changed, seen after "
        f"{setting.rounds} rounds. Train loss: cross-entropy in the last rounds. "
        f"{caption(setting)}"
    )
    with drawn(1.9 + 0.3 * len(margins), said) as figure:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1.1))
        left.axvline(0, color="#555555", lw=0.9)
        for place, margin in zip(places, margins, strict=True):
            for look, difference in enumerate((margin.whole, margin.losses)):
                _mark(left, difference, place + _APART * (2 * look - 1), look)
            for look, row in enumerate((margin.reference, margin.control, margin.local)):
                loss = train_loss_at(row, margin.horizon)
                if loss is not None:
                    right.plot(loss, place, MARKERS[look], color=PALETTE[look], ms=4, mfc="none")
        left.set_yticks(places, [margin.label for margin in margins])
        left.set(xlabel="accuracy (points)", ylim=(max(places) + 0.6, -0.6))
        right.set(xlabel="train loss")
        for axes in (left, right):
            axes.grid(visible=False, axis="y")
        names = [f"{reference} − {Local.title}", f"{control} − {Local.title}"]
        handles = [
            left.plot([], [], MARKERS[n], color=PALETTE[n], ms=4.5, label=name)[0]
            for n, name in enumerate(names)
        ]
        left.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        nets = [
            right.plot([], [], MARKERS[n], color=PALETTE[n], ms=4, mfc="none", label=name)[0]
            for n, name in enumerate((reference, control, Local.title))
        ]
        right.legend(handles=nets, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1)
        return figure


def _mark(axes: Axes, difference: Paired, place: float, look: int) -> None:
    colour = PALETTE[look]
    if difference.low is not None and difference.high is not None:
        ends = [100 * difference.low, 100 * difference.high]
        axes.plot(ends, [place] * 2, color=colour, lw=1.1)
    filled = colour if difference.is_clear else "white"
    axes.plot(100 * difference.mean, place, MARKERS[look], ms=4.5, mec=colour, mfc=filled)

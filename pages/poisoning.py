"""The figure of docs/results/poisoning.md: what honest rooms lose under each attack, by method."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedapa.evaluation.results import Results, paired
from fedapa.experiments.poisoning import Losses, losses
from fedapa.report.captions import caption
from fedapa.report.style import MARKERS, PALETTE, drawn

__all__ = ["losses_figure"]

_BAR, _STILL = 2.0, 1.0
"""Points that honest rooms may lose: with 30 % attackers, and with none."""
_AT = 30.0


def losses_figure(results: Results) -> Figure:
    """A panel for each method and number of rooms, a line for each attack."""
    first = results.settings[0]
    said = (
        "Accuracy of honest rooms without attack and without defence, minus theirs with 30 % "
        "attackers (or none), in points: left is better. Mean over seeds with its 95 % interval. "
        f"The dotted line is the bar. {caption(first, first.rounds)}"
    )
    told = {
        setting.title: [one for one in losses(setting) if one.share in (0.0, _AT)]
        for setting in results.settings
    }
    lines = max(len({one.attack for one in own}) for own in told.values())
    rows = (len(told) + 1) // 2
    with drawn(0.9 + rows * (0.6 + 0.26 * lines), said) as figure:
        panels = figure.subplots(rows, 2, squeeze=False).flat
        for axes, (title, own) in zip(panels, told.items(), strict=False):
            _panel(axes, title, own)
        for axes in list(panels)[len(told) :]:
            axes.set_axis_off()
    return figure


def _panel(axes: Axes, title: str, own: Sequence[Losses]) -> None:
    attacks = list(dict.fromkeys(one.attack for one in own))
    kinds = ["without", *dict.fromkeys(one.defence for one in own if one.defence)]
    for place, attack in enumerate(attacks):
        bar = _BAR if attack != attacks[0] else _STILL
        axes.plot([bar] * 2, [place - 0.4, place + 0.4], ":", color="#555555", lw=0.9)
        mine = [one for one in own if one.attack == attack]
        values = {"without": mine[0].undefended, **{one.defence: one.defended for one in mine}}
        for number, kind in enumerate(kinds):
            if values.get(kind) is None or (kind == "without" and attack == attacks[0]):
                continue
            lost = paired(values[kind] or [], [0.0] * len(values[kind] or []))
            at = place + 0.22 * (number - (len(kinds) - 1) / 2)
            if lost.low is not None and lost.high is not None:
                ends = [100 * lost.low, 100 * lost.high]
                axes.plot(ends, [at] * 2, color=PALETTE[number], lw=0.9)
            axes.plot(
                [100 * lost.mean],
                [at],
                MARKERS[number],
                ms=3.6,
                color=PALETTE[number],
                label=kind if place == 1 else None,
            )
    axes.axvline(0, color="#555555", lw=0.9)
    axes.set_yticks(range(len(attacks)), attacks)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.set_xlabel("loss (points)")
    axes.grid(visible=False, axis="y")
    axes.legend(fontsize=6)

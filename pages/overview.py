"""One figure of several committed experiments: FedAPA against its two controls, by horizon.

An experiment is called NAME=EXPERIMENT:SETTING, where EXPERIMENT/results.json lies beside the
figure and NAME is what the figure calls it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedapa.csi.capture import data_kind
from fedapa.errors import PlanError, nearest
from fedapa.evaluation.results import REFERENCE, Results, Setting
from fedapa.report.captions import tested_text
from fedapa.report.style import MARKERS, PALETTE, drawn

__all__ = ["EXPERIMENTS", "overview", "overview_of"]

EXPERIMENTS = (
    "WiAR, equal nets=wiar/table1:statistical",
    "WiAR, nets that differ=wiar-long/table1:model",
    "Wi-CaL=wical/table1:features",
    "Simulated rooms=simulated/table1:features",
)
"""Those of docs/results, without docs/results/earlier."""
_AGAINST = ("local", "fedapa-self")


def overview_of(folder: Path, named: Sequence[str]) -> Figure:
    """The figure of experiments under ``folder``, each called NAME=EXPERIMENT:SETTING."""
    settings: dict[str, Setting] = {}
    for text in named:
        name, _, where = text.partition("=")
        experiment, _, setting = where.partition(":")
        if not (name and experiment and setting):
            raise PlanError(f"'{text}': write NAME=EXPERIMENT:SETTING")
        if name in settings:
            raise PlanError(f"'{name}': names two experiments; call one of them otherwise")
        settings[name] = _setting(folder / experiment / "results.json", setting)
    if not settings:
        raise PlanError("no experiment is named; write NAME=EXPERIMENT:SETTING for each")
    return overview(settings, _AGAINST)


def _setting(path: Path, name: str) -> Setting:
    if not path.is_file():
        raise PlanError(f"{path}: is not there; EXPERIMENT is a folder beside the figure")
    settings = {setting.name: setting for setting in Results.load(path).settings}
    if name not in settings:
        raise PlanError(f"{path}: setting '{name}' is unknown; {nearest(name, list(settings))}")
    for row in (REFERENCE, *_AGAINST):
        if settings[name].row(row) is None:
            raise PlanError(
                f"{path}: has no row '{row}' for the figure; name an experiment that has it"
            )
    return settings[name]


def overview(settings: Mapping[str, Setting], against: Sequence[str]) -> Figure:
    """The reference minus some rows, in points of accuracy: a panel per row, a line per horizon.

    Args:
        settings: what to call them → where both ran; the caption says what data each has.
        against: names of rows, e.g. Local and the self-prototype control.
    """
    places: dict[tuple[str, int], float] = {}
    for number, (name, setting) in enumerate(settings.items()):
        for horizon in setting.horizons:
            places[name, horizon] = len(places) + 0.9 * number
    sources: dict[str, list[str]] = {}
    for name, setting in settings.items():
        sources.setdefault(_source(setting), []).append(f"“{name}”")
    said = (
        f"{_title_of(settings, REFERENCE)} minus each, mean over rooms and seeds with the 95 % "
        "interval of the mean, paired over seeds. Filled is clear: the interval leaves zero out. "
        + " ".join(f"{', '.join(names)}: {source}." for source, names in sources.items())
    )
    with drawn(1.7 + 0.155 * (max(places.values()) + 1), said) as figure:
        grid = figure.subplots(1, len(against), sharex=True, sharey=True, squeeze=False)[0]
        for number, (axes, row) in enumerate(zip(grid, against, strict=True)):
            for name, setting in settings.items():
                band = [places[name, horizon] for horizon in setting.horizons]
                axes.plot([0, 0], [band[0] - 0.5, band[-1] + 0.5], color="#555555", lw=0.9)
            for (name, horizon), place in places.items():
                _interval(axes, settings[name], row, horizon, place=place, look=number)
            axes.set(xlabel="difference in accuracy (points)")
            axes.set_title(f"against {_title_of(settings, row)}")
            axes.grid(visible=False, axis="y")
        labels = [f"round {settings[name].horizon_label(horizon)}" for name, horizon in places]
        grid[0].set_yticks(list(places.values()), labels)
        for name, setting in settings.items():
            grid[0].annotate(
                name,
                (0, places[name, setting.horizons[0]] - 0.95),
                xycoords=("axes fraction", "data"),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                fontweight="bold",
            )
        grid[0].set_ylim(max(places.values()) + 0.7, -1.6)
        return figure


def _interval(
    axes: Axes, setting: Setting, other: str, horizon: int, *, place: float, look: int
) -> None:
    mine, row = setting.row(REFERENCE), setting.row(other)
    difference = setting.against(mine, row, horizon, "accuracy") if mine and row else None
    if difference is None:
        return
    colour = PALETTE[look]
    if difference.low is not None and difference.high is not None:
        interval = [100 * difference.low, 100 * difference.high]
        axes.plot(interval, [place] * 2, color=colour, lw=1.2)
    filled = colour if difference.is_clear else "white"
    axes.plot(100 * difference.mean, place, MARKERS[look], ms=4.5, mec=colour, mfc=filled)


def _title_of(settings: Mapping[str, Setting], name: str) -> str:
    rows = (row for setting in settings.values() if (row := setting.row(name)) is not None)
    return next((row.title for row in rows), name)


def _source(setting: Setting) -> str:
    """What the data is, in a few words."""
    data = setting.data
    return (
        f"{data_kind(data['synthetic'])} data, {data['source']}, split {data['split']}, "
        f"{tested_text(data, setting.seeds)}, {len(setting.seeds)} seeds"
    )

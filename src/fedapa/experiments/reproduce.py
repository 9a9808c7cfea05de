"""``fedapa reproduce``: one experiment or all of them, with everything that is shown of them."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from fedapa.evaluation.metrics import METRICS
from fedapa.evaluation.results import Results, spread
from fedapa.experiments.architectures import architectures, layer_sheet
from fedapa.experiments.conduct import (
    Conducted,
    conduct,
    holds_features,
    refuse_results,
)
from fedapa.experiments.experiment import SETTINGS, STATISTICAL, Base, Experiment
from fedapa.experiments.fig4 import distribution, distribution_sheet, planned
from fedapa.experiments.sweeps import FIG8A, FIG8B, FIG9A, FIG9B, PARTICIPATION, TABLE2
from fedapa.experiments.table1 import FIG6, FIG7, TABLE1
from fedapa.experiments.table3 import PAPER, Sizes, communication, communication_sheet
from fedapa.experiments.windows import WINDOWS
from fedapa.federation.participant import introduce
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import describe, prepare_rooms
from fedapa.files import write_text
from fedapa.processes import Progress, Show, unseen
from fedapa.report.figures import svg
from fedapa.report.markup import frame, html_table, latex, markdown
from fedapa.report.pictures import distribution_figure, save
from fedapa.report.sheets import horizons, overall, sweep, verdict
from fedapa.report.study import write_index, write_study
from fedapa.report.tables import Sheet
from fedapa.stores.simulated import simulated_store
from fedapa.stores.simulated_rooms import preset_of
from fedapa.stores.store import Store

__all__ = [
    "EXPERIMENTS",
    "Reproduced",
    "fig4",
    "nets",
    "published",
    "reproduce",
    "shown",
    "table3",
]

EXPERIMENTS: Mapping[str, Experiment] = {
    each.name: each
    for each in (
        TABLE1,
        TABLE2,
        FIG6,
        FIG7,
        FIG8A,
        FIG8B,
        FIG9A,
        FIG9B,
        PARTICIPATION,
        WINDOWS,
    )
}


@dataclass(frozen=True, eq=False)
class Reproduced:
    """What a command shows of one experiment."""

    name: str
    title: str
    sheets: Sequence[Sheet]
    page: Path
    summary: Mapping[str, Any]
    """For scripts: where from, and setting → row → horizon → metric → mean and deviation."""
    sentences: Sequence[str] = ()
    """What the differences say, horizon by horizon."""


def published(name: str) -> Mapping[str, Any] | None:
    """What the paper reports for a table: setting → row → metrics; none for figures."""
    return _papers().get(name) if name in ("table1", "table2") else None


def _papers() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("published.toml").read_text())


def _beside_the_paper(experiment: Experiment) -> Experiment:
    """A sweep with a note of the value that the paper finds best."""
    best = _papers()["best"].get(experiment.name)
    if best is None:
        return experiment
    said = f"The paper finds {best} best, on private data; it shows a picture, no numbers."
    return replace(experiment, notes=(*experiment.notes, said))


def reproduce(
    name: str,
    base: Base,
    *,
    seeds: int,
    settings: Sequence[str] | None = None,
    out: Path,
    resume: bool = False,
    workers: int | None = None,
    show: Show = unseen,
    command: str = "",
) -> list[Reproduced]:
    """Carry out one experiment, or "all" of them, and write what there is to see of it."""
    features = holds_features(base.plan.data)
    if name == "all":
        chosen = _all(settings, features=features)
        for experiment in chosen:  # what is wrong with a later one costs no time then
            experiment.cases(base.plan)
            if not resume:
                refuse_results(out, experiment)
    else:
        chosen = [EXPERIMENTS[name].under(settings, features=features)]
    done: list[Reproduced] = []
    for experiment in chosen:
        conducted = conduct(
            _beside_the_paper(experiment),
            base,
            seeds=seeds,
            out=out,
            # The experiments of one command share their runs, so only the first may find a rest.
            resume=resume or bool(done),
            workers=workers,
            show=show,
            command=command,
        )
        show(Progress(f"drawing {experiment.name}", 0, 1, "pages"))
        done.append(shown(conducted, out))
    if name == "all":
        done += [table3(base, out, show), nets(base, out, show), fig4(base, out)]
        write_index(out, {each.name: (each.title, each.page) for each in done})
    return done


def _all(settings: Sequence[str] | None, *, features: bool) -> list[Experiment]:
    """The experiments that mean something in these settings, or for feature vectors."""
    chosen = [TABLE1.under(settings, features=features)]
    for experiment in list(EXPERIMENTS.values())[1:]:
        own = experiment.settings[0]
        if not experiment.fixed or (features and own is STATISTICAL):
            chosen.append(experiment.under(settings, features=features))
        elif not features and (own.name not in SETTINGS or own.name in (settings or SETTINGS)):
            chosen.append(experiment)
    return chosen


def shown(conducted: Conducted, out: Path) -> Reproduced:
    """Write an experiment's tables, figures and page, and gather what a terminal shows."""
    results = conducted.results
    page = write_study(
        out / results.experiment,
        results,
        conducted.runs,
        published=published(results.experiment),
    )
    sheets, sentences = [], []
    for setting in results.settings:
        if results.parameter:
            sheets.append(sweep(results, setting))
            continue
        sheets += [overall(setting, setting.rounds), horizons(setting)]
        found = (verdict(setting, horizon) for horizon in setting.horizons)
        sentences += [f"{setting.title}: {each}" for each in found if each is not None]
    summary = summary_of(results)
    return Reproduced(results.experiment, results.title, sheets, page, summary, sentences)


def summary_of(results: Results) -> dict[str, Any]:
    """SIMULATED or real, and setting → row → horizon → metric → mean and deviation over seeds."""
    return {
        "data": results.kind,
        "split": " and ".join(sorted({setting.data["split"] for setting in results.settings})),
        "seeds": list(results.seeds),
        "settings": _figures(results),
    }


def _figures(results: Results) -> dict[str, Any]:
    return {
        setting.name: {
            row.name: {
                str(horizon): {
                    metric: asdict(spread(values))
                    for metric in METRICS
                    if (values := row.metrics(horizon, metric)) is not None
                }
                for horizon in setting.horizons
            }
            for row in setting.rows
        }
        for setting in results.settings
    }


@dataclass(frozen=True)
class _RoomSizes:
    """What a table of sizes needs to know of rooms."""

    rooms: int
    classes: int
    width: int
    shape: tuple[int, ...]
    caption: str

    @staticmethod
    def of(base: Base, show: Show) -> "_RoomSizes | None":
        """Those of the rooms that were asked for; none where they are the paper's own."""
        if base.preset == "paper" and base.file is None:
            return None
        net = "mlp" if holds_features(base.plan.data) else STATISTICAL.architecture
        # No size depends on the split, and this one can always be made.
        change = {"model": {"architecture": net}, "data": {"split": "random"}}
        plan = Plan.of(base.plan.document(), change)
        prepared = prepare_rooms(plan, show, workers=None)
        data = describe([introduce(room) for room in prepared], plan)
        kind = "SIMULATED data" if data["synthetic"] else "real data"
        return _RoomSizes(
            rooms=len(prepared),
            classes=len(data["classes"]),
            width=plan.model.width,
            shape=tuple(data["window_shape"]),
            caption=f"{kind}: {data['source'].rpartition('/')[2]}",
        )


def table3(base: Base, out: Path, show: Show = unseen) -> Reproduced:
    """Communication at the paper's sizes, and at those of other rooms where some are given."""
    costs = communication()
    sheets, values = [communication_sheet(costs)], _plain(costs)
    if found := _RoomSizes.of(base, show):
        flat = len(found.shape) == 1
        sizes = Sizes(
            rooms=found.rooms,
            classes=found.classes,
            width=found.width,
            outputs=found.classes,
            architecture="mlp" if flat else "large",
            shape=found.shape if flat else PAPER.shape,
            rooms_named=found.caption,
        )
        here = communication(sizes)
        sheets.append(communication_sheet(here, sizes))
        values = {"paper": values, "rooms": {"data": found.caption, **_plain(here)}}
    return _written("table3", sheets, values, out)


def nets(
    base: Base, out: Path, show: Show = unseen, *, classes: int = 20, width: int = 256
) -> Reproduced:
    """The architectures as the paper counts them, and for other rooms where some are given."""
    values: dict[str, Any] = architectures(classes=classes, width=width)
    sheets = [layer_sheet(classes=classes, width=width)]
    if found := _RoomSizes.of(base, show):
        here: dict[str, Any] = {
            "classes": found.classes,
            "width": found.width,
            "window": found.shape,
        }
        sheets.append(layer_sheet(**here, rooms_named=found.caption))
        values = {
            "paper": values,
            "rooms": {"data": found.caption, **architectures(**here)},
        }
    return _written("architectures", sheets, values, out)


def fig4(base: Base, out: Path, *, picture: Path | None = None) -> Reproduced:
    """The data distribution: table, picture and page, and the picture by another name if given."""
    data = base.plan.data
    usual = preset_of(data.simulated).window
    as_planned = data.window in (None, usual) and data.stride in (None, usual)
    if base.file is None and as_planned and data.only is None and data.without is None:
        found = planned(preset_of(data.simulated))
    else:
        if base.file is None:
            path = simulated_store(data.simulated, data.simulated_seed)
        else:
            path = Path(base.file)
        with Store(path) as store:
            rooms = data.rooms_of(store)
        found = distribution(path, window=data.window, stride=data.stride, rooms=rooms)
    drawn = distribution_figure(
        found.windows, found.labels, caption=found.caption, synthetic=found.synthetic
    )
    values = {
        "data": "SIMULATED" if found.synthetic else "real",
        "source": found.source,
        "window": found.window,
        "windows": found.windows,
    }
    if picture is not None:
        save(drawn, picture)
        sheet = distribution_sheet(found)
        return Reproduced("fig4", sheet.title, [sheet], picture, {**values, "out": str(picture)})
    made = _written("fig4", [distribution_sheet(found)], values, out, drawing=svg(drawn))
    for kind in ("png", "svg"):
        save(drawn, out / "fig4" / f"fig4.{kind}")
    return made


def _plain(costs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: asdict(cost) for name, cost in costs.items()}


def _written(
    name: str, sheets: Sequence[Sheet], values: Mapping[str, Any], out: Path, *, drawing: str = ""
) -> Reproduced:
    """Tables on their own: as data, Markdown, LaTeX and a page."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "results.json", json.dumps(values, indent=1, sort_keys=True) + "\n")
    write_text(folder / f"{name}.md", "\n".join(markdown(sheet) for sheet in sheets))
    write_text(folder / f"{name}.tex", "\n".join(latex(sheet) for sheet in sheets))
    page = folder / "index.html"
    title = sheets[0].title
    figure = f"<figure>{drawing}</figure>" if drawing else ""
    write_text(
        page, frame(title, [f"<h1>{title}</h1>", *(html_table(each) for each in sheets), figure])
    )
    return Reproduced(name, title, sheets, page, values)

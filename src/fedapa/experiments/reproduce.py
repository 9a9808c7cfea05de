"""``fedapa reproduce``: one experiment or several, with everything that is shown of them."""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedapa.csi.capture import data_kind
from fedapa.errors import PlanError
from fedapa.evaluation.verdict import answers
from fedapa.experiments.architectures import layer_table
from fedapa.experiments.conduct import Conducted, Execution, conduct, holds_features, refuse_results
from fedapa.experiments.drift import DRIFT
from fedapa.experiments.experiment import SETTINGS, STATISTICAL, Base, Experiment
from fedapa.experiments.fig4 import distribution_caption, distribution_table
from fedapa.experiments.joining import FEW_LABELS, ONBOARDING, UNSEEN_COUNTS, WHAT_TRAVELS
from fedapa.experiments.learning_curve import LEARNING_CURVE
from fedapa.experiments.links import LINKS_STUDY
from fedapa.experiments.poisoning import POISONING
from fedapa.experiments.privacy import PRIVACY
from fedapa.experiments.protocol import OF_THE_PROTOCOL, PROTOCOL
from fedapa.experiments.sizes import PAPER, Sizes, sizes_of
from fedapa.experiments.sweeps import FIG8A, FIG8B, FIG9A, FIG9B, PARTICIPATION, TABLE2
from fedapa.experiments.table1 import FIG6, FIG7, TABLE1
from fedapa.experiments.table3 import communication, communication_table
from fedapa.experiments.tasks import TASKS
from fedapa.experiments.windows import WINDOWS
from fedapa.federation.prepare import store_of
from fedapa.files import write_text
from fedapa.processes import Progress, Show, unseen
from fedapa.report.captions import choices, without_labels
from fedapa.report.figures.data import distribution_figure
from fedapa.report.page import Report, write_index, write_report
from fedapa.report.style import save
from fedapa.report.tables.comparison import by_value, horizons, overall, presence
from fedapa.report.tables.table import Table
from fedapa.stores.distribution import distribution, planned
from fedapa.stores.simulated_rooms import preset_of
from fedapa.stores.store import Store

__all__ = [
    "EXPERIMENTS",
    "OF_THE_COUNTER",
    "Reproduced",
    "chosen",
    "fig4",
    "nets",
    "published",
    "reproduce",
    "table3",
    "with_counted",
]

OF_THE_COUNTER = (
    *(LEARNING_CURVE, ONBOARDING, UNSEEN_COUNTS),
    *(FEW_LABELS, WHAT_TRAVELS, DRIFT, TASKS, PRIVACY, LINKS_STUDY, POISONING),
)
"""About our counter, not the paper's nets; "all" leaves them out."""
EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(TABLE1, TABLE2, FIG6, FIG7, FIG8A, FIG8B, FIG9A, FIG9B),
        *(PARTICIPATION, WINDOWS, *OF_THE_PROTOCOL, *OF_THE_COUNTER),
    )
}
_Counted = Callable[[Sizes], tuple[Table, dict[str, Any]]]


@dataclass(frozen=True, eq=False)
class Reproduced:
    """What a command shows of one experiment."""

    name: str
    title: str
    tables: Sequence[Table]
    page: Path
    summary: Mapping[str, Any]
    """For scripts: where from, and setting → row → horizon → metric → mean and deviation."""
    answers: Sequence[str] = ()
    """Who counts best, in a sentence for each setting."""
    about: Sequence[str] = ()
    """Which windows and split, why, and what else must be known."""


def published(name: str) -> Mapping[str, Any] | None:
    """What the paper reports for a table: setting → row → metrics; none for figures."""
    named = "table1" if name == PROTOCOL.name else name.removesuffix("-tuned")
    return _papers().get(named) if named in ("table1", "table2") else None


def _papers() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("published.toml").read_text())


def _beside_the_paper(experiment: Experiment) -> Experiment:
    """A sweep with a note of the value that the paper finds best."""
    best = _papers()["best"].get(experiment.name)
    if best is None:
        return experiment
    said = f"The paper finds {best} best, on private data; it shows a figure, no numbers."
    return replace(experiment, notes=(*experiment.notes, said))


def reproduce(experiments: Sequence[Experiment], base: Base, how: Execution) -> list[Reproduced]:
    """Carry out experiments, one after the other, and write what there is to see of each."""
    for experiment in experiments:  # what is wrong with a later one costs no time then
        experiment.cases(base.plan)
        if not how.resume:
            refuse_results(how.out, experiment)
    done: list[Reproduced] = []
    for experiment in experiments:
        conducted = conduct(_beside_the_paper(experiment), base, how)
        # The experiments of one command share their runs, so only the first may find a rest.
        how = replace(how, resume=True)
        how.show(Progress(f"drawing {experiment.name}", 0, 1, "pages"))
        done.append(_shown(experiment, conducted, how.out))
    return done


def chosen(
    name: str,
    base: Base,
    settings: Sequence[str] | None,
    methods: Sequence[str] | None = None,
) -> list[Experiment]:
    """One experiment by its name, or "all" of the paper's nets that mean something here."""
    features = holds_features(base.plan.data)
    if name != "all":
        return [EXPERIMENTS[name].under(settings, features=features).with_methods(methods)]
    if methods is not None:
        raise PlanError("all: has every method; name one experiment, or leave --method out")
    meant = [TABLE1.under(settings, features=features)]
    apart = (TABLE1, *OF_THE_PROTOCOL, *OF_THE_COUNTER)
    others = [one for one in EXPERIMENTS.values() if one not in apart]
    for experiment in others:
        own = experiment.settings[0]
        if not experiment.fixed or (features and own is STATISTICAL):
            meant.append(experiment.under(settings, features=features))
        elif not features and (own.name not in SETTINGS or own.name in (settings or SETTINGS)):
            meant.append(experiment)
    return meant


def with_counted(done: Sequence[Reproduced], base: Base, out: Path, show: Show) -> list[Reproduced]:
    """All of them: also what needs no training, and one page with everything."""
    whole = [*done, table3(base, out, show), nets(base, out, show), fig4(base, out)]
    write_index(out, {made.name: (made.title, made.page) for made in whole})
    return whole


def _shown(experiment: Experiment, conducted: Conducted, out: Path) -> Reproduced:
    """Write an experiment's tables, figures and page, and gather what a terminal shows."""
    results = conducted.results
    folder = out / results.experiment
    own = experiment.table
    tables = [] if own is None else [own(setting) for setting in results.settings]
    figure = experiment.figure
    page = write_report(
        folder,
        results,
        conducted.runs,
        published=published(results.experiment),
        first=tables[:],
        figures=[] if figure is None else [figure(setting) for setting in results.settings],
    )
    chosen: list[str] = []
    for setting in results.settings:
        if setting.final:
            tables.append(by_value(setting, results.parameter))
            chosen += choices(setting.data)
            continue
        tables.append(overall(setting, parameter=results.parameter))
        if not results.parameter:
            tables.append(horizons(setting))
        if (table := presence(setting, parameter=results.parameter)) is not None:
            tables.append(table)
        chosen += choices(setting.data)
        if not results.parameter:  # else it may differ from row to row
            chosen += without_labels(setting.data)
    return Reproduced(
        *(results.experiment, results.title, tables, page, results.summary(), answers(results)),
        about=[*dict.fromkeys(chosen), *(f"Note: {note}" for note in results.notes)],
    )


def table3(base: Base, out: Path, show: Show = unseen) -> Reproduced:
    """Communication: what a room sends and receives in a round."""

    def counted(sizes: Sizes) -> tuple[Table, dict[str, Any]]:
        costs = communication(sizes)
        return communication_table(costs, sizes), {name: asdict(costs[name]) for name in costs}

    return _counted("table3", PAPER, counted, base, out, show)


def nets(
    base: Base, out: Path, show: Show = unseen, *, classes: int = 20, width: int = 256
) -> Reproduced:
    """The architectures: parameters and FLOPs."""
    papers = replace(PAPER, outputs=classes, width=width)
    return _counted("architectures", papers, layer_table, base, out, show)


def _counted(
    name: str, papers: Sizes, counted: _Counted, base: Base, out: Path, show: Show
) -> Reproduced:
    """What depends on sizes alone: at the paper's, and at those of other rooms if any are given."""
    table, values = counted(papers)
    tables = [table]
    if sizes := sizes_of(base, show):
        table, here = counted(sizes)
        tables.append(table)
        values = {"paper": values, "rooms": {"data": sizes.named, **here}}
    return _written(name, tables, values, out, None)


def fig4(base: Base, out: Path, *, file: Path | None = None) -> Reproduced:
    """The data distribution: a table, a figure and a page, or the figure alone as ``file``."""
    data = base.plan.data
    usual = preset_of(data.simulated).window
    as_planned = data.window in (None, usual) and data.stride in (None, usual)
    if base.file is None and as_planned and data.only is None and data.without is None:
        counted = planned(preset_of(data.simulated))
    else:
        path = store_of(base.plan)
        with Store(path) as store:
            rooms = data.rooms_of(store)
        counted = distribution(path, window=data.window, stride=data.stride, rooms=rooms)
    figure = distribution_figure(
        counted.windows,
        counted.labels,
        distribution_caption(counted),
        unlabelled=counted.unlabelled,
    )
    values = {
        "data": data_kind(counted.synthetic),
        "source": counted.source,
        "window": counted.window,
        "windows": counted.windows,
        **({"unlabelled": counted.unlabelled} if counted.unlabelled else {}),
    }
    table = distribution_table(counted)
    if file is None:
        return _written("fig4", [table], values, out, figure)
    save(figure, file)
    return Reproduced("fig4", table.title, [table], file, {**values, "out": str(file)})


def _written(
    name: str, tables: Sequence[Table], values: Mapping[str, Any], out: Path, figure: Figure | None
) -> Reproduced:
    """What needed no training, as data, Markdown, LaTeX and a page; a second table is of rooms."""
    folder, title = out / name, tables[0].title
    write_text(folder / "results.json", json.dumps(values, indent=1, sort_keys=True) + "\n")
    report = Report(title, folder)
    for table, file in zip(tables, (name, f"{name}-rooms"), strict=False):
        report.table(file, table)
    if figure is not None:
        report.figure(name, figure, title)
    return Reproduced(name, title, tables, report.finish(folder), values)

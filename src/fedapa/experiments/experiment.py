"""What an experiment is: cases that are compared, under settings, from one preset.

A case is a change to the preset's plan; a setting is another, for all cases alike. Together with a
seed they are a plan, and equal plans are one run, whichever experiments ask for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from matplotlib.figure import Figure

from fedapa.algorithms import find
from fedapa.errors import PlanError, nearest
from fedapa.evaluation.results import REFERENCE, Results, Row, Setting, horizons_of
from fedapa.experiments.presets import preset as preset_values
from fedapa.federation.plan import Plan
from fedapa.processes import Show
from fedapa.report.runs import Runs
from fedapa.report.tables.table import Table
from fedapa.windows.views import find_view
from fedapa.windows.views.statistics import Statistics

__all__ = [
    "CHOSEN",
    "FEATURES",
    "MODEL",
    "SETTINGS",
    "STATISTICAL",
    "Base",
    "Case",
    "Experiment",
    "Nets",
    "algorithms",
    "as_numbers",
    "refuse_untitled",
]


@dataclass(frozen=True)
class Nets:
    """A setting: which nets the rooms have."""

    name: str
    title: str
    architecture: str | Mapping[str, str]


STATISTICAL = Nets("statistical", "Statistical heterogeneity: LargeConvNet4 in all rooms", "large")
MODEL = Nets("model", "Model heterogeneity: Tiny-, Middle-, LargeConvNet4 by train size", "by-size")
FEATURES = Nets("features", "Feature vectors: the MLP in all rooms", "mlp")
CHOSEN = Nets("rooms", "The net that goes with the view, in all rooms", "auto")
SETTINGS = {nets.name: nets for nets in (STATISTICAL, MODEL)}


@dataclass(frozen=True)
class Case:
    """One row of a table, or one curve."""

    name: str
    change: Mapping[str, Any]
    """Over the preset and the setting."""
    title: str
    group: str = "paper"
    value: float | str | None = None
    """The swept parameter's."""
    long: bool = False
    """Whether it also runs to the long horizon."""
    one_net: bool = False
    """Whether it has one net for all rooms also where they differ: the largest."""
    needs_batch_norm: bool = False
    """Whether it means nothing for nets without BatchNorm."""
    optional: bool = False
    """Whether it is left out, with a note, where windows cannot be the numbers that it needs."""
    for_vectors: bool = False
    """Whether it is left out, with a note, where nets see matrices: its net takes vectors alone."""
    by_seed: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Further changes that differ from seed to seed: settings that a search chose."""
    joins: Mapping[str, Any] | None = None
    """Where each room in turn joins a federation of the others: the change, over preset and
    setting, that makes their plan."""

    @property
    def algorithm(self) -> str | None:
        """The name of its algorithm; none where it has the preset's."""
        given = self.change.get("algorithm")
        name = given.get("name") if isinstance(given, Mapping) else given
        return None if name is None else str(name)


@dataclass(frozen=True)
class Base:
    """What all plans of an experiment have in common."""

    preset: str = "tables"
    file: str | None = None
    """A store; none is the preset's simulated rooms."""
    split: str | None = None
    rounds: int | None = None
    """More or fewer than the preset's; settings that go with them follow."""
    long_rounds: int | None = None
    """Of the long horizon; by default four times the rounds, 0 for none."""
    all_long: bool = False
    """Whether all rows run to the long horizon that can; not only those that carry the claim."""
    changes: Sequence[Mapping[str, Any]] = ()
    """Any other keys, but for those that experiments decide themselves."""

    @property
    def plan(self) -> Plan:
        """The preset with these changes, before any case."""
        for change in self.changes:
            _refuse_decided(change)
        data = {"file": self.file, "split": self.split}
        given = {key: value for key, value in data.items() if value is not None}
        layers: list[Mapping[str, Any]] = [preset_values(self.preset), {"data": given}]
        if self.rounds is not None:
            kind = find(str(layers[0]["algorithm"]["name"]))
            settings = kind.settings_for(self.rounds)
            layers.append({"rounds": self.rounds, "algorithm": settings})
        return Plan.of(*layers, *self.changes)

    @property
    def longest(self) -> int | None:
        """The long horizon; none if there is none."""
        rounds = self.plan.rounds
        longest = 4 * rounds if self.long_rounds is None else self.long_rounds
        if longest != 0 and longest <= rounds:
            raise PlanError(
                f"long rounds {longest}: must be more than the {rounds} rounds of the comparison, "
                "or 0 for none"
            )
        return longest or None

    @property
    def horizons(self) -> list[int]:
        """Where results are seen: a quarter, half and all of the rounds, and the long horizon."""
        return horizons_of(self.plan.rounds, self.longest)


@dataclass(frozen=True)
class Experiment:
    """A table or a figure."""

    name: str
    title: str
    cases: Callable[[Plan], Sequence[Case]]
    """The cases, given the plan that they change."""
    settings: Sequence[Nets] = (STATISTICAL, MODEL)
    parameter: str = ""
    """What a sweep varies."""
    notes: Sequence[str] = field(default_factory=tuple)
    fixed: bool = False
    """Whether it is about its settings, so that it means nothing in others."""
    reference: str = REFERENCE
    """The case that others are measured against, by its name or by its algorithm's: then the first
    case of that algorithm, which in a sweep is that of the smallest value."""
    follow: Callable[[Results, Runs, Show], Results] | None = None
    """What the finished runs are asked beside their own scores: its results take their place, with
    a setting for each case."""
    combined: Callable[[Sequence[Row]], Sequence[Row]] | None = None
    """What rows become where several runs are one; it keeps the name of one of its cases."""
    table: Callable[[Setting], Table] | None = None
    """A table of its own, of each setting, that comes before all others."""
    figure: Callable[[Setting], Figure] | None = None
    """A figure of its own, of each setting, after that table."""
    keeps_exchanged: bool = False
    """Whether results keep what each round moved and cost, room by room."""

    def under(self, names: Sequence[str] | None, *, features: bool) -> "Experiment":
        """This experiment in some settings only; in the one there is for features."""
        for name in names or ():
            if name not in SETTINGS:
                raise PlanError(f"setting '{name}' is unknown; {nearest(name, list(SETTINGS))}")
        if features:
            if names is not None:
                raise PlanError("a store of feature vectors has one setting; leave --setting out")
            if tuple(self.settings) == (CHOSEN,):
                return self
            if self.fixed and STATISTICAL not in self.settings:
                raise PlanError(
                    f"{self.name} means nothing for feature vectors: they have one net, the MLP, "
                    "and no packets"
                )
            return self._for_features()
        if names is None:
            return self
        chosen = tuple(SETTINGS[name] for name in dict.fromkeys(names))
        if self.fixed and chosen != tuple(self.settings):
            raise PlanError(
                f"{self.name} has one setting only ({self.settings[0].title}); leave --setting out"
            )
        return replace(self, settings=chosen)

    def reference_among(self, cases: Sequence[Case]) -> str:
        """The name of the case among some that the others are measured against."""
        named = [case.name for case in cases if case.name == self.reference]
        first = [case.name for case in cases if case.algorithm == self.reference]
        return next(iter([*named, *first]), self.reference)

    def with_methods(self, names: Sequence[str] | None) -> "Experiment":
        """This experiment with some of its methods only; refuses those that it has none of."""
        if names is None:
            return self

        def cases(plan: Plan) -> Sequence[Case]:
            usual = plan.algorithm["name"]
            every = [(case.algorithm or usual, case) for case in self.cases(plan)]
            known = sorted({name for name, _ in every})
            for name in names:
                if name not in known:
                    raise PlanError(
                        f"method '{name}' is not in {self.name}; {nearest(name, known)}"
                    )
            return [case for name, case in every if name in names]

        return replace(self, cases=cases)

    def _for_features(self) -> "Experiment":
        """This experiment with the MLP, without what needs BatchNorm: the MLP has none."""
        said = [
            f"{case.title} is left out: the MLP has no BatchNorm that a room could keep."
            for case in self.cases(Base().plan)
            if case.needs_batch_norm
        ]
        return replace(
            self,
            settings=(FEATURES,),
            cases=lambda plan: [case for case in self.cases(plan) if not case.needs_batch_norm],
            notes=(*self.notes, *said),
        )

    def federation(self, base: Base, nets: Nets, case: Case, seed: int) -> Plan:
        """The plan of the federation that a case's rooms join, still with all rooms in it."""
        return self.plan(base, nets, replace(case, change=case.joins or {}), seed)

    def plan(self, base: Base, nets: Nets, case: Case, seed: int) -> Plan:
        """The plan of one run."""
        architecture = nets.architecture
        if case.one_net and nets.architecture == MODEL.architecture:
            architecture = STATISTICAL.architecture
        layers: list[Mapping[str, Any]] = [
            base.plan.document(),
            {"seed": seed, "model": {"architecture": architecture}},
            case.change,
            case.by_seed.get(seed, {}),
        ]
        plan = Plan.of(*layers)
        kind = find(plan.algorithm["name"])
        if kind.needs_features:
            layers.append(as_numbers(plan))
        if kind.fits_once and plan.answer == "nearest":
            layers.append({"answer": "median"})  # it has no prototypes
        plan = Plan.of(*layers)
        # First rounds that are others when more are to follow belong to the usual number of them.
        asked = base.all_long and not kind.plans_ahead
        if base.longest is None or not (case.long or asked):
            return plan
        return Plan.of(*layers, {"rounds": base.longest})


def as_numbers(plan: Plan) -> dict[str, Any]:
    """What a model of numbers needs where nets see matrices: the same windows, as statistics."""
    view = plan.data.view
    fits = view == "auto" or find_view(view).is_flat
    return {
        "data": {"view": view if fits else Statistics.name},
        "model": {"architecture": "auto"},
    }


def _refuse_decided(change: Mapping[str, Any]) -> None:
    """Refuse what every case or setting would override, or what would make its title untrue."""
    for key in ("seed", "algorithm.name", "model.architecture", "data.file"):
        section, _, name = key.rpartition(".")
        values = change.get(section) if section else change
        # An algorithm may be given by its name alone.
        if isinstance(values, str) or (isinstance(values, Mapping) and name in values):
            raise PlanError(
                f"{key}: cannot be set for a whole experiment; it has options for seeds, "
                "algorithms, nets and data, or use 'fedapa run'"
            )


_UNTITLED = ("attack", "defence", "joins", "precision", "privacy")


def refuse_untitled(name: str, plan: Plan, *more: str) -> None:
    """Refuse to set for all cases of an experiment what titles of some speak of.

    A plain "FedAPA" would be noised, rounded, attacked or defended without a word.

    Args:
        name: the experiment.
        plan: before any case.
        more: further keys, of sections: "algorithm.minimum_samples".
    """
    asked, usual = plan.document(), Plan(algorithm=plan.algorithm["name"]).document()
    if plan.defence is not None and not plan.defence.is_on:
        del asked["defence"]

    def value(document: Mapping[str, Any], key: str) -> Any:
        section, _, word = key.partition(".")
        return document.get(section, {}).get(word) if word else document.get(section)

    given = [key for key in (*_UNTITLED, *more) if value(asked, key) != value(usual, key)]
    if given:
        raise PlanError(
            f"{name}: {' and '.join(given)} would change every case, and its title would not say "
            f"so; leave {'it' if len(given) == 1 else 'them'} out, or use 'fedapa run'"
        )


def algorithms(*names: str) -> list[Case]:
    """Cases that are algorithms with the preset's settings, as their files describe them."""
    return [
        Case(
            kind.name,
            {"algorithm": kind.name},
            kind.title,
            group=kind.group,
            long=kind.carries_claim,
            one_net=kind.pools,
            needs_batch_norm=kind.needs_batch_norm,
            optional=kind.needs_features,
        )
        for kind in map(find, names)
    ]

"""Plan: everything that decides the numbers of a run, read from TOML, flags or Python.

What does not decide them (where to write, how many workers) is not in it. A resolved plan names
every value, also those left to default, so that ``fedapa run plan.toml`` repeats the run.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from fedapa import algorithms
from fedapa.algorithms.algorithm import Algorithm, settings_of
from fedapa.algorithms.prototype_sets import PrototypeExchange
from fedapa.answers import Answer
from fedapa.errors import PlanError, nearest
from fedapa.federation.attack import Attack
from fedapa.federation.cohort import Selection
from fedapa.federation.defence import NAMED, Defence
from fedapa.files import readable
from fedapa.learning.fit import NotNegativeInteger, Positive, PositiveInteger, Training
from fedapa.learning.private import Privacy
from fedapa.models.build import ARCHITECTURES
from fedapa.payload import Precision
from fedapa.rooms.skew import Partition
from fedapa.stores.store import Store
from fedapa.windows.labels import Label, choose_rooms
from fedapa.windows.recipe import USUAL_SECONDS, Recipe
from fedapa.windows.split import LabelledClasses, SplitChoice, ValidationOf

__all__ = ["LATER", "OPEN", "DataPlan", "ModelPlan", "NetworkPlan", "Plan", "differences"]

Tasks = Literal["label", "activity", "both"]
Share = Annotated[float, Field(gt=0, lt=1)]

OPEN = 10**9
"""What ``rounds = "open"`` is as a number: more than anybody will see."""
LATER = frozenset(["algorithm.statistics", "data.scored"])
"""Keys that plans of runs from before they were there do not name: by default they mean what was.
A run with those defaults is the run that it was."""
_MOST_ROOMS = 10_000
_MOST_CLASSES = 10_000
_WIDEST = 1 << 16
_MOST_PEOPLE = 10**6


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DataPlan(_Section):
    """Which rooms, how their recordings are cut into windows, and how windows are split."""

    file: Annotated[str, Field(max_length=4096)] | None = None
    """A store; none is the simulated rooms below."""
    only: Annotated[tuple[str, ...], Field(max_length=_MOST_ROOMS)] | None = None
    """The rooms to use; by default all."""
    without: Annotated[tuple[str, ...], Field(max_length=_MOST_ROOMS)] | None = None
    """Rooms to leave out."""
    simulated: str = "smoke"
    """The simulated rooms where no file is given: smoke, quick, activities, long, takes or
    six-rooms."""
    simulated_seed: NotNegativeInteger = 0
    """The seed of the simulated rooms; runs of different seeds share one set of rooms."""
    window: PositiveInteger | None = None
    """Packets a window spans; by default what the store recommends, else 4 s of them."""
    seconds: Annotated[float, Field(gt=0, le=3600)] | None = None
    """Seconds a window spans, instead of packets: for rooms of different packet rates. Packets that
    came unevenly are put onto an even grid for it."""
    stride: PositiveInteger | None = None
    """Packets from one window to the next; by default no overlap."""
    overlap: Annotated[float, Field(ge=0, le=0.95)] = 0.0
    """Share of a train window that the next one has too, instead of a stride."""
    decimate: PositiveInteger = 1
    """Keep every n-th packet, after a low-pass."""
    subcarrier_step: PositiveInteger = 1
    """Keep every n-th subcarrier of each link."""
    links: Literal["first", "all"] = "all"
    """The first antenna pair, or all of them."""
    view: Literal[
        "auto",
        "amplitude",
        "level",
        "motion",
        "spectrum",
        "statistics",
        "statistics by link",
        "profile",
    ] = "auto"
    """What a window becomes before the net; auto is what a linear model does best with."""
    bad_windows: Literal["refuse", "drop"] = "refuse"
    """Windows with NaN, infinity or no change at all."""
    tasks: Tasks = "label"
    """What a net tells: the recordings' "label" (mostly a count), their "activity" instead, or
    "both": one encoder with a classifier and prototypes for each."""
    partition: Partition = "rooms"
    """The rooms as they are; or all windows dealt anew, by "dirichlet" shares of each class or with
    a few "classes" in each room: label skew of a chosen strength, for ablations."""
    partition_rooms: Annotated[int, Field(ge=2, le=_MOST_ROOMS)] = 6
    """How many rooms they are dealt to."""
    partition_concentration: Positive = 0.5
    """α of the Dirichlet shares: small is a strong skew."""
    partition_classes: Annotated[int, Field(ge=2, le=_MOST_CLASSES)] = 2
    """k, the classes in a room."""
    split: SplitChoice = "auto"
    """random (window by window, leaks), blocked, recording, day or later (the last days, in their
    order); auto is the strictest of the first four that all rooms allow."""
    train_recordings: PositiveInteger | None = None
    """Recordings of each class to train on at most; by default all that are left to train. How much
    must be recorded? ``fedapa reproduce learning-curve`` asks with this."""
    train_windows: PositiveInteger | None = None
    """Windows of each class to train on at most, one after the other from some time on."""
    train_classes: LabelledClasses = "all"
    """The classes to train on, of those that a room has: all, the "lower" half, the "upper" half,
    or every second ("alternate")."""
    few_labels_in: Annotated[tuple[str, ...], Field(max_length=_MOST_ROOMS)] | None = None
    """The rooms that the three settings above are for; by default all."""
    unlabelled: Literal["drop", "keep"] = "drop"
    """What becomes of windows whose label is taken away by them: nobody has recorded them, or they
    are there without a label. Then validation windows have none either, and the room's normaliser
    is of all of its windows but for those of the test."""
    test: Share = 0.2
    """Share of windows to test on; of days where the split is later."""
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the rest kept from training, for whatever is tuned."""
    validation_of: ValidationOf = "class"
    """That share of every class with four or more recordings (days where the split is day; windows
    where it is blocked or random), or of the room as a whole."""

    scored: Literal["test", "validation"] = "test"
    """Which windows are scored: those of the test, or those of validation in their place. Then test
    windows and continuous recordings are in no part of a room, where nobody can look at them: so
    settings are chosen (``fedapa tune``)."""

    @field_validator("file", mode="before")
    @classmethod
    def _is_a_path(cls, file: Any) -> Any:
        if isinstance(file, str) and ("\0" in file or readable(file) != file):
            raise ValueError("holds a NUL or bytes that are no UTF-8; rename the store")
        return file

    @model_validator(mode="after")
    def _said_once(self) -> "DataPlan":
        for one, other in (("window", "seconds"), ("stride", "overlap")):
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"{one} and {other} say the same thing; give one of the two")
        return self

    @model_validator(mode="after")
    def _means_something(self) -> "DataPlan":
        for name in ("few_labels_in", "unlabelled"):
            if getattr(self, name) != type(self).model_fields[name].default and not self.fewer:
                raise ValueError(
                    f"{name}: no label is taken away, so it means nothing; set train_recordings, "
                    "train_windows or train_classes, or leave it out"
                )
        return self

    @model_validator(mode="after")
    def _validates(self) -> "DataPlan":
        if self.scored == "validation" and (not self.validation or self.unlabelled == "keep"):
            raise ValueError(
                "scored = 'validation': there are no validation windows with a label; set "
                "validation above 0 and unlabelled = 'drop'"
            )
        return self

    @model_validator(mode="after")
    def _dealt_by_label(self) -> "DataPlan":
        if self.tasks != "label" and self.partition != "rooms":
            raise ValueError(
                f"tasks = '{self.tasks}': a partition deals windows by their label alone; leave "
                "one of the two out"
            )
        return self

    @property
    def fewer(self) -> bool:
        """Whether labels are taken away."""
        limits = (self.train_recordings, self.train_windows)
        return any(limit is not None for limit in limits) or self.train_classes != "all"

    def rooms_of(self, store: Store) -> tuple[str, ...]:
        """The rooms of a store that are to be used."""
        rooms = choose_rooms(
            store.rooms, only=self.only, without=self.without, place=str(store.path)
        )
        for room in self.few_labels_in or ():
            if room not in store.rooms:
                raise PlanError(
                    f"data.few_labels_in: there is no room '{room}' in {store.path}; "
                    f"{nearest(room, store.rooms)}"
                )
        return rooms

    def recipe(self, recommended: int | None, view: str | None = None) -> Recipe:
        """How to cut windows; one without packets and seconds is as the store recommends.

        Args:
            recommended: the store's own window length.
            view: what was agreed on; by default the plan's, and the plainest while that is open.
        """
        length = self.window or (None if self.seconds else recommended)
        if length is not None and self.decimate > length:
            raise PlanError(
                f"data.decimate: {self.decimate} leaves nothing of a window of {length}"
            )
        return Recipe(
            window=self.window,
            seconds=USUAL_SECONDS if length is None and not self.seconds else self.seconds,
            stride=self.stride,
            overlap=self.overlap,
            decimate=self.decimate,
            subcarrier_step=self.subcarrier_step,
            links=self.links,
            bad_windows=self.bad_windows,
            view=view or ("amplitude" if self.view == "auto" else self.view),
        )


class ModelPlan(_Section):
    """The nets."""

    architecture: str | dict[str, str] = "auto"
    """One net for all, "by-size" (thirds by train windows: tiny, middle, large), or room = net;
    "auto" is our counter for views that are vectors and the paper's middle net for matrices."""
    width: Annotated[int, Field(ge=1, le=_WIDEST)] = 256
    """Of the embedding."""
    normalise_embedding: bool = False
    """Scale embeddings to length one before the classifier and in prototypes."""
    initialisation: Literal["common", "own"] = "common"
    """Whether rooms with equal nets start from equal weights."""

    @model_validator(mode="after")
    def _known_nets(self) -> "ModelPlan":
        chosen = self.architecture
        given = chosen.values() if isinstance(chosen, dict) else [chosen]
        known = (*ARCHITECTURES, *(() if isinstance(chosen, dict) else ("auto", "by-size")))
        for net in given:
            if net not in known:
                # pydantic takes no message with letters that UTF-8 lacks.
                raise ValueError(f"'{readable(net)}' is no architecture; {nearest(net, known)}")
        return self


class NetworkPlan(_Section):
    """How long rooms are waited for, where they are on other machines; in process all answer."""

    deadline: Annotated[float, Field(gt=0, le=7 * 86400)] = 600.0
    """Seconds that a round waits for a room; then it goes on without."""
    quorum: NotNegativeInteger = 0
    """Rooms that must answer a round, or all that were asked where those are fewer. With too few it
    is repeated once, then the run pauses until they are back."""


_EXAMPLES: Mapping[str, str] = {
    "data": 'data.split = "day"',
    "model": "model.width = 256",
    "training": "training.epochs = 5",
    "algorithm": 'algorithm = "fedapa"',
    "joins": 'joins.kitchen = "runs/first"',
    "network": "network.deadline = 600",
    "privacy": "privacy.epsilon = 10",
    "defence": 'defence = "guard"',
    "attack": 'attack.kind = "scaled"',
}
"""A key of every section, as somebody may write it who gave the section a value."""


class Plan(_Section):
    """A run, as far as it decides the result."""

    seed: NotNegativeInteger = 0
    rounds: Annotated[PositiveInteger, Field(le=OPEN)] = 10
    """How many; "open" goes on until a number is set, and every room has its model file after each
    of them."""
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """ρ: share of the rooms that take part in a round."""
    selection: Selection = "uniform"
    """Which rooms those are: drawn at random, those whose prototypes differ most, or with odds for
    those that finish soon."""
    precision: Precision = "float32"
    """In how many bits the floats of messages travel, up and down: float32, float16 or int8."""
    classes: Annotated[tuple[Label, ...], Field(max_length=_MOST_CLASSES)] | None = None
    """All counts or categories, each once; by default those found in the rooms."""
    answer: Answer = "median"
    """How finished nets count: by the most probable class ("head"), the class of the "nearest"
    prototype, the "median" of the probabilities or the "expected" number. Accuracy is always of the
    most probable class; categories have no median and no mean."""
    answerable: (
        Literal["all", "room"] | Annotated[tuple[Label, ...], Field(max_length=_MOST_CLASSES)]
    ) = "all"
    """What a room may answer: any class of the federation, or those alone that its own recordings
    have, also where a label was taken away ("room"), or these: who owns a room knows which counts
    there can be."""
    joins: dict[str, Annotated[str, Field(max_length=4096)]] = Field(default_factory=dict)
    """room = finished run: the federation that the room joins. It trains alone then, from what
    that server has for it; nobody else hears of it."""
    device: Literal["cpu", "cuda"] = "cpu"
    data: DataPlan = Field(default_factory=DataPlan)
    model: ModelPlan = Field(default_factory=ModelPlan)
    training: Training = Field(default_factory=Training)
    network: NetworkPlan = Field(default_factory=NetworkPlan)
    privacy: Privacy = Field(default_factory=Privacy)
    algorithm: dict[str, Any] = Field(default_factory=lambda: {"name": "fedapa"})
    """Its name and its settings."""
    defence: Defence | None = None
    """What the server does about rooms that lie, by name ("guard") or setting by setting
    (docs/security.md); by default nothing."""
    attack: Attack | None = None
    """Rooms that lie, for experiments; only in process."""

    @field_validator("rounds", mode="before")
    @classmethod
    def _open_is_a_number(cls, rounds: Any) -> Any:
        if isinstance(rounds, str) and rounds != "open" and not rounds.isdecimal():
            raise ValueError('expected a number of 1 or more, or "open", which has no last round')
        return OPEN if rounds == "open" else rounds

    @field_validator(*_EXAMPLES, mode="before")
    @classmethod
    def _is_a_section(cls, given: Any, field: ValidationInfo) -> Any:
        kinds = (Mapping, _Section, Training, Privacy, Defence, Attack)
        if given is not None and not isinstance(given, kinds):
            example = _EXAMPLES[field.field_name or ""]
            raise ValueError(f"is a section: set its keys, for example {example}")
        return given

    def _defends(self) -> None:
        """Refuse settings that do nothing: who gives them believes that they do."""
        how = self.defence or Defence()
        if how.reputation and not how.cosine:
            raise PlanError(
                "defence.reputation: nobody can lose any where defence.cosine is 0; set cosine, "
                "too, or leave it out"
            )
        if how.trim != Defence.trim and how.rule != "trimmed":
            raise PlanError(
                f"defence.trim: nothing is trimmed where defence.rule is '{how.rule}'; set rule = "
                "'trimmed', or leave it out"
            )

    @model_validator(mode="after")
    def _classes_once(self) -> "Plan":
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise ValueError("classes name one twice")
        for label in self.classes or ():
            if isinstance(label, int) and not 0 <= label < _MOST_PEOPLE:
                raise ValueError(f"classes name {_brief(label, str)}: no number of people")
        return self

    def __init__(self, **values: Any) -> None:
        # Two shorthands for scripts: Plan(algorithm="local", data="rooms.h5").
        if isinstance(values.get("algorithm"), str):
            values["algorithm"] = {"name": values["algorithm"]}
        if isinstance(values.get("data"), str | Path):
            values["data"] = {"file": str(values["data"])}
        if isinstance(values.get("defence"), str):  # a third, for plans, too
            values["defence"] = _named_defence(values["defence"])
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise PlanError(_sentence(error.errors()[0], type(self))) from None
        self._defends()
        # Settings are checked, and defaults spelled out, by the algorithm itself.
        algorithm = self.build()
        if self.attack is not None and self.joins:
            raise PlanError(
                "attack: rooms that join train alone, so nobody is attacked; leave it out"
            )
        if self.attack is not None and self.privacy.is_on:
            raise PlanError(
                "attack: with privacy a room sends a noised set of its own windows, never what an "
                "attacker made; leave one of the two out"
            )
        if self.data.tasks == "both" and not algorithm.several_tasks:
            raise PlanError(algorithms.one_task_only(algorithm))
        self._check_privacy(algorithm)
        settings = {name: getattr(algorithm, name) for name in settings_of(self._kind)}
        object.__setattr__(self, "algorithm", {"name": self._kind.name, **settings})

    def _check_privacy(self, algorithm: Algorithm) -> None:
        """Refuse noise where it would protect nothing, or less than it says."""
        if not self.privacy.is_on:
            if self.privacy != Privacy():
                raise PlanError("privacy: without epsilon nothing is noised; set privacy.epsilon")
            return
        covered = [kind for kind in map(algorithms.find, algorithms.names()) if _is_covered(kind)]
        known = ", ".join(kind.name for kind in covered)
        alone = isinstance(algorithm, PrototypeExchange) and algorithm.is_alone
        if not algorithm.sends_sets_alone or alone:
            why = "nothing travels" if alone else f"it sends {algorithm.travels.partition(';')[0]}"
            raise PlanError(
                f"privacy: covers prototypes alone, and with {algorithm.title} {why}; use one of "
                f"{known}, or leave privacy out"
            )
        if self.data.tasks == "both" or self.joins:
            what = "joins" if self.joins else "data.tasks = 'both'"
            raise PlanError(f"privacy: does not go with {what}; leave one of the two out")
        if self.privacy.planned(self.total) is None:
            raise PlanError(
                "privacy: a run without a last round needs the number of releases that ε is "
                "divided among; set privacy.releases, or rounds"
            )

    @property
    def total(self) -> int | None:
        """How many rounds there will be; none where nobody has decided that."""
        return None if self.rounds == OPEN else self.rounds

    @property
    def _kind(self) -> type[Algorithm]:
        if "name" not in self.algorithm:
            raise PlanError(f"algorithm: no name given; known: {', '.join(algorithms.names())}")
        return algorithms.find(_brief(self.algorithm["name"], str))

    def build(self) -> Algorithm:
        """The algorithm with its settings."""
        kind = self._kind
        settings = {key: value for key, value in self.algorithm.items() if key != "name"}
        sections = {"training": self.training, "privacy": self.privacy}
        for name in sections:
            if name in settings:
                raise PlanError(f"algorithm.{name}: unknown key; such settings stand in [{name}]")
        try:
            return TypeAdapter(kind).validate_python({**settings, **sections})
        except ValidationError as error:
            raise PlanError(
                _sentence(error.errors()[0], kind, place=f"algorithm '{kind.name}': ")
            ) from None

    @classmethod
    def of(cls, *layers: Mapping[str, Any]) -> "Plan":
        """A plan from several mappings, later ones overriding earlier ones, section by section.

        Settings of one algorithm mean nothing to another: naming a new one drops the old's. Only a
        variant takes over its algorithm's, but for those that it fixes, so that both compare.
        """
        merged: dict[str, Any] = {}
        for layer in layers:
            for key, value in layer.items():
                new = {"name": value} if key == "algorithm" and isinstance(value, str) else value
                if key == "defence" and isinstance(value, str):  # single settings may follow
                    new = asdict(Defence(**_named_defence(value)))
                old = merged.get(key)
                if key == "defence" and _has_another_rule(new):
                    # The share that a combination trims goes with its rule.
                    new = {"trim": Defence.trim, **new}
                if not isinstance(old, dict) or not isinstance(new, Mapping):
                    merged[key] = dict(new) if isinstance(new, Mapping) else new
                elif key == "algorithm" and new.get("name", old.get("name")) != old.get("name"):
                    merged[key] = {**_taken_over(old, _brief(new["name"], str)), **new}
                else:
                    merged[key] = {**old, **new}
        return cls(**merged)

    def document(self) -> dict[str, Any]:
        """Plain values with every default spelled out; what has no value is left out."""
        values = self.model_dump(mode="python")  # "json" would turn an infinite τ into nothing
        values["training"] = asdict(self.training)
        values["privacy"] = asdict(self.privacy)
        if not self.privacy.is_on:  # plans were written before there was any
            del values["privacy"]
        for name in ("defence", "attack"):
            values[name] = None if (own := getattr(self, name)) is None else asdict(own)
        values["rounds"] = self.total or "open"
        return _plain(values)  # type: ignore[no-any-return]

    def identity(self) -> str:
        """What makes a run this one; a longer one is the same run, unless it plans ahead.

        Whoever runs it may wait longer for rooms than before.
        """
        values = self.document()
        del values["network"]
        for section, _, key in (place.partition(".") for place in LATER):
            if key in values[section] and values[section][key] == self._default(section, key):
                del values[section][key]
        if not self._kind.plans_ahead:
            del values["rounds"]
        return tomli_w.dumps(values)

    def _default(self, section: str, key: str) -> Any:
        if section == "algorithm":
            return settings_of(self._kind)[key]
        return type(getattr(self, section)).model_fields[key].default

    def toml(self) -> str:
        """The resolved plan as a file that ``fedapa run`` reads."""
        return tomli_w.dumps(self.document())


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Where two plan documents differ: "rounds: 10 → 20"."""
    changes: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            changes.append(f"{prefix}{key}: {before} → {after}")
    return changes


def _has_another_rule(given: Any) -> bool:
    """Whether a change of a defence has it trim no more."""
    return isinstance(given, Mapping) and given.get("rule", "trimmed") != "trimmed"


def _named_defence(name: str) -> Mapping[str, Any]:
    if name not in NAMED:
        raise PlanError(f"defence: '{readable(name)}' is unknown; {nearest(name, list(NAMED))}")
    return NAMED[name]


def _taken_over(old: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings that a variant keeps of the algorithm it is of; none where it is of another."""
    kind = algorithms.find(name)
    base = algorithms.base_of(kind)
    if kind is base or old.get("name") != base.name:
        return {}
    fixed = inspect.get_annotations(kind)
    return {key: value for key, value in old.items() if key != "name" and key not in fixed}


def _is_covered(kind: type[Algorithm]) -> bool:
    return kind.sends_sets_alone and not algorithms.is_variant(kind)


def _plain(value: Any) -> Any:
    """What TOML can hold and gives back equal: no None, lists for tuples."""
    if isinstance(value, dict):
        return {key: _plain(below) for key, below in value.items() if below is not None}
    return list(value) if isinstance(value, tuple) else value


def _sentence(error: ErrorDetails, root: type, place: str = "") -> str:
    """One validation error as a sentence: place, got, expected, remedy."""
    path = [_brief(word, str) for word in error["loc"]]
    where = place + ".".join(path)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _keys_at(root, path[:-1])
        return f"{where}: unknown key; {nearest(path[-1], known) if known else 'there are none'}"
    message = error["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    where = f"{where}: " if where else ""
    return f"{where}{message[0].lower()}{message[1:]} (got {_brief(error['input'])})"


def _brief(value: Any, text_of: Callable[[Any], str] = repr) -> str:
    """As much of a value as fits into a sentence."""
    try:
        text = text_of(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number too long to be written"
    return text if len(text) <= 80 else f"{text[:60]} …"


def _keys_at(root: type, path: Sequence[str]) -> list[str]:
    """The keys that a section of a plan, or an algorithm, knows."""
    sections: dict[str, type] = {
        "data": DataPlan,
        "model": ModelPlan,
        "training": Training,
        "network": NetworkPlan,
        "privacy": Privacy,
        "defence": Defence,
        "attack": Attack,
    }
    section = sections.get(path[0], root) if path else root
    if issubclass(section, BaseModel):
        return list(section.model_fields)
    shared: set[str] = set()
    if issubclass(section, Algorithm):
        shared = {f.name for f in fields(Algorithm)}
    return [f.name for f in fields(section) if f.name not in shared]  # type: ignore[arg-type]

"""The contract: an algorithm is two halves, and the defaults are Local.

One algorithm is one file: a frozen dataclass of settings and a few pure methods. The server half
sees payloads and named arrays only; the room half sees its own room only. Neither sees a socket,
a process or another room, so the same file runs in process and on a network. States are trees
(``fedapa.payload``): they are returned, never changed in place.

In one exchange a room *receives* the download, *deploys* and is scored (that is the score of the
state after the previous merge), *trains*, and replies with its upload. A last exchange only scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

from pydantic import ConfigDict
from torch import Tensor

from fedapa.errors import PlanError, RunError
from fedapa.evaluation.theory import THEORY
from fedapa.learning.fit import Objective, Part, Training, cross_entropy, fit
from fedapa.learning.losses import soft_targets
from fedapa.learning.private import Privacy
from fedapa.learning.prototypes import class_prototypes
from fedapa.learning.tree import NamedArrays, load_weights, weights_of
from fedapa.models.build import undrawn
from fedapa.models.model import Counter, Model
from fedapa.payload import Array, Tree
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = [
    "Algorithm",
    "Dimensions",
    "Form",
    "Group",
    "Payload",
    "Range",
    "Report",
    "RoomState",
    "Roster",
    "Round",
    "ServerState",
    "planned_rounds",
    "settings_of",
]

Payload: TypeAlias = Tree
ServerState: TypeAlias = Tree
RoomState: TypeAlias = Tree
Report: TypeAlias = Mapping[str, float]
Roster: TypeAlias = Sequence[RoomCard]
Group: TypeAlias = Literal["paper", "more", "control"]
"""Where it stands in a table: what the paper compares, what it does not, or a control."""

_OWN = ("group", "year", "paper", "control", "carries_claim", "remark", "look", "several_tasks")
"""Facts that an algorithm does not have in common with the one whose file it starts from."""


@dataclass(frozen=True)
class Round:
    """Which round it is: counted from 1, of how many, and its random stream."""

    number: int
    total: int | None
    """How many rounds there will be; none where nobody has decided that."""
    key: Key
    diagnose: int | None = None
    """Whether rooms also say what the theory speaks of (learning/diagnosis.py): not at all; 0:
    what needs no pass of its own; k: every k-th round gradients over an epoch, too. No other number
    of a run hangs on it."""

    def __post_init__(self) -> None:
        """Refuse numbers that no round has; one exchange after the last round only scores."""
        last = self.total
        if self.number < 1 or (last is not None and (last < 1 or self.number > last + 1)):
            raise RunError(
                f"round {self.number} of {last}: rounds are counted from 1 up to one after the "
                "last, which only scores"
            )


@dataclass(frozen=True)
class Dimensions:
    """What the size of a message depends on."""

    rooms: int
    """N."""
    classes: int
    """|C|."""
    width: int
    """D."""
    parameters: int
    """Σw, of a whole net."""
    batch_norm: int
    """ΣBN, how many of them are BatchNorm's."""
    classifier: int
    """Σh, how many of them are the classifier's."""


@dataclass(frozen=True)
class Form:
    """What stands in one place of an upload; the server merges nothing else (rounds.py)."""

    shape: tuple[int | str, ...] | None = None
    """Of an array; none is a plain number. A side may be a word: as many as there are true entries
    in the upload's mask of that name."""
    dtypes: tuple[str, ...] = ("float32",)
    """Those that an array may have."""
    least: float | None = None
    """The least that any value in it may be; none is any."""
    most: float | None = None
    """The largest."""
    together: float | None = None
    """The largest sum of all values in it."""
    where: str = ""
    """The upload's mask that says which of its values are above 0; the others are 0."""
    counted: bool = False
    """Whether it is a number of windows by which the room is weighed."""


@dataclass(frozen=True)
class Range:
    """From where to where a setting is looked for when it is tuned, both ends included."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "log"
    """Whether steps of equal size or of equal factor are as likely."""
    whole: bool = False
    """Whether only whole numbers mean anything."""

    def at(self, share: float) -> float | int:
        """The value at a share of the way from low to high, in two digits: others are no better."""
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        return round(value) if self.whole else float(f"{value:.2g}")


@dataclass(frozen=True)
class Algorithm:
    """Local training; others override what they do differently."""

    name: ClassVar[str]
    """What a plan calls it; the name of its file."""
    title: ClassVar[str]
    """What a table calls it."""
    travels: ClassVar[str]
    """What is exchanged, in a few words."""
    citation: ClassVar[str]
    """Who published it, where and when."""
    paper: ClassVar[str] = ""
    """The title of that publication."""
    year: ClassVar[int] = 0
    """Its year: tables have the oldest first."""
    group: ClassVar[Group] = "more"
    control: ClassVar[str] = ""
    """The name of what does the same without the exchange: a gain beyond it is the exchange's."""
    carries_claim: ClassVar[bool] = False
    """Whether a claim rests on it: then experiments also run it to the long horizon."""
    remark: ClassVar[str] = ""
    """What a reader must know of its figures wherever they stand."""
    look: ClassVar[int | None] = None
    """Its colour and marker in every figure, by number; none takes what is free."""
    averages_weights: ClassVar[bool] = False
    """Whether rooms need equal nets, or equal arrays in them, to have anything in common."""
    needs_batch_norm: ClassVar[bool] = False
    """Whether it means nothing for nets without BatchNorm."""
    needs_features: ClassVar[bool] = False
    """Whether it means nothing for windows of packets, only for vectors of numbers."""
    needs_validation: ClassVar[bool] = False
    """Whether rooms must have validation windows, which one with a few labels has not."""
    can_be_diagnosed: ClassVar[bool] = False
    """Whether rooms minimise L_ce + λ Φ with prototypes in Φ, and keep their net from round to
    round: the theory speaks of such ones (docs/theory.md)."""
    fits_once: ClassVar[bool] = False
    """Whether rooms fit once, in their first round, not by SGD: ``training`` decides nothing."""
    learns_unlabelled: ClassVar[bool] = False
    """Whether it learns from windows without a label; others leave them out."""
    several_tasks: ClassVar[bool] = False
    """Whether rooms may have several tasks: its losses are of each (``over_tasks``), and nothing in
    it compares classes of different ones. Said by each algorithm and variant for itself."""
    sends_sets_alone: ClassVar[bool] = False
    """Whether all that a room sends is its set of prototypes, means of its net's embeddings: that
    can be clipped and noised (``learning/private.py``)."""
    pools: ClassVar[bool] = False
    """Whether it is the control that puts everybody's windows in one place."""
    pools_in_turn: ClassVar[bool] = False
    """Whether it is the control in which every room has everybody's windows, and is then alone."""
    deploys_by_state: ClassVar[bool] = True
    """Whether what is scored hangs on room and state alone, not on the round: a state that did not
    change is then not scored again. A file that overrides ``deploy`` or ``alternatives`` says it
    anew; where it says nothing, every exchange scores."""
    plans_ahead: ClassVar[bool] = False
    """Whether ``Round.total`` decides anything: then a longer run is another run from its start."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    training: Training = field(default_factory=Training)
    privacy: Privacy = field(default_factory=Privacy)

    def __init_subclass__(cls) -> None:
        """What is said of an algorithm alone is not said of those that start from its file."""
        for fact in _OWN:
            if fact not in vars(cls):
                setattr(cls, fact, getattr(Algorithm, fact))
        for home in cls.__mro__:  # who says it must be whoever deploys, or below
            if "deploys_by_state" in vars(home):
                break
            if {"deploy", "alternatives"} & set(vars(home)):
                cls.deploys_by_state = False

    # ---- what a defence asks -------------------------------------------------------------------

    @property
    def averages_across_nets(self) -> bool:
        """Whether arrays of nets of different names may be averaged, so that all are compared."""
        return False

    # ---- what experiments ask ------------------------------------------------------------------

    @classmethod
    def settings_for(cls, rounds: int) -> dict[str, Any]:
        """Settings that go with a number of rounds, where it is not the one of a preset."""
        return {}

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """The settings that ``fedapa tune`` chooses, by their keys in a plan of so many rounds.

        Those that decide most, and few: every further one takes budget from the others.
        """
        return {} if cls.fits_once else {"training.learning_rate": Range(0.002, 0.2)}

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """How many numbers a room sends and receives in a round: a formula, and what it gives.

        None where the file does not say: a table then has the measured bytes alone.
        """
        return None

    def scored_rounds(self, total: int) -> Sequence[int] | None:
        """The rounds in which what is scored is the algorithm's own; none is every round."""
        return None

    def work(self, rounds: int) -> int:
        """Roughly the epochs that a room trains in so many rounds."""
        return rounds * self.training.epochs

    # ---- server half: payloads and named arrays only -------------------------------------------

    def open(self, roster: Roster, key: Key) -> ServerState:
        """The server's first state; refuses rooms it cannot serve with a RosterError."""
        return {}

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """What this room gets at the start of this round."""
        return {}

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """The state after this round's uploads, whatever their order."""
        return state

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """What this room sends in this round, by path ("weights/classifier.bias"); here nothing.

        The server rejects whatever has another form, so that ``merge`` need not look.
        """
        return {}

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """The state with one more room, between rounds; refuses it as ``open`` would."""
        return state

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """The state without a room that left, between rounds."""
        return state

    def standstill(self, state: ServerState) -> str:
        """Why nobody can learn in this state, as a sentence; empty where somebody can."""
        return ""

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """What is worth recording about a state: numbers, [N] per room, or [N, N] between them.

        N are the rooms that were admitted, sorted by name.
        """
        return {}

    def sets(self, state: ServerState) -> tuple[Array, Array] | None:
        """Every room's prototypes [N, C, D] and which are real [N, C]; none if none travel."""
        return None

    def movement(self, before: ServerState, after: ServerState) -> dict[str, float]:
        """How far a merge moved what the theory speaks of, for a diagnosis; here nothing."""
        return {}

    # ---- room half: sees its own room only ------------------------------------------------------

    def join(self, room: Room, key: Key) -> RoomState:
        """The room's first state."""
        return {"model": weights_of(self.build(room))}

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """The room's state with the download taken in."""
        return state

    def deploy(self, room: Room, state: RoomState, round: Round) -> Counter:
        """What is scored and served: mostly the net."""
        return self.model(room, state)

    def alternatives(self, room: Room, state: RoomState, round: Round) -> Mapping[str, Counter]:
        """Further nets by name, scored beside the deployed one: other answers of one training."""
        return {}

    def anchors(self, room: Room, state: RoomState, model: Model) -> tuple[Tensor, Tensor]:
        """The prototypes [C, D] that ``answer = nearest`` compares with, and which are there [C].

        By default the room's own, of its train windows.
        """
        embeddings, labels = room.embeddings(model)
        prototypes, members = class_prototypes(embeddings, labels, room.outputs)
        return prototypes, members > 0

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """One round of local training: the new state, the upload and what to record."""
        _, state, report = self.fit(room, state, round, cross_entropy)
        return state, {}, report

    # ---- what most room halves share ------------------------------------------------------------

    def build(self, room: Room) -> Model:
        """The net that is trained, with its initial weights."""
        return room.build()

    def model(self, room: Room, state: RoomState, *, net: str = "model") -> Model:
        """The net that is trained, with the weights that the state holds by the name ``net``."""
        if type(self).build is Algorithm.build:
            model = room.blank()
        else:
            with undrawn():
                model = self.build(room)
        load_weights(model, cast(NamedArrays, state[net]))
        if self.training.ordinal:
            held = [place for place in room.held if place < len(room.classes)]
            targets = soft_targets(room.classes, self.training.ordinal, held)
            model.targets = None if targets is None else targets.to(room.device)
        return model

    def fit(
        self,
        room: Room,
        state: RoomState,
        round: Round,
        objective: Objective,
        *,
        net: str = "model",
        part: Part = "all",
        epochs: int | None = None,
    ) -> tuple[Model, RoomState, dict[str, float]]:
        """Train a net of the state on an objective; the batches depend on room and round only.

        Args:
            room: whose windows.
            state: holds the net, and every net's momentum where it is kept.
            round: draws the batches.
            objective: what to minimise.
            net: the name of the net's weights in the state; a room may have several.
            part: what of the net to train; another part draws other batches.
            epochs: instead of the plan's.
        """
        model = self.model(room, state, net=net)
        key = round.key / "room" / room.name / "batches"
        momentum = dict(cast(Mapping[str, NamedArrays], state.get("momentum", {})))
        carried = momentum.get(net, {})
        training = self.training.at(round.number)
        result = fit(
            model,
            room,
            objective,
            training if epochs is None else replace(training, epochs=epochs),
            key=key if part == "all" else key / part,
            momentum=carried,
            part=part,
            measured=round.diagnose is not None,
        )
        new = {**state, net: weights_of(model)}
        if self.training.keep_momentum:
            new["momentum"] = {**momentum, net: {**carried, **result.momentum}}
        told = {f"{THEORY}{name}": value for name, value in result.measured.items()}
        return model, new, {**result.losses, **told}


def planned_rounds(title: str, round: Round) -> int:
    """How many rounds there will be; refuses by name where an algorithm must know and cannot."""
    if round.total is None:
        raise PlanError(
            f"{title} depends on the number of rounds, and this run has no last one; set rounds in "
            "the plan, or use an algorithm that does not plan ahead, such as fedapa or fedavg"
        )
    return round.total


def settings_of(algorithm: type[Algorithm]) -> dict[str, Any]:
    """The algorithm's own settings and their defaults."""
    shared = {f.name for f in fields(Algorithm)}  # have sections of their own in a plan
    return {f.name: f.default for f in fields(algorithm) if f.name not in shared}

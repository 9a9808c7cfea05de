"""FedJoin: one net for all rooms that a new room with few labels can take over and tune at home.

Up: the weights, one prototype a class, the temperature that calibrates the room. Down: the mean of
the weights, the room's own mixture of prototypes (APA, eqn_5–eqn_7), the mean temperature.

    L = CE over the classes that the room holds (+ CE on unlabelled windows, once there is ground)

Unlike FedAvg a room's loss says nothing of classes that it does not hold: FedAvg's teaches the net
that a room with 0 to 3 people never has eight, and that is what it answers when there are. Here the
classifier's rows for eight are those of the rooms that know them. A room is scored with its net
after its own step. Before the first, and where it may have classes that it has no label of, the net
answers with the nearest prototype by cosine, the room's own where it holds the class and the
mixture elsewhere; else with its classifier. Of classes that it does not hold its loss says nothing,
so it never answers them, unless it may have them: the plan says so (``answerable``), or it has
windows without a label.

Unlabelled windows help where a room may have classes that it has no label of: after
``labelled_rounds`` the net says once what every unlabelled recording is. All windows of a recording
are of one class, so ln q = trust · mean over them of ln p, normalised; these q are kept to the end.
The net does not see its own later answers, so that an error cannot feed itself. ``consistency``
adds CE(p(u), p(u′)), u′ an unlabelled window as it might have been; it is off.

Weights and mixtures are of rooms with equal nets. A class that none of those holds is *carried
over* from rooms of other nets: their mean prototypes, turned and scaled onto this net's by the
classes that both hold (``learning/alignment.py``).

Our own; docs/joining.md says what each part earns.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from fedapa.algorithms.algorithm import (
    Dimensions,
    Form,
    Group,
    Payload,
    Range,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
)
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.prototype_sets import (
    Floats,
    Mask,
    admit_set,
    dismiss_set,
    is_heard,
    measure,
    open_sets,
    set_forms,
    stored_sets,
    take_in,
)
from fedapa.answers import TEMPERATURES, fit_temperature
from fedapa.learning.alignment import FEWEST_SHARED, align_prototypes
from fedapa.learning.augment import Augmenter
from fedapa.learning.fit import (
    NotNegative,
    NotNegativeInteger,
    Objective,
    Positive,
    PositiveInteger,
    Temperature,
)
from fedapa.learning.losses import Hybrid
from fedapa.learning.prototypes import (
    aggregate_prototypes,
    class_prototypes,
    mean_prototypes,
    pad_prototypes,
)
from fedapa.models.model import NEVER, SHORTEST, Model, answering_only, unit
from fedapa.payload import Array, Tree, Value
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["FedJoin", "FedJoinAlone", "FedJoinShuffled"]

_NOBODY = np.zeros(0, np.int64)
_COSINES = 0.1
"""τ of the cosines by which prototypes answer."""


@dataclass(frozen=True)
class FedJoin(FedAvg):
    """Mean weights and mixed prototypes; each room learns only of the classes that it holds."""

    name: ClassVar[str] = "fedjoin"
    title: ClassVar[str] = "FedJoin"
    deploys_by_state: ClassVar[bool] = True
    travels: ClassVar[str] = "all weights, class prototypes, a temperature; their means down"
    citation: ClassVar[str] = "our own"
    year: ClassVar[int] = 2026
    control: ClassVar[str] = "fedjoin-alone"
    learns_unlabelled: ClassVar[bool] = True
    several_tasks: ClassVar[bool] = True

    weights_every: PositiveInteger = 1
    """Weights travel in every k-th round; prototypes in each."""
    aggregation_temperature: Temperature = 0.5
    """τ of the mixture's weights."""
    unlabelled: Literal["unseen", "always", "ignore"] = "unseen"
    """When windows without a label are learned from: where the room may have classes that it has no
    label of, always where there are such windows, or never."""
    together: bool = True
    """Whether all windows of an unlabelled recording are taken to be of one class."""
    labelled_rounds: NotNegativeInteger = 10
    """Rounds that a room trains on labels alone, before its net says what the others are."""
    trust: Positive = 1.0
    """How much surer all windows of a recording are than one of them: 1 is no surer."""
    unlabelled_weight: NotNegative = 1.0
    """Of the loss on unlabelled windows."""
    shrinkage: NotNegative = 20.0
    """κ: with n train windows of a class, on average over those that the room may have, a newcomer
    learns at the rate η·n/(n + κ): with few labels it stays near the others' net. Who is there from
    the beginning has no such net to stay near, and learns at η."""
    minimum_samples: PositiveInteger = 1
    """Train windows behind a prototype, at least; classes with fewer are not uploaded."""
    guesses: Literal["own", "shuffled"] = "own"
    """What the net says of unlabelled recordings; shuffled among them, a control, nothing."""
    consistency: NotNegative = 0.0
    """Weight of the loss that asks for equal answers on windows without a label and on the same
    windows as they might have been (``training.augment``)."""
    across: bool = True
    """Whether classes that no room of equal net holds come from rooms of other nets, aligned by
    the classes that both hold."""
    exchange: bool = True
    """Whether anything travels; without, every room has the same loss for itself."""

    @classmethod
    def settings_for(cls, rounds: int) -> dict[str, Any]:
        """A third of the rounds on labels alone."""
        return {"labelled_rounds": rounds // 3}

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also τ of the mixture."""
        return {**super().tunables(rounds), "algorithm.aggregation_temperature": Range(0.1, 2.0)}

    @property
    def shares_more(self) -> bool:
        """Prototypes, which can be carried over from net to net."""
        return self.across

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """Weights in every k-th round, prototypes in each, up and down; and one temperature."""
        if not self.exchange:
            return "0", 0
        weights = 2 * sizes.parameters / self.weights_every
        return "2·(Σw/k + |C|·D)", round(weights + 2 * sizes.classes * sizes.width)

    # ---- server half ------------------------------------------------------------------------

    def open(self, roster: Roster, key: Key) -> ServerState:
        """FedAvg's slots, and nobody's prototypes yet."""
        if not self.exchange:
            return {}
        sets = open_sets(roster, self.title)
        nets = {card.name: card.architecture for card in roster}
        nothing: Tree = {"temperatures": {}, "newcomers": {}}
        return {**super().open(roster, key), "sets": sets, "nets": nets, **nothing}

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """Slots, and an empty row among the prototypes."""
        if not self.exchange:
            return state
        nets = {**cast(dict[str, str], state["nets"]), card.name: card.architecture}
        admitted = {
            **super().admit(state, card),
            "sets": admit_set(cast(Tree, state["sets"]), card, self.title),
            "nets": nets,
        }
        slots = cast(Mapping[str, str], cast(Tree, admitted["slots"])[card.name])
        if not cast(Tree, admitted["merged"]).keys().isdisjoint(slots.values()):
            late = cast(dict[str, bool], state["newcomers"])
            admitted["newcomers"] = {**late, card.name: True}
        return self._mixed(admitted)

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """Its prototypes and its temperature go with the room."""
        if not self.exchange:
            return state
        left = {
            **super().dismiss(state, room),
            "sets": dismiss_set(cast(Tree, state["sets"]), room),
            "nets": _without(cast(dict[str, str], state["nets"]), room),
            "temperatures": _without(cast(dict[str, float], state["temperatures"]), room),
            "newcomers": _without(cast(dict[str, bool], state["newcomers"]), room),
        }
        return self._mixed(left)

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """The mean weights where it is their turn, the room's mixture, the mean temperature."""
        if not self.exchange:
            return {}
        payload: dict[str, Value] = {}
        if (round.number - 1) % self.weights_every == 0:
            payload.update(super().download(state, room, round))
        if "mixture" in state:
            place = cast(Mapping[str, int], cast(Tree, state["sets"])["rooms"])[room]
            known = cast(Mask, state["known"])[place]
            payload.update(mixture=cast(Floats, state["mixture"])[place][known], known=known)
            if (carried := cast(Mask, state["carried"])[place]).any():
                payload["carried"] = carried
        if room in cast(dict[str, bool], state["newcomers"]):
            payload["newcomer"] = True
        told = list(cast(dict[str, float], state["temperatures"]).values())
        if told:
            payload["temperature"] = math.exp(math.fsum(map(math.log, told)) / len(told))
        return payload

    def _mixed(self, state: ServerState) -> ServerState:
        """With Q [N, C, D] and the classes that are known [N, C], both among rooms of equal nets.

        Embeddings of other nets have other axes: classes that only they know are carried over.
        """
        sets, nets = cast(Tree, state["sets"]), cast(Mapping[str, str], state["nets"])
        if not is_heard(sets):
            made = ("mixture", "known", "carried")
            return {name: state[name] for name in state if name not in made}
        prototypes, present = stored_sets(sets)
        net = np.array([nets[room] for room in sorted(nets)])
        mixture, known = np.zeros_like(prototypes), np.zeros_like(present)
        means: dict[str, tuple[Floats, Mask]] = {}
        for name in np.unique(net).tolist():
            alike = np.flatnonzero(net == name)
            own, held = prototypes[alike], present[alike]
            mixed = aggregate_prototypes(own, held, self.aggregation_temperature)
            mixture[alike] = np.where(held[:, :, None], mixed, pad_prototypes(own, held))
            known[alike] = held.any(axis=0)
            means[name] = cast(Floats, mean_prototypes(own, held)), known[alike[0]]
        carried = np.zeros_like(known)
        for name in means if self.across else ():
            alike = np.flatnonzero(net == name)
            values, foreign = _carried_over(means, name)
            mixture[np.ix_(alike, foreign)] = values[foreign]
            carried[alike] = foreign
        return {**state, "mixture": mixture, "known": known | carried, "carried": carried}

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """The room's set, weights where it is their turn, a temperature where it can be found."""
        if not self.exchange:
            return {}
        forms = dict(set_forms(card))
        if round.number % self.weights_every == 0:
            forms.update(super().uploads(card, round))
        if card.validation:
            least, most = TEMPERATURES  # all that a room can find
            forms["temperature"] = Form(least=least, most=most)
        return forms

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """The mean of the weights that came, the sets, the temperatures."""
        if not self.exchange:
            return state
        weighty = {room: upload for room, upload in uploads.items() if "weights" in upload}
        if weighty:
            state = super().merge(state, weighty, round)
        told = {
            room: cast(float, upload["temperature"])
            for room, upload in uploads.items()
            if "temperature" in upload
        }
        heard = {
            **state,
            "sets": take_in(cast(Tree, state["sets"]), uploads),
            "temperatures": {**cast(dict[str, float], state["temperatures"]), **told},
        }
        return self._mixed(heard)

    def sets(self, state: ServerState) -> tuple[Array, Array] | None:
        """P and its mask."""
        return stored_sets(cast(Tree, state["sets"])) if self.exchange else None

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """How many peers each room shares a net with, and how old its prototypes are."""
        if not self.exchange:
            return {}
        return {**super().explain(state), "age": cast(Array, cast(Tree, state["sets"])["age"])}

    # ---- room half ----------------------------------------------------------------------------

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """The mean weights to train from; the rest is kept."""
        taken = super().receive(room, state, download, round)
        if "known" in download and "carried" not in download:  # somebody with its net holds all now
            taken = {name: taken[name] for name in taken if name != "carried"}
        return {**taken, **{name: download[name] for name in download if name != "weights"}}

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The net after the room's own step, with its classifier or with prototypes."""
        by = self._by_prototypes if self._asks_prototypes(room, state) else self._by_classifier
        return self._within(room, state, by(room, state))

    def alternatives(self, room: Room, state: RoomState, round: Round) -> Mapping[str, Model]:
        """The other answer of the two."""
        if self._asks_prototypes(room, state):
            other = {"classifier": self._by_classifier(room, state)}
        else:
            other = {"prototypes": self._by_prototypes(room, state)}
        return {name: self._within(room, state, model) for name, model in other.items()}

    def _within(self, room: Room, state: RoomState, model: Model) -> Model:
        """Where the room does not say what it may answer: the classes that it may have."""
        if room.answerable is not None:
            return model  # its owner knows, and who serves the net keeps to it
        return answering_only(model, self._possible(room, state))

    def _asks_prototypes(self, room: Room, state: RoomState) -> bool:
        """Before the first step, and where the room may have classes that it has no label of."""
        if "mixture" not in state:
            return False
        return "trained" not in state or len(self._possible(room, state)) > len(room.held)

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Minimise the loss from the mean weights; upload weights, prototypes, temperature."""
        trained = cast(int, state.get("rounds", 0))
        if (
            self._guesses(room, state)
            and trained >= self.labelled_rounds
            and "guessed" not in state
        ):
            state = {**state, "guessed": self._guess(room, state, round)}
        careful = self._careful(room, state)
        model, state, report = careful.fit(room, state, round, self._restricted(room, state))
        state = {**state, "trained": state["model"], "rounds": trained + 1}
        if not self.exchange:
            return state, {}, report
        seen = room.embeddings(model)
        upload = dict(measure(room, seen, minimum_samples=self.minimum_samples)[1])
        if round.number % self.weights_every == 0:
            upload.update(self.upload(room, state))
        if len(room.split.validation):
            upload["temperature"] = _temperature(room, model)
        return state, upload, report

    def _careful(self, room: Room, state: RoomState) -> "FedJoin":
        """With the rate that a newcomer's labels allow."""
        if "newcomer" not in state:
            return self
        members = len(room.tasks) * len(room.split.train)  # a window is of one class in each task
        windows = members / len(self._possible(room, state))  # n
        rate = self.training.learning_rate * windows / (windows + self.shrinkage)
        return replace(self, training=replace(self.training, learning_rate=rate))

    def _restricted(self, room: Room, state: RoomState) -> Objective:
        """CE over the classes that the room holds, or may have where it also guesses."""
        guessed = cast(Floats | None, state.get("guessed"))
        classes = room.held if guessed is None else self._possible(room, state)
        mask = torch.full((room.outputs,), NEVER, device=room.device)
        mask[classes] = 0.0
        shares = None if guessed is None else torch.from_numpy(np.array(guessed)).to(room.device)
        unlabelled = room.split.unlabelled if self.unlabelled != "ignore" else _NOBODY
        steady = self.consistency if len(unlabelled) else 0.0
        augmented = Augmenter.of(room, self.training.augment) if steady else None
        recordings = torch.from_numpy(_recordings(room)) if steady else None

        labelled = Hybrid(offset=mask)
        if shares is None and not steady:
            return labelled

        def objective(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
            losses = dict(labelled(model, windows, labels))
            drawn = torch.randint(len(unlabelled), (self.training.batch_size,))
            others, _ = room.tensors(unlabelled[drawn.numpy()])
            said = model(others)[0] + mask
            if shares is not None:
                guess = _apart(room, said, shares[drawn.to(room.device)])
                losses["loss"] = losses["loss"] + self.unlabelled_weight * guess
                losses["loss_unlabelled"] = guess
            if augmented is not None and recordings is not None:
                # Windows of a recording are of one class, whichever: they may lend differences.
                changed = model(augmented(others, recordings[drawn].to(room.device)))[0] + mask
                answers = [torch.softmax(said[:, block], dim=1) for block in room.blocks]
                unsteady = _apart(room, changed, torch.cat(answers, dim=1).detach())
                losses["loss"] = losses["loss"] + steady * unsteady
                losses["loss_consistency"] = unsteady
            return losses

        return objective

    def _guesses(self, room: Room, state: RoomState) -> bool:
        """Whether to learn from windows without a label."""
        if self.unlabelled == "ignore" or not len(room.split.unlabelled):
            return False
        return self.unlabelled == "always" or len(self._possible(room, state)) > len(room.held)

    def _possible(self, room: Room, state: RoomState) -> list[int]:
        """The classes that the room may have: those it may answer, if anybody knows them.

        Where it does not say what it may answer, those that it holds or has windows to guess of.
        """
        known = np.zeros(room.outputs, bool)
        known[room.held] = True
        if "known" in state and (room.answerable is not None or len(room.split.unlabelled)):
            known |= cast(Mask, state["known"])
        allowed = np.ones(len(known), bool)
        if room.answerable is not None:
            first = room.blocks[0]  # of other tasks anything may be answered
            allowed[first] = np.isin(np.arange(first.stop), room.answerable)
        return np.flatnonzero(known & allowed).tolist()

    def _guess(self, room: Room, state: RoomState, round: Round) -> Floats:
        """Q [n, C] of the unlabelled windows, by the net as it is; of each task by itself."""
        # The classifier has no rows for classes that only rooms of other nets know.
        by = self._by_prototypes if "carried" in state else self._by_classifier
        scores = room.all_scores(by(room, state), "unlabelled")
        owner = _recordings(room) if self.together else np.arange(len(scores))
        recordings = int(owner.max()) + 1
        shares = torch.zeros((recordings, room.outputs), dtype=torch.float64)
        for block in room.blocks:
            possible = [c for c in self._possible(room, state) if block.start <= c < block.stop]
            given = torch.full(scores.shape, -torch.inf, dtype=torch.float64)
            given[:, possible] = torch.from_numpy(scores[:, possible].astype(np.float64))
            logarithms = torch.log_softmax(given, dim=1)[:, possible]  # (n, possible)
            means, _ = class_prototypes(logarithms, torch.from_numpy(owner), recordings)
            shares[:, possible] = torch.softmax(self.trust * means, dim=1)
        if self.guesses == "shuffled":
            order = (round.key / "room" / room.name / "shuffled").numpy().permutation(len(shares))
            shares = shares[order]
        return shares[owner].numpy().astype(np.float32)

    # ---- answers ------------------------------------------------------------------------------

    def _net(self, room: Room, state: RoomState) -> Model:
        """After the room's own step, if there was one."""
        return self.model(room, state, net="trained" if "trained" in state else "model")

    @torch.no_grad()
    def _by_classifier(self, room: Room, state: RoomState) -> Model:
        """With the others' temperature where the room has no windows to find its own."""
        model = self._net(room, state)
        if not len(room.split.validation) and "temperature" in state:
            for values in model.classifier.parameters():
                values.div_(cast(float, state["temperature"]))
        return model

    def anchors(self, room: Room, state: RoomState, model: Model) -> tuple[Tensor, Tensor]:
        """Own prototypes where the room holds the class, the mixture where it may have it."""
        own, present = super().anchors(room, state, model)
        if "mixture" not in state:
            return own, present
        known = torch.from_numpy(np.array(cast(Mask, state["known"]))).to(own.device)
        mixture = torch.zeros_like(own)
        mixture[known] = torch.from_numpy(np.array(cast(Floats, state["mixture"]))).to(own.device)
        answered = present | known
        if room.answerable is None:  # as in ``_within``
            may_be = torch.zeros_like(answered)
            may_be[self._possible(room, state)] = True
            answered &= may_be
        return torch.where(present[:, None], own, mixture), answered

    @torch.no_grad()
    def _by_prototypes(self, room: Room, state: RoomState) -> Model:
        """The encoder with rows p/‖p‖ for a classifier: cosines, as far as a linear one can.

        Embeddings are taken to be as long as the room's are on average.
        """
        model = self._net(room, state)
        prototypes, present = self.anchors(room, state, model)
        embeddings, _ = room.embeddings(model)
        length = max(SHORTEST, float(torch.linalg.vector_norm(embeddings, dim=1).mean()))
        model.classifier.weight.copy_(unit(prototypes) / (_COSINES * length))
        model.classifier.bias.copy_(torch.where(present, 0.0, NEVER))
        return model


def _carried_over(means: Mapping[str, tuple[Floats, Mask]], net: str) -> tuple[Floats, Mask]:
    """The classes [C, D] that rooms of other nets hold and none with this one, in its axes; which.

    The mean over those nets that have two classes or more in common with it.

    Args:
        means: net → the mean prototypes of its rooms [C, D], and which are real [C].
        net: whose axes.
    """
    ours, held = means[net]
    total, number = np.zeros_like(ours), np.zeros(len(held), np.float32)
    for other, (theirs, known) in means.items():
        shared, foreign = held & known, known & ~held
        if other == net or shared.sum() < FEWEST_SHARED or not foreign.any():
            continue
        total[foreign] += align_prototypes(theirs, ours, shared)[foreign]
        number[foreign] += 1
    return np.asarray(total / np.maximum(number, 1)[:, None], np.float32), number > 0


def _recordings(room: Room) -> npt.NDArray[np.int64]:
    """[n] for each unlabelled window the number of its recording; its own where nobody said."""
    if room.origins is None:
        return np.arange(len(room.split.unlabelled))
    _, owner = np.unique(room.origins.recordings[room.split.unlabelled], return_inverse=True)
    return np.asarray(owner, np.int64)


def _apart(room: Room, logits: Tensor, wanted: Tensor) -> Tensor:
    """How far answers [B, C] are from shares [B, C] of the classes: CE within each task, added."""
    first, *further = (F.cross_entropy(logits[:, block], wanted[:, block]) for block in room.blocks)
    return sum(further, start=first)


def _temperature(room: Room, model: Model) -> float:
    """The one that calibrates the room, by its validation windows; of several tasks all of them."""
    scores, truth = [], []
    for task, block in enumerate(room.blocks):
        own, told = room.scores(model, "validation", task=task)
        within = np.full((len(own), room.outputs), NEVER, own.dtype)
        within[:, block] = own
        scores.append(within)
        truth.append(told + block.start)
    return fit_temperature(np.concatenate(scores), np.concatenate(truth))


def _without(entries: Mapping[str, object], room: str) -> Tree:
    return cast(Tree, {name: value for name, value in entries.items() if name != room})


@dataclass(frozen=True)
class FedJoinAlone(FedJoin):
    """FedJoin alone: the same losses in every room for itself; nothing is exchanged."""

    name: ClassVar[str] = "fedjoin-alone"
    title: ClassVar[str] = "FedJoin alone"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"
    several_tasks: ClassVar[bool] = True
    averages_weights: ClassVar[bool] = False

    exchange: Literal[False] = False
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class FedJoinShuffled(FedJoin):
    """FedJoin, guesses shuffled: what unlabelled windows give if nobody knows what they are."""

    name: ClassVar[str] = "fedjoin-shuffled"
    title: ClassVar[str] = "FedJoin, guesses shuffled"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"
    several_tasks: ClassVar[bool] = True

    guesses: Literal["shuffled"] = "shuffled"
    """Fixed: what makes this variant."""

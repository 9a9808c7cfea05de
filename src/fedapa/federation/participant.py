"""The room's side of a round, the same for every engine: receive, score, train, reply, remember.

A participant keeps its state in atomic files, one a round, the last two, in a folder for each run.
A request that it has answered already (the server crashed, or the reply was lost) is answered from
the file instead of trained twice; so updates are idempotent, and a run that is killed at any moment
goes on bit-equal. A room that missed rounds goes on from the newest state that it has. A state
belongs to the room's card: with other windows, other classes or another net the room joins afresh,
unless it says that it only has more windows than before. A room whose training diverges, or whose
net answers NaN with what it received, says so, sends no upload and keeps its last good state.

Where the plan asks for privacy, what leaves is made here and nowhere else: a noised set in place of
the algorithm's upload, counted in the room's ledger before it can leave. The noise is part of the
answer that is kept, so a repeated request costs nothing. Losses of train windows stay in the room.
"""

import functools
import hashlib
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedapa.algorithms.algorithm import (
    Algorithm,
    Payload,
    Report,
    RoomState,
    Round,
    planned_rounds,
)
from fedapa.answers import (
    calibration_error,
    fit_temperature,
    log_loss,
    probabilities_of,
    reliability,
)
from fedapa.errors import DivergedError, PayloadError, PlanError, RunError
from fedapa.evaluation.metrics import (
    ONE_WINDOW,
    OVER_TIME,
    blind_scores,
    confusion,
    counts_people,
    median_scores,
    presence_scores,
    roc,
    score,
    score_over_time,
)
from fedapa.federation.attack import Attack, deceived, poisoned
from fedapa.federation.ledger import Ledger, Release
from fedapa.federation.messages import (
    LONGEST_NOTE,
    Reply,
    Request,
    decode_reply,
    encode_card,
    encode_reply,
)
from fedapa.files import Write, locked, write_bytes
from fedapa.learning.accounting import epsilon_of, noise_multiplier
from fedapa.learning.private import release
from fedapa.learning.prototypes import class_prototypes
from fedapa.models.model import Counter, Model, answering_only, embed_each, nearest_prototype
from fedapa.payload import (
    Array,
    Tree,
    Value,
    decode,
    digest,
    encode,
    encode_parts,
    leaves,
    name_of,
)
from fedapa.randomness import Key, Noise, SystemNoise
from fedapa.rooms.card import RoomCard
from fedapa.rooms.model_file import prototype_distances, save_model
from fedapa.rooms.room import Room
from fedapa.windows.labels import NO_CLASS
from fedapa.windows.split import Part

__all__ = ["Participant", "introduce", "kept_state"]

_REACHED = 0.99
"""Of a room's windows: so many lie within the reach of its prototypes."""
_NAME = re.compile(r"round-(\d+)\.state")
_AFRESH = (
    "its windows, its classes or its net are others than before in this run, so it joined afresh"
)


_KEPT = "; it keeps the state from before"
_REMEDY = "lower learning_rate or look for extreme windows with 'fedapa inspect'"
_LARGE = 1e3
"""No honest net holds such a number often, and one with smaller ones has finite answers."""
_PARTS: tuple[Part, ...] = ("train", "validation", "test", "continuous")
_LEDGER = "privacy.json"
"""What left the room with noise, beside the folders of its runs."""
_SLACK = 1e-6
"""Of a budget: what rounding may add to releases that were planned to spend it."""
_OF_WINDOWS = (
    "its privacy.json has releases that protect windows, and no ε of recordings follows from "
    "those; use unit = 'window', or a folder of its own for recordings that were never told of"
)
_JOINED = "it had no state of this run and joined now"


@dataclass(frozen=True, eq=False)
class Participant:
    """One room."""

    algorithm: Algorithm
    room: Room
    folder: Path
    """Where this room keeps its states, a folder for each run."""
    model_path: Path
    """Where the finished net goes."""
    known_as: str = ""
    """The digest of the card by which the server knows the room; by default that of its card."""
    earlier: frozenset[str] = frozenset()
    """Digests of the cards that the room had before its store grew: its states go on."""
    noise: Noise = field(default_factory=SystemNoise)
    """Where the noise of its sets comes from, if it adds any; tests give their own."""
    travels: bool = True
    """Whether uploads leave this machine; else their checksums are the quick ones."""
    attack: Attack | None = None
    """How this room lies, in experiments alone; mostly it does not."""
    write: Write = write_bytes
    """What writes its states; one that syncs several rooms' together must be done before their
    replies leave."""

    def exchange(self, round: Round, request: Request) -> Reply:
        """Answer one request of the server; refuses one that comes too late."""
        if self.algorithm.plans_ahead:
            planned_rounds(self.algorithm.title, round)
        if request.run == _LEDGER:
            raise PayloadError(f"run '{_LEDGER}': a room's ledger has that name; choose another")
        asked = f"{name_of(request.download or b'')}-{request.train}"
        same = {asked, _asked_before(request)}
        if self.algorithm.privacy.is_on:  # what was made with less noise, or none, is no answer
            asked = f"{asked}-{self.algorithm.privacy}"
            same = {asked}
        states = _States(
            self.folder / request.run, self.room, self.known_as, self.earlier, self.write
        )
        remembered = states.load(round.number)
        if remembered is not None and remembered["card"] != states.card:
            remembered = None  # answered before the store grew: it does not go with this card
        if remembered is not None and remembered["asked"] in same:
            memory = _Memory.of(remembered)
            frame = cast(Array, remembered["reply"]).tobytes()
            upload = cast(Array, remembered["upload"]).tobytes() if "upload" in remembered else None
            reply = decode_reply(frame, str(states.path(round.number)), upload=upload)
        else:
            before, earlier, note = self._memory_before(states, round)
            with np.errstate(over="ignore", invalid="ignore"):  # what diverges is told
                memory, reply, scored = self._work(before, round, request, note)
            # Seconds are not remembered: an answer from the file took none. The upload stands
            # beside the rest, since it is a frame already, and often as large as the state.
            answer = encode_reply(reply, timed=False, whole=False)
            entry: Tree = {"asked": asked, **memory.tree(), "reply": _as_array(answer)}
            if reply.upload is not None:
                entry = {**entry, "upload": _as_array(reply.upload)}
            if _alike(memory.served, scored):
                entry = {**entry, "settled": True}  # its reply has the scores of what is served
            states.save(round.number, entry, made_from=earlier)
        if request.keep_model:
            counter = self._deployed(memory.served, round)
            if isinstance(counter, Model):
                self._keep_model(counter)
            else:
                said = [reply.note, counter.unsaved]
                reply = replace(reply, note="; ".join(note for note in said if note))
        return reply

    def _work(
        self, memory: "_Memory", round: Round, request: Request, note: str
    ) -> tuple["_Memory", Reply, RoomState]:
        """What the room carries on, its reply, and the state that was scored."""
        before, state = memory, memory.state
        if request.download is not None:
            payload = decode(request.download, f"download of room '{self.room.name}'")
            state = self.algorithm.receive(self.room, state, payload, round)
        began = time.perf_counter()
        passes = _Passes(self.room)
        diverged = ""
        try:
            memory = self._with_best(replace(memory, state=state), round, passes)
            judged = self._judged_before(before, memory.served)
            if judged is None:
                judged = self._judged_now(memory.served, round, passes)
        except DivergedError as error:
            # What came spoils the net. It goes on with its own, as if nothing had come.
            memory, diverged = before, f"with what it received {self._apart(error)}"
            judged = self._judged_now(memory.served, round, passes)
        served, scored, busy = memory.served, time.perf_counter(), time.thread_time()
        upload: Payload | None = None
        report: Mapping[str, float] = {}
        withheld = ""
        if request.train and (stopped := self._stopped(memory, round)):
            note = "; ".join(said for said in (note, stopped) if said)
        elif request.train and not diverged:
            try:
                state, upload, report = self._trained(state, round)
            except DivergedError as error:
                diverged = self._apart(error)
            else:
                trained = memory.trained + 1 if self._stops_early else 0
                memory = replace(memory, state=state, trained=trained)
                if self.algorithm.privacy.is_on:
                    upload, report, withheld = self._released(state, upload, round)
        seconds = {
            "score": scored - began,
            "train": time.perf_counter() - scored,
            "train_processor": time.thread_time() - busy,  # whoever else used the machine
        }
        try:
            reply = Reply(
                round=round.number,
                scores=judged.scores,
                confusion=judged.confusion,
                reliability=judged.reliability,
                roc=judged.roc,
                upload=None
                if upload is None
                else encode(upload, request.precision, travels=self.travels),
                report=report,
                seconds=seconds,
                note=note,
                diverged=f"{diverged[: LONGEST_NOTE - len(_KEPT)]}{_KEPT}" if diverged else "",
                withheld=withheld,
            )
        except PayloadError as error:
            raise PayloadError(
                f"room '{self.room.name}', {self.algorithm.title}: {error}"
            ) from error
        return memory, reply, served

    def _trained(self, state: RoomState, round: Round) -> tuple[RoomState, Payload, Report]:
        """One round of training; refuses a state that nobody could go on from.

        A loss is of the net before a step, so the last step is judged by what it left. Weights so
        large may still answer with NaN: then all windows are asked.
        """
        taught = self.room if self.attack is None else deceived(self.attack, self.room)
        state, upload, report = self.algorithm.train(taught, state, round)
        if self.attack is not None:
            upload = poisoned(self.attack, upload, self.room, round)
        largest = max(_magnitude(state), _magnitude(upload))
        if largest == math.inf:
            raise DivergedError(f"its training ended with NaN or infinity; {_REMEDY}")
        if largest > _LARGE and not self.algorithm.fits_once:
            passes, counter = _Passes(self.room), self._deployed(state, round)
            for part in _PARTS:
                self._check_answers(passes.scores(counter, part)[0])
        return state, upload, report

    def _released(
        self, state: RoomState, upload: Payload, round: Round
    ) -> tuple[Payload | None, Report, str]:
        """A noised set in the place of an upload, what all so far cost, and why there is none.

        Nothing else of a round's training is told: losses are of the train windows, too.
        """
        privacy = self.algorithm.privacy
        budget, planned = privacy.epsilon, privacy.planned(round.total)
        if budget is None or planned is None:
            raise PlanError("privacy: set epsilon, and releases where a run has no last round")
        ledger = Ledger(self.folder / _LEDGER)
        noised: Payload | None = None
        withheld = ""
        # Two processes on one folder, for two servers perhaps, have one budget.
        with locked(ledger.path, wait=True):
            made = ledger.releases()
            if privacy.unit == "recording" and any(one.unit == "window" for one in made):
                return None, {}, _OF_WINDOWS
            multiplier = noise_multiplier(budget, privacy.delta, planned)
            if privacy.sends_in(round.number):
                with_it = [*made, Release(multiplier, privacy.unit)]
                if _spent(with_it, privacy.delta) > budget * (1 + _SLACK):
                    spent = _spent(made, privacy.delta)
                    withheld = (
                        f"its privacy budget is spent (ε {spent:.3g} of {budget:g} in {len(made)} "
                        "releases); it learns on and sends nothing more"
                    )
                else:
                    made = with_it
                    ledger.write(made)  # before anything can leave
                    noised = self._noised(state, upload, multiplier)
        cost = _spent(made, privacy.delta)
        report = {"epsilon": cost, "delta": privacy.delta, "releases": float(len(made))}
        return noised, report, withheld

    def _noised(self, state: RoomState, upload: Payload, multiplier: float) -> Payload:
        """The upload of the same form that may leave, of the net after the training."""
        privacy, room = self.algorithm.privacy, self.room
        if not set(upload) <= {"prototypes", "present", "counts"}:
            raise RunError(
                f"room '{room.name}': {self.algorithm.title} sends more than prototypes, which "
                "privacy does not cover; use another algorithm, or leave privacy out"
            )
        embeddings, labels = room.embeddings(self.algorithm.model(room, state))
        made = release(
            embeddings.cpu().numpy(),
            labels.cpu().numpy(),
            room.units(privacy.unit),
            classes=room.outputs,
            clip=privacy.clip,
            multiplier=multiplier,
            noise=self.noise,
            least=getattr(self.algorithm, "minimum_samples", 1),
        )
        noised: dict[str, Value] = {"prototypes": made.prototypes, "present": made.present}
        if "counts" in upload:  # the card says how many windows there are, whatever the noise
            most, total = len(room.split.train), max(1, int(made.counts.sum()))
            counts = np.maximum(1, made.counts * min(most, total) // total)
            noised["counts"] = np.where(made.present, counts, 0)
        return noised

    def _check_answers(self, scores: npt.NDArray[np.floating]) -> None:
        if np.isnan(scores).any() or (scores == np.inf).any():
            raise DivergedError(
                f"room '{self.room.name}': its net answers with NaN or infinity; {_REMEDY}"
            )

    def _apart(self, error: DivergedError) -> str:
        """What an error says, where it is known of which room."""
        return str(error).removeprefix(f"room '{self.room.name}': ")

    def _judged_before(self, before: "_Memory", served: RoomState) -> "_Judged | None":
        """What the last reply said of the same state, where it did."""
        if before.settled is None or not self.algorithm.deploys_by_state:
            return None
        if not _alike(before.served, served):
            return None
        last = decode_reply(before.settled, "its last reply")
        return _Judged(last.confusion, last.reliability, last.roc, last.scores)

    def _judged_now(self, served: RoomState, round: Round, passes: "_Passes") -> "_Judged":
        """How good the room is, and its alternatives by "name.metric"."""
        judged = self._judge(self._deployed(served, round), passes)
        scores = dict(judged.scores)
        for name, counter in self.algorithm.alternatives(self.room, served, round).items():
            further = self._judge(self._limited(counter), passes).scores
            scores |= {f"{name}.{metric}": value for metric, value in further.items()}
        return replace(judged, scores=scores)

    def _with_best(self, memory: "_Memory", round: Round, passes: "_Passes") -> "_Memory":
        """With this state as the best one, where it is and the plan asks for early stopping.

        A net that was never trained is no candidate.
        """
        if not self._stops_early or not memory.trained:
            return memory
        counter = self._deployed(memory.state, round)
        loss = 0.0
        for task in range(len(self.room.tasks)):
            scores, truth = passes.scores(counter, "validation", task=task)
            self._check_answers(scores)
            if len(truth):
                loss += log_loss(probabilities_of(scores, fit_temperature(scores, truth)), truth)
        if memory.best and loss >= cast(float, memory.best["loss"]):
            return memory
        best: Tree = {
            "state": memory.state,
            "loss": loss,
            "round": round.number,
            "trained": memory.trained,
        }
        return replace(memory, best=best)

    def _stopped(self, memory: "_Memory", round: Round) -> str:
        """Why the room trains no more, as a sentence; nothing where it goes on."""
        if not memory.best:
            return ""
        vain = memory.trained - cast(int, memory.best["trained"])
        if vain < self.algorithm.training.patience:
            return ""
        found = cast(int, memory.best["round"]) - 1
        return (
            f"it trains no more: its loss on validation windows was lowest after round {found}; it "
            "counts with the net of that round"
        )

    @property
    def _stops_early(self) -> bool:
        return self.algorithm.training.patience > 0 and not self.algorithm.fits_once

    def _deployed(self, state: RoomState, round: Round) -> Counter:
        """What is scored and served, with the answer that the room wants."""
        return self._limited(self._answering(state, round))

    def _limited(self, counter: Counter) -> Counter:
        """What answers with the classes alone that the room may have, where it says which."""
        allowed = self.room.answerable
        # What is no net answers with classes of the room's own train windows anyway.
        if allowed is None or not isinstance(counter, Model):
            return counter
        further = range(len(self.room.classes), self.room.outputs)  # of other tasks any of them
        return answering_only(counter, (*allowed, *further))

    def _answering(self, state: RoomState, round: Round) -> Counter:
        counter = self.algorithm.deploy(self.room, state, round)
        if self.room.answer != "nearest":
            return counter
        if not isinstance(counter, Model):
            raise PlanError(
                f"{self.algorithm.title} has no embedding, so no prototype is nearest; use another "
                "answer"
            )
        return nearest_prototype(counter, *self.algorithm.anchors(self.room, state, counter))

    def _judge(self, counter: Counter, passes: "_Passes") -> "_Judged":
        """How good it is on the room's test windows; without any there are no scores."""
        classes = self.room.classes
        scores, truth = passes.scores(counter, "test")
        self._check_answers(scores)
        if len(truth):
            self._check_answers(passes.scores(counter, "validation")[0])
        matrix = confusion(truth, scores.argmax(axis=1), len(classes))
        temperature = passes.temperature(counter) if len(truth) else 1.0
        probabilities = probabilities_of(scores, temperature)
        table = reliability(probabilities, truth)
        points = roc(probabilities, truth, classes)
        if not len(truth):
            return _Judged(matrix, table, points, {})
        metrics = {**score(matrix, classes), "ece": calibration_error(table)}
        metrics |= presence_scores(probabilities, truth, classes)
        if counts_people(classes):
            # Its own labels, not those of others whose windows it may have (rooms/pool.py).
            held = np.unique(self.room.labels[self.room.split.train]).tolist()
            metrics |= median_scores(probabilities, truth, classes, held)
            part, blocks = _blocks(self.room)
            if blocks and part != "test":
                scores, truth = passes.scores(counter, part)
                self._check_answers(scores)
                probabilities = probabilities_of(scores, temperature)
            metrics |= score_over_time(probabilities, truth, blocks, classes)
        return _Judged(matrix, table, points, {**metrics, **self._further_scores(counter, passes)})

    def _further_scores(self, counter: Counter, passes: "_Passes") -> dict[str, float]:
        """How good it is in the tasks beside the first, by "task.metric"."""
        made: dict[str, float] = {}
        for number, task in enumerate(self.room.further, start=1):
            scores, truth = passes.scores(counter, "test", task=number)
            if len(truth):
                temperature = passes.temperature(counter, task=number)
                table = reliability(probabilities_of(scores, temperature), truth)
                matrix = confusion(truth, scores.argmax(axis=1), len(task.classes))
                reached = {**score(matrix, task.classes), "ece": calibration_error(table)}
                made |= {f"{task.name}.{metric}": value for metric, value in reached.items()}
        return made

    def _keep_model(self, model: Model) -> None:
        passes = _Passes(self.room)
        embeddings, labels = (part.cpu().numpy() for part in self.room.embeddings(model))
        prototypes, members = class_prototypes(embeddings, labels, self.room.outputs)
        first, *further = (passes.temperature(model, task=n) for n in range(len(self.room.tasks)))
        if len(self.room.split.validation):
            embeddings = passes.embeddings(model, "validation")
        own = slice(len(self.room.classes))  # the first task's
        present = np.asarray(members, np.int64)[own] > 0
        distances = prototype_distances(embeddings, prototypes[own], present)
        save_model(
            self.model_path,
            self.room,
            model,
            prototypes,
            members,
            temperature=first,
            further_temperatures=further,
            reach=float(np.quantile(distances, _REACHED)),
        )

    def _memory_before(self, states: "_States", round: Round) -> tuple["_Memory", int | None, str]:
        """What the room had after its newest earlier round, and which; one without any joins.

        The last is what to say of it: a room joins a second time if its card is another.
        """
        numbers = states.numbers
        for number in sorted(numbers, reverse=True):
            if number == round.number or (remembered := states.load(number)) is None:
                continue
            if number > round.number:
                raise RunError(
                    f"{states.path(number)}: room '{self.room.name}' has answered round {number} "
                    f"and is asked for round {round.number}: the request comes too late, or the "
                    "server went on from an old checkpoint; start the run afresh"
                )
            return _Memory.of(remembered), number, ""
        # Not the round's stream: a room begins alike whenever it comes.
        key = Key(round.key.seed) / "room" / self.room.name / "join"
        note = _JOINED if round.number > 1 else ""
        if any(states.load(number) is None for number in numbers):
            note = _AFRESH
        return _Memory(self.algorithm.join(self.room, key)), None, note


@dataclass(frozen=True, eq=False)
class _Judged:
    """What test windows say of a counter."""

    confusion: Array
    """[C, C]."""
    reliability: Array
    """[bins, 3]."""
    roc: Array
    """[thresholds, 2]; no rows where presence means nothing."""
    scores: Mapping[str, float]


class _Passes:
    """Scores of counters on a room's windows, for as long as one exchange: no pass is made twice.

    Nets that differ in their classifier alone, such as one that answers with the nearest
    prototype, share the pass through their encoder.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._scores: dict[tuple[int, Part], npt.NDArray[np.floating]] = {}
        self._embeddings: list[tuple[Model, Part, list[Tensor]]] = []
        self._kept: list[Counter] = []  # as long as one lives, no other has its id

    def scores(
        self, counter: Counter, part: Part, *, task: int = 0
    ) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.int64]]:
        """As ``Room.scores``."""
        place = (id(counter), part)
        if place not in self._scores:
            self._kept.append(counter)
            self._scores[place] = self._all_scores(counter, part)
        return self._room.in_task(self._scores[place], part, task=task)

    def temperature(self, counter: Counter, *, task: int = 0) -> float:
        """What makes its probabilities true, by the room's validation windows."""
        return fit_temperature(*self.scores(counter, "validation", task=task))

    def embeddings(self, model: Model, part: Part) -> npt.NDArray[np.floating]:
        """Of the windows of a part, [n, D]."""
        return torch.cat(self._embedded(model, part)).cpu().numpy()

    @torch.no_grad()
    def _all_scores(self, counter: Counter, part: Part) -> npt.NDArray[np.floating]:
        if not isinstance(counter, Model) or type(counter).scores is not Model.scores:
            return self._room.all_scores(counter, part)
        made = [counter.classifier(batch).cpu().numpy() for batch in self._embedded(counter, part)]
        return np.concatenate([np.empty((0, self._room.outputs), np.float32), *made])

    @torch.no_grad()
    def _embedded(self, model: Model, part: Part) -> list[Tensor]:
        """Embeddings of a part in batches, by this net or one with the same encoder."""
        for other, done, batches in self._embeddings:
            if done == part and _same_encoder(model, other):
                return batches
        model.eval()
        made = embed_each(model, (windows for windows, _ in self._room.inspect(part)))
        self._embeddings.append((model, part, made))
        return made


def _spent(releases: Sequence[Release], delta: float) -> float:
    """Privacy loss ε of all of them together."""
    return epsilon_of([one.multiplier for one in releases], delta)


def _asked_before(request: Request) -> str:
    """What earlier versions noted of a request in a state."""
    return digest(request.download or b"") + f"-{request.train}"


def _as_array(frame: bytes) -> Array:
    return np.frombuffer(frame, np.uint8)


def _magnitude(tree: Tree) -> float:
    """The largest magnitude of any number in a tree; NaN counts as infinite."""
    largest = 0.0
    for _, value in leaves(tree):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
            numbers = cast(npt.NDArray[np.float32], value)
            most = max(float(numbers.max()), -float(numbers.min()))  # NaN wins, without a copy
        else:
            most = abs(value) if isinstance(value, float) else 0.0
        largest = math.inf if math.isnan(most) else max(largest, most)
    return largest


def _same_encoder(one: Model, other: Model) -> bool:
    """Whether two nets embed alike, by every value of their encoders."""
    if one is other:
        return True
    if type(one) is not type(other) or one.normalise_embedding != other.normalise_embedding:
        return False
    mine, its = one.encoder.state_dict(), other.encoder.state_dict()
    return mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)


def _alike(one: Tree, other: Tree) -> bool:
    """Whether two states are equal in every value."""
    if one is other:
        return True
    if one.keys() != other.keys():
        return False
    for name, value in one.items():
        its = other[name]
        if isinstance(value, Mapping) and isinstance(its, Mapping):
            same = _alike(value, its)
        elif isinstance(value, np.ndarray) and isinstance(its, np.ndarray):
            same = value.dtype == its.dtype and np.array_equal(value, its)
        else:
            same = type(value) is type(its) and value == its
        if not same:
            return False
    return True


@dataclass(frozen=True, eq=False)
class _Memory:
    """What a room carries from round to round."""

    state: RoomState
    """The algorithm's own."""
    best: Tree = field(default_factory=dict)
    """Where the plan stops early: the state with the lowest loss on validation windows, that loss,
    the exchange that found it and the rounds trained until then; else nothing."""
    trained: int = 0
    """Where the plan stops early: in how many rounds the room has trained."""
    settled: bytes | None = None
    """The room's last reply, where its scores are those of what is served now."""

    @classmethod
    def of(cls, remembered: Mapping[str, Value]) -> "_Memory":
        """From what a file holds."""
        return cls(
            cast(Tree, remembered["state"]),
            cast(Tree, remembered.get("best", {})),
            cast(int, remembered.get("trained", 0)),
            cast(Array, remembered["reply"]).tobytes() if "settled" in remembered else None,
        )

    def tree(self) -> Tree:
        """For a file."""
        early: Tree = {"best": self.best, "trained": self.trained} if self.trained else {}
        return {"state": self.state, **early}

    @property
    def served(self) -> RoomState:
        """What is scored and deployed."""
        return cast(RoomState, self.best["state"]) if self.best else self.state


@dataclass(frozen=True, eq=False)
class _States:
    """The states of a room in one run, a file each; only those of its present card count."""

    folder: Path
    room: Room
    known_as: str = ""
    earlier: frozenset[str] = frozenset()
    write: Write = write_bytes

    @functools.cached_property
    def card(self) -> str:
        return self.known_as or digest(encode_card(introduce(self.room)))

    def path(self, number: int) -> Path:
        return _state_path(self.folder, number)

    @functools.cached_property
    def numbers(self) -> list[int]:
        """The rounds whose states were here at the first look, whatever the card."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 (paths cost more than the look)
        except FileNotFoundError:
            return []
        return [int(match[1]) for name in names if (match := _NAME.fullmatch(name))]

    def load(self, number: int) -> Mapping[str, Value] | None:
        """What was answered in a round; none if nothing was, or by the room with another card."""
        path = self.path(number)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            remembered = decode(content, str(path))
            if not {"card", "asked", "state", "reply"} <= set(remembered):
                raise PayloadError(f"{path}: is no state of a room")
        except PayloadError as error:
            raise RunError(
                f"{error}; remove the file: room '{self.room.name}' then goes on from its older "
                "state, or joins afresh where it has none"
            ) from error
        return remembered if remembered["card"] in {self.card, *self.earlier} else None

    def save(self, number: int, entry: Tree, *, made_from: int | None) -> None:
        """Two states are enough: this round's, and the one that it was made from.

        The one before those is written over: to find room on the disk for another takes longer.
        It is needed no more, since whoever asks has a checkpoint of the round in between.
        """
        spare = sorted(set(self.numbers) - {number, made_from})
        over = self.path(spare[0]) if spare else None
        frame = encode_parts({"card": self.card, **entry}, travels=False)
        self.write(self.path(number), *frame, over=over)
        for other in spare:
            self.path(other).unlink(missing_ok=True)


def kept_state(folder: Path, round: int) -> RoomState:
    """What a room carried on from a round: a file of one of the last two in its folder of a run."""
    path = _state_path(folder, round)
    try:
        return cast(RoomState, decode(path.read_bytes(), str(path))["state"])
    except (OSError, KeyError) as error:
        raise RunError(f"{path}: is no state of a room that can be read") from error


def _state_path(folder: Path, round: int) -> Path:
    return folder / f"round-{round:06d}.state"


def introduce(room: Room) -> RoomCard:
    """The room's card with what only it can tell: a fingerprint of its data, and blind scores."""
    train, test = room.labels[room.split.train], room.labels[room.split.test]
    blind: Mapping[str, Mapping[str, float]] = {}
    if len(test):
        part, blocks = _blocks(room)
        truth = room.labels[getattr(room.split, part)]
        over_time = {time: truth[places[:, 0]] for time, places in blocks.items()}
        blind = blind_scores(train, test, room.classes, over_time=over_time)
    for task in room.further:
        seen, asked = (task.labels[getattr(room.split, part)] for part in ("train", "test"))
        seen, asked = seen[seen != NO_CLASS], asked[asked != NO_CLASS]
        if len(seen) and len(asked):
            told = blind_scores(seen, asked, task.classes)
            blind = {
                name: {**blind[name], **{f"{task.name}.{m}": value for m, value in mine.items()}}
                for name, mine in told.items()
            }
    return replace(room.card, fingerprint=_fingerprint(room), blind=blind)


def _blocks(room: Room) -> tuple[Part, dict[str, npt.NDArray[np.int64]]]:
    """What a room counts over time: a part, and by time the blocks [blocks, windows] in it.

    Continuous recordings where there are any, else test recordings. After 10 s only windows that
    are complete by then are added, so with windows of 4 s two of them. A time that no recording
    reaches is not there. One window is each of those that the shortest time is made of.
    """
    part: Part = "continuous" if len(room.split.continuous) else "test"
    seconds = room.recipe.window_seconds
    if room.origins is None or seconds is None or not counts_people(room.classes):
        return part, {}
    index = getattr(room.split, part)
    found = {
        time: room.origins.blocks(index, int(after / seconds + 1e-9))
        for time, after in OVER_TIME.items()
        if time != ONE_WINDOW
    }
    blocks = {time: places for time, places in found.items() if len(places)}
    if not blocks:
        return part, {}
    single = next(iter(blocks.values())).reshape(-1, 1)  # (windows, 1)
    return part, {ONE_WINDOW: single, **blocks}


def _fingerprint(room: Room) -> str:
    """A short name for a room's data: every value of every window, labels, split, normaliser."""
    split, normaliser = room.split, room.normaliser
    # Where nothing is continuous or without a label, such a part has no bytes.
    known = (room.labels, split.train, split.validation, split.test)
    parts = (*known, split.continuous, split.unlabelled)
    content = hashlib.blake2b(room.digest.encode(), digest_size=8)
    further = [task.labels for task in room.further]
    for part in (*parts, normaliser.mean, normaliser.deviation, *further):
        content.update(np.ascontiguousarray(part).tobytes())
    return content.hexdigest()

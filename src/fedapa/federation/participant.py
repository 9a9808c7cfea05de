"""The room's side of a round, the same for every engine: receive, score, train, reply, remember.

A participant keeps its state in atomic files, one a round, the last two. A request that it has
answered already (the server crashed, or the reply was lost) is answered from the file instead of
trained twice; so updates are idempotent, and a run that is killed at any moment goes on bit-equal.
A room that missed rounds goes on from the newest state that it has.
"""

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from fedapa.algorithms.algorithm import (
    Algorithm,
    Payload,
    RoomState,
    Round,
    planned_rounds,
)
from fedapa.errors import RunError
from fedapa.evaluation.metrics import blind_scores, confusion, score
from fedapa.federation.messages import Reply, Request, decode_reply, encode_reply
from fedapa.files import write_bytes
from fedapa.learning.prototypes import class_prototypes
from fedapa.models.model import Model
from fedapa.payload import Array, Tree, Value, decode, digest, encode
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.model_file import save_model
from fedapa.rooms.room import Room

__all__ = ["Participant", "introduce"]

_NAME = re.compile(r"round-(\d+)\.state")
_CHUNK = 64  # windows hashed at a time


@dataclass(frozen=True, eq=False)
class Participant:
    """One room."""

    algorithm: Algorithm
    room: Room
    folder: Path
    """Where this room keeps its states."""
    model_path: Path
    """Where the finished net goes."""

    def exchange(self, round: Round, request: Request) -> Reply:
        """Answer one request of the server; refuses one that comes too late."""
        if self.algorithm.plans_ahead:
            planned_rounds(self.algorithm.title, round)
        asked = digest(request.download or b"") + f"-{request.train}"
        remembered = self._load(round.number, request.run)
        if remembered is not None and remembered["asked"] == asked:
            state = cast(Tree, remembered["state"])
            reply = decode_reply(cast(Array, remembered["reply"]).tobytes(), str(self.folder))
        else:
            before, file = self._state_before(round, request.run)
            state, reply = self._work(before, round, request)
            # Seconds are not remembered: an answer from the file took none.
            answer = np.frombuffer(encode_reply(replace(reply, seconds={})), np.uint8)
            entry: Tree = {"run": request.run, "asked": asked, "state": state, "reply": answer}
            write_bytes(self._path(round.number), encode(entry))
            self._keep(file, self._path(round.number))
        if request.keep_model:
            self._keep_model(self.algorithm.deploy(self.room, state, round))
        return reply

    def _work(self, state: RoomState, round: Round, request: Request) -> tuple[RoomState, Reply]:
        if request.download is not None:
            payload = decode(request.download, f"download of room '{self.room.name}'")
            state = self.algorithm.receive(self.room, state, payload, round)
        began = time.perf_counter()
        matrix = self._confusion(self.algorithm.deploy(self.room, state, round))
        scores = score(matrix, self.room.classes)
        for name, model in self.algorithm.alternatives(self.room, state, round).items():
            further = score(self._confusion(model), self.room.classes)
            scores |= {f"{name}.{metric}": value for metric, value in further.items()}
        scored = time.perf_counter()
        upload: Payload | None = None
        report: Mapping[str, float] = {}
        if request.train:
            state, upload, report = self.algorithm.train(self.room, state, round)
        seconds = {"score": scored - began, "train": time.perf_counter() - scored}
        return state, Reply(
            round=round.number,
            scores=scores,
            confusion=matrix,
            upload=None if upload is None else encode(upload, request.precision),
            report=report,
            seconds=seconds,
        )

    def _keep_model(self, model: Model) -> None:
        embeddings, labels = (part.cpu().numpy() for part in self.room.embeddings(model))
        prototypes, members = class_prototypes(embeddings, labels, len(self.room.classes))
        save_model(self.model_path, self.room, model, prototypes, members)

    def _confusion(self, model: Model) -> npt.NDArray[np.int64]:
        guess, truth = self.room.predict(model)
        return confusion(truth, guess, len(self.room.classes))

    def _state_before(self, round: Round, run: str) -> tuple[RoomState, Path | None]:
        """The newest state of an earlier round and its file; a room without any joins."""
        for number in sorted(self._numbers(), reverse=True):
            if number == round.number or (remembered := self._load(number, run)) is None:
                continue
            if number > round.number:
                raise RunError(
                    f"{self._path(number)}: room '{self.room.name}' has answered round {number} "
                    f"and is asked for round {round.number}: the request comes too late, or the "
                    "server went on from an old checkpoint; start the run afresh"
                )
            return cast(Tree, remembered["state"]), self._path(number)
        # Not the round's stream: a room begins alike whenever it comes.
        key = Key(round.key.seed) / "room" / self.room.name / "join"
        return self.algorithm.join(self.room, key), None

    def _path(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.state"

    def _numbers(self) -> list[int]:
        """The rounds whose states are here, of this run or of another."""
        matches = (_NAME.fullmatch(path.name) for path in self.folder.glob("round-*.state"))
        return [int(match[1]) for match in matches if match]

    def _load(self, number: int, run: str) -> Mapping[str, Value] | None:
        """What was answered in a round of this run; files of another run are not ours."""
        path = self._path(number)
        if not path.is_file():
            return None
        remembered = decode(path.read_bytes(), str(path))
        return remembered if remembered["run"] == run else None

    def _keep(self, *paths: Path | None) -> None:
        """Two states are enough: this round's, and the one that it was made from."""
        for number in self._numbers():
            if self._path(number) not in paths:
                self._path(number).unlink()


def introduce(room: Room) -> RoomCard:
    """The room's card with what only it can tell: a fingerprint of its data, and blind scores."""
    train, test = room.labels[room.split.train], room.labels[room.split.test]
    blind = blind_scores(train, test, room.classes) if len(test) else {}
    return replace(room.card, fingerprint=_fingerprint(room), blind=blind)


def _fingerprint(room: Room) -> str:
    """A short name for a room's data: every value of every window, labels, split, normaliser."""
    split, normaliser = room.split, room.normaliser
    parts = (room.labels, split.train, split.validation, split.test)
    content = hashlib.blake2b((room.digest or _digest(room)).encode(), digest_size=8)
    for part in (*parts, normaliser.mean, normaliser.deviation):
        content.update(np.ascontiguousarray(part).tobytes())
    return content.hexdigest()


def _digest(room: Room) -> str:
    """Of windows that did not come from a store, which would have told its own."""
    content = hashlib.blake2b(repr(room.windows.shape).encode(), digest_size=16)
    for first in range(0, len(room.windows), _CHUNK):
        content.update(np.ascontiguousarray(room.windows[first : first + _CHUNK], "<f4").tobytes())
    return content.hexdigest()

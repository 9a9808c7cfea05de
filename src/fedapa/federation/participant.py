"""The room's side of a round, the same for every engine: receive, score, train, reply, remember.

A participant keeps its state in atomic files, one a round, the last two. A request that it has
answered already (the server crashed, or the reply was lost) is answered from the file instead of
trained twice; so updates are idempotent, and a run that is killed at any moment goes on bit-equal.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from fedapa.algorithms.algorithm import Algorithm, Payload, RoomState, Round
from fedapa.errors import PayloadError
from fedapa.evaluation.metrics import confusion, score
from fedapa.federation.messages import Reply, Request, decode_reply, encode_reply
from fedapa.files import write_bytes
from fedapa.models.model import Model
from fedapa.payload import Array, Tree, Value, decode, digest, encode
from fedapa.rooms.model_file import save_model
from fedapa.rooms.room import Room

__all__ = ["Participant"]


@dataclass(frozen=True, eq=False)
class Participant:
    """One room in one run."""

    algorithm: Algorithm
    room: Room
    run: str
    """Names the run; files of another run are not ours to answer from."""
    folder: Path
    """Where this room keeps its states."""
    model_path: Path
    """Where the finished net goes."""

    def exchange(self, round: Round, request: Request) -> Reply:
        """Answer one request of the server."""
        asked = digest(request.download or b"") + f"-{request.train}"
        remembered = self._load(round.number)
        if remembered is not None and remembered["asked"] == asked:
            state = cast(Tree, remembered["state"])
            reply = decode_reply(cast(Array, remembered["reply"]).tobytes(), str(self.folder))
        else:
            state, reply = self._work(round, request)
            # Seconds are not remembered: an answer from the file took none.
            answer = np.frombuffer(encode_reply(replace(reply, seconds={})), np.uint8)
            entry: Tree = {"run": self.run, "asked": asked, "state": state, "reply": answer}
            write_bytes(self._path(round.number), encode(entry))
            self._forget(before=round.number - 1)
        if request.keep_model:
            save_model(self.model_path, self.room, self.algorithm.deploy(self.room, state, round))
        return reply

    def _work(self, round: Round, request: Request) -> tuple[RoomState, Reply]:
        state = self._state_before(round)
        if request.download is not None:
            payload = decode(request.download, f"download of room '{self.room.name}'")
            state = self.algorithm.receive(self.room, state, payload, round)
        began = time.perf_counter()
        matrix = self._confusion(self.algorithm.deploy(self.room, state, round))
        scores = score(matrix, self.room.classes)
        for name, model in self.algorithm.also(self.room, state, round).items():
            second = score(self._confusion(model), self.room.classes)
            scores |= {f"{name}.{metric}": value for metric, value in second.items()}
        scored = time.perf_counter()
        upload: Payload | None = None
        report: Mapping[str, float] = {}
        if request.train:
            state, upload, report = self.algorithm.train(self.room, state, round)
        seconds = {"score": scored - began, "train": time.perf_counter() - scored}
        return state, Reply(
            scores=scores,
            confusion=matrix,
            upload=None if upload is None else encode(upload, request.precision),
            report=report,
            seconds=seconds,
        )

    def _confusion(self, model: Model) -> npt.NDArray[np.int64]:
        guess, truth = self.room.predict(model)
        return confusion(truth, guess, len(self.room.classes))

    def _state_before(self, round: Round) -> RoomState:
        if round.number == 1:
            return self.algorithm.join(self.room, round.key / "room" / self.room.name / "join")
        remembered = self._load(round.number - 1)
        if remembered is None:
            raise PayloadError(
                f"{self._path(round.number - 1)}: the room's state of the round before is missing; "
                "start the run afresh"
            )
        return cast(Tree, remembered["state"])

    def _path(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.state"

    def _load(self, number: int) -> Mapping[str, Value] | None:
        path = self._path(number)
        if not path.is_file():
            return None
        found = decode(path.read_bytes(), str(path))
        return found if found["run"] == self.run else None

    def _forget(self, before: int) -> None:
        for path in self.folder.glob("round-*.state"):
            if path < self._path(before):
                path.unlink()

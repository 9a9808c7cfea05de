"""The only round loop.

One exchange per round carries everything: the download, the score of the state after the previous
merge, and the upload. So the record of round t is complete when exchange t + 1 has brought its
score, and after the last round one exchange more only scores.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from fedapa.algorithms.algorithm import Algorithm, Roster, Round
from fedapa.evaluation.record import over_rooms
from fedapa.federation import cohort
from fedapa.federation.messages import Reply, Request
from fedapa.federation.plan import Plan
from fedapa.payload import Tree, decode, encode
from fedapa.randomness import Key

__all__ = ["Engine", "Step", "begin", "reopened", "run"]

_MATRIX_ROOMS = 64
"""Up to so many rooms the weights between them are recorded every round."""


class Engine(Protocol):
    """A way to reach the rooms: who is there, and one exchange with some of them."""

    def roster(self) -> Roster:
        """The cards of all rooms, sorted by name."""

    def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
        """Send each room its request and collect the replies."""


@dataclass(frozen=True, eq=False)
class Step:
    """What one exchange left behind."""

    exchange: int
    """Its number: exchange t trains round t and scores round t − 1."""
    state: Tree
    """To be saved; ``run`` goes on from it."""
    record: Mapping[str, Any] | None
    """The complete record of the previous round; none after the first exchange."""
    confusion: Mapping[str, Any]
    """room → [C, C] of the score in this exchange."""
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def begin(algorithm: Algorithm, engine: Engine, plan: Plan) -> Tree:
    """The state before the first round; refuses rosters that the algorithm cannot serve."""
    roster = engine.roster()
    cohort.check_roster(roster)
    server = algorithm.open(roster, Key(plan.seed) / "server")
    cohort.check_selection(plan.selection, plan.participation, algorithm=algorithm, server=server)
    return {"round": 0, "server": server, "trained": {}, "closed": False}


def reopened(state: Tree) -> Tree:
    """The state before the exchange that closed a run: the same exchange, done again, trains."""
    return {**state, "round": cast(int, state["round"]) - 1, "closed": False}


def run(algorithm: Algorithm, engine: Engine, plan: Plan, state: Tree) -> Iterator[Step]:
    """Exchange after exchange from ``state`` on; yields after each, so that the caller can save."""
    roster = engine.roster()
    rooms = [card.name for card in roster]
    for number in range(cast(int, state["round"]) + 1, plan.rounds + 2):
        last = number > plan.rounds
        round = Round(number, plan.rounds, Key(plan.seed) / "round" / number)
        server = cast(Tree, state["server"])
        present = tuple(rooms)
        if not last:
            present = cohort.choose(
                plan.selection,
                plan.participation,
                algorithm=algorithm,
                server=server,
                roster=roster,
                key=round.key,
            )
        requests = {
            room: Request(
                download=encode(algorithm.download(server, room, round), plan.precision)
                if room in present
                else None,
                train=room in present and not last,
                keep_model=last,
                precision=plan.precision,
            )
            for room in rooms
        }
        replies = engine.exchange(round, requests)
        record = None
        if number > 1:
            record = _record(number - 1, cast(Tree, state["trained"]), requests, replies)
        if not last:
            uploads = {
                room: decode(upload, f"upload of room '{room}'")
                for room in present
                if (upload := replies[room].upload) is not None
            }
            server = algorithm.merge(server, uploads, round)
        # After the last exchange the half stays: a longer run starts from it (``reopened``).
        trained = state["trained"] if last else _trained(algorithm, server, requests, replies)
        state = {"round": number, "server": server, "trained": trained, "closed": last}
        yield Step(
            exchange=number,
            state=state,
            record=record,
            confusion={room: replies[room].confusion for room in rooms},
            seconds={room: replies[room].seconds for room in rooms},
        )


def _trained(
    algorithm: Algorithm,
    server: Tree,
    requests: Mapping[str, Request],
    replies: Mapping[str, Reply],
) -> Tree:
    """The half of a record that is known when a round's uploads are merged."""
    explained = algorithm.explain(server)
    rooms: dict[str, dict[str, Any]] = {}
    for index, room in enumerate(sorted(replies)):
        reply, request = replies[room], requests[room]
        rooms[room] = {
            **reply.report,
            "participated": request.train,
            "bytes_up": len(reply.upload or b""),
        }
        for name, value in explained.items():
            if isinstance(value, np.ndarray) and value.shape == (len(replies),):
                rooms[room][name] = value[index].item()
    between = {
        name: value
        for name, value in explained.items()
        if not isinstance(value, np.ndarray) or (value.ndim == 2 and len(value) <= _MATRIX_ROOMS)
    }
    return {"rooms": rooms, "server": between}


def _record(
    number: int,
    trained: Tree,
    requests: Mapping[str, Request],
    replies: Mapping[str, Reply],
) -> dict[str, Any]:
    """The line of a round: what it did, and what the next exchange brought.

    A round's download is the one that answers its uploads: it travels in the next exchange.
    """
    halves = cast(Mapping[str, Mapping[str, Any]], trained["rooms"])
    tested = {room: int(reply.confusion.sum()) for room, reply in replies.items()}
    between = cast(Mapping[str, Any], trained["server"])
    return {
        "round": number,
        "rooms": {
            room: {
                **halves[room],
                "bytes_down": len(requests[room].download or b""),
                **replies[room].scores,
            }
            for room in sorted(replies)
        },
        **over_rooms({room: reply.scores for room, reply in replies.items()}, tested),
        "server": {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in between.items()
        },
    }

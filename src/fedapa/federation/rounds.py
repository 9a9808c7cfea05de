"""The only round loop.

One exchange per round carries everything: the download, the score of the state after the previous
merge, and the upload. So the record of round t is complete when exchange t + 1 has brought its
score, and after the last round one exchange more only scores.

Rooms may be absent. Before each exchange the roster is asked for: rooms that are new to it are
admitted, rooms that left it are dismissed, and one that does not fit is refused by name. A reply
that does not come is normal: the server goes on with those that came, and the record says who was
missing. So it does when a reply cannot be: another round's, not the room's card, or an upload that
is not to be believed (acceptance.py). Nothing of such a reply is used, the record names the room
and the reason; but what its noised sets have cost is told all the same, since they left. A room
whose training diverged, or whose privacy budget is spent, says so and sends no upload; the record
tells that, too. What people should know beyond that is a note: a sentence that the state keeps.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np

from fedapa.algorithms.algorithm import (
    Algorithm,
    Payload,
    Roster,
    Round,
    planned_rounds,
)
from fedapa.errors import PausedError, PayloadError, RosterError, RunError, one_line
from fedapa.evaluation.record import NOT_TAKEN, SPENT, UNCOMPARED, over_rooms
from fedapa.evaluation.theory import THEORY
from fedapa.federation import acceptance, cohort
from fedapa.federation.attack import attackers
from fedapa.federation.defence import Defended, defend
from fedapa.federation.messages import (
    Rejected,
    Reply,
    Request,
    card_of,
    card_tree,
    check_reply,
)
from fedapa.federation.plan import Plan
from fedapa.payload import Tree, Value, encode, leaves
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard

__all__ = ["Engine", "Step", "begin", "cards_of", "is_state", "reopened", "run"]

_STATE: Mapping[str, type] = {
    "run": str,
    "round": int,
    "server": dict,
    "rooms": dict,
    "trained": dict,
    "notes": dict,
    "closed": bool,
}
"""What a state holds: a digest of the plan and the data; the last exchange; the algorithm's own
state at the server; who was ever here; the half of a record that waits for its score; what people
should know, by the exchange that showed it; whether the last exchange only scored. After an upload
also "accepted": how large those of each room were, for ``acceptance.implausible``; where the plan
has a defence also "defence": what that remembers."""
_LONGEST_REASON = 300
_TRIES = 2
"""Of an exchange that fewer rooms answer than the plan's quorum."""
_MATRIX_ROOMS = 64
"""Up to so many rooms the weights between them are recorded every round."""


class Engine(Protocol):
    """A way to reach the rooms: who is there, and one exchange with some of them."""

    def roster(self) -> Roster:
        """The cards of the rooms that take part now, each once, in any order.

        It may change between exchanges. A room that is not in it has left: the server forgets it.
        A room that is only out of reach for a while stays in it.
        """

    def exchange(
        self, round: Round, requests: Mapping[str, Request]
    ) -> Mapping[str, Reply | Rejected]:
        """Send each room its request and collect the replies; the answer may be partial.

        A room that did not get its request, or whose reply was lost or came too late, is simply
        not in the answer. Nobody is asked again in this exchange: such a room missed it, and its
        upload and score of this round do not exist for the server. It may have trained all the
        same; it goes on from its newest state when it is asked next. Each room has at most one
        reply; one that answers another round than this one is rejected, and so is one that cannot
        be what the room has to say. An engine that got something which is no reply says so. One
        that waits for others meanwhile may tell ``requests.came`` of a reply, where there is such
        a thing: it is then checked while others work, and is in the answer all the same. How long
        to wait for a room is for the engine to say; what cannot be mended (no room will ever answer
        again) it raises.
        """


@dataclass(frozen=True, eq=False)
class Step:
    """What one exchange left behind."""

    exchange: int
    """Its number: exchange t trains round t and scores round t − 1."""
    state: Tree
    """To be saved; ``run`` goes on from it."""
    record: Mapping[str, Any] | None
    """The complete record of the previous round; none after the first exchange."""
    cards: Mapping[str, RoomCard]
    """Every room that has been in the run so far, also those that left, by name."""
    confusion: Mapping[str, Any]
    """room → [C, C] of the score in this exchange."""
    reliability: Mapping[str, Any]
    """room → [bins, 3] of the same windows."""
    roc: Mapping[str, Any]
    """room → [thresholds, 2] of the same windows; no rows where presence means nothing."""
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    before: Mapping[str, Any] | None = None
    """How good rooms were before any of them trained, as in a record: of the first exchange."""

    @property
    def notes(self) -> list[str]:
        """What people should know of the run so far, in sentences."""
        notes = cast(Mapping[str, Mapping[str, Any]], self.state["notes"])
        told = sorted(notes.values(), key=lambda note: (note["exchange"], note["said"]))
        return [f"exchange {note['exchange']}: {note['said']}" for note in told]


def begin(algorithm: Algorithm, engine: Engine, plan: Plan) -> Tree:
    """The state before the first round; refuses rosters that the algorithm cannot serve."""
    if algorithm.plans_ahead:
        planned_rounds(algorithm.title, Round(1, plan.total, Key(plan.seed)))
    roster = _sorted(engine.roster())
    cohort.check_roster(roster)
    cohort.check_tasks(algorithm, roster)
    if plan.attack is not None and not attackers(
        plan.attack.share, [card.name for card in roster], plan.seed
    ):
        raise RosterError(
            f"attack.share {plan.attack.share:g} of {len(roster)} rooms is nobody; "
            + (
                f"set it to {1 / len(roster):.2g} or more"
                if len(roster) > 1
                else "a single room has nobody to lie to: leave attack out"
            )
        )
    server = algorithm.open(roster, Key(plan.seed) / "server")
    cohort.check_selection(plan.selection, plan.participation, algorithm=algorithm, server=server)
    rooms: Tree = {card.name: {"card": card_tree(card), "here": True} for card in roster}
    return {
        "run": "",
        "round": 0,
        "server": server,
        "rooms": rooms,
        "trained": {},
        "notes": {},
        "closed": False,
    }


def is_state(saved: Tree) -> bool:
    """Whether it has what a state holds, each of its kind."""
    return all(type(saved.get(name)) is kind for name, kind in _STATE.items())


def reopened(state: Tree) -> Tree:
    """The state before the exchange that closed a run: the same exchange, done again, trains."""
    again = cast(int, state["round"])
    notes = {
        number: note
        for number, note in cast(Mapping[str, Tree], state["notes"]).items()
        if note["exchange"] != again
    }
    return {**state, "round": again - 1, "notes": notes, "closed": False}


def run(
    algorithm: Algorithm,
    engine: Engine,
    plan: Plan,
    state: Tree,
    *,
    name: str = "run",
    diagnose: int | None = None,
    travels: bool = True,
) -> Iterator[Step]:
    """Exchange after exchange from ``state`` on; yields after each, so that the caller can save.

    Args:
        algorithm: what merges and mixes.
        engine: reaches the rooms.
        plan: how many rounds, and who takes part.
        state: from ``begin``, or of the last step.
        name: of the run, by which rooms keep their states of different runs apart; nothing else
            hangs on it.
        diagnose: as in ``Round``.
        travels: whether downloads leave this machine; else their checksums are the quick ones.
    """
    cards = cards_of(state)
    for number in range(cast(int, state["round"]) + 1, plan.rounds + 2):
        last = number > plan.rounds
        round = Round(number, plan.total, Key(plan.seed) / "round" / number, diagnose)
        state, cards, said = _with_roster(algorithm, state, cards, engine.roster())
        server = cast(Tree, state["server"])
        here = cast(Mapping[str, Tree], state["rooms"])
        members = [room for room in cards if here[room]["here"]]
        present = tuple(members)
        if members and not last:
            present = cohort.choose(
                plan.selection,
                plan.participation,
                algorithm=algorithm,
                server=server,
                roster=[cards[room] for room in members],
                key=round.key,
            )
        requests = _Requests(
            algorithm,
            server,
            plan,
            round,
            members=members,
            present=frozenset(present),
            run=name,
            travels=travels,
            cards=cards,
        )
        known = cast(acceptance.Accepted, state.get("accepted", {}))
        heard = _heard(engine, plan, round, requests, known)
        replies, uploads = heard.replies, heard.uploads
        said += heard.said(last=last)
        if last:
            said += [
                f"room '{room}' missed the last exchange, so it has no model file of the end and "
                "no last score; make the run longer when it is back"
                for room in members
                if room not in {**replies, **heard.rejected}
            ]
        record = None
        if number > 1:
            record = _record(number - 1, cast(Tree, state["trained"]), requests, replies)
        before = server
        defended = Defended(uploads, cast(Tree, state.get("defence", {})))
        if not last:
            if plan.defence is not None:
                # Where arrays of any nets are averaged, those of any nets are compared.
                nets = {
                    room: "" if algorithm.averages_across_nets else cards[room].architecture
                    for room in uploads
                }
                defended = defend(plan.defence, uploads, nets, defended.memory)
                said += _undefended(uploads, defended)
            if number == 1 and uploads and not any(uploads.values()):
                said += _to_no_effect(plan)
            server = algorithm.merge(server, defended.uploads, round)
        # After the last exchange the half stays: a longer run starts from it (``reopened``).
        trained = state["trained"]
        if not last:
            trained = _trained(algorithm, server, requests, heard, defended)
            if plan.attack is not None:
                lying = attackers(plan.attack.share, members, plan.seed)
                trained = {**trained, "attackers": dict.fromkeys(lying, True)}
            if diagnose is not None:
                trained = _with_movement(algorithm, before, server, trained)
        # Not every round brings every part of an upload.
        sizes = {room: {**known.get(room, {}), **heard.sizes.get(room, {})} for room in members}
        accepted = {room: parts for room, parts in sizes.items() if parts}
        state = {
            **state,
            **({"accepted": accepted} if accepted else {}),
            **({"defence": defended.memory} if defended.memory else {}),
            "round": number,
            "server": server,
            "trained": trained,
            "notes": _noted(cast(Mapping[str, Tree], state["notes"]), number, said),
            "closed": last,
        }
        step = Step(
            exchange=number,
            state=state,
            record=record,
            cards=cards,
            confusion={room: reply.confusion for room, reply in replies.items()},
            reliability={room: reply.reliability for room, reply in replies.items()},
            roc={room: reply.roc for room, reply in replies.items()},
            seconds={room: reply.seconds for room, reply in replies.items()},
            before=_untrained(replies) if number == 1 else None,
        )
        del heard, replies, uploads, requests, defended  # while the caller saves, nobody needs them
        yield step


@dataclass(frozen=True, eq=False)
class _Requests(Mapping[str, Request]):
    """What rooms are asked in a round; each request is made when an engine takes it.

    All downloads of ten thousand rooms would be gigabytes at once.
    """

    algorithm: Algorithm
    server: Tree
    plan: Plan
    round: Round
    members: Sequence[str]
    present: frozenset[str]
    """The members that take part; others are only scored."""
    run: str
    travels: bool = True
    cards: Mapping[str, RoomCard] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """room → bytes of its download, of those that were made."""
    seen: dict[str, "_Seen"] = field(default_factory=dict)
    """room → its reply as it came, checked."""
    newest: list[tuple[dict[str, Value], bytes]] = field(default_factory=list)
    """The download that was made last, by path, and its frame: mostly all rooms get one net."""

    def __getitem__(self, room: str) -> Request:
        if room not in self._members:
            raise KeyError(room)
        return Request(
            download=self._download(room) if room in self.present else None,
            train=self.trains(room),
            keep_model=self._is_last or self.plan.total is None,
            precision=self.plan.precision,
            run=self.run,
        )

    def __contains__(self, room: object) -> bool:
        return room in self._members  # without making it

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def came(self, room: str, answer: Reply | Rejected) -> "_Seen":
        """What to make of what a room sent; an engine may ask ahead, while others still work."""
        known = self.seen.get(room)
        if known is None or known.answer is not answer:
            known = self.seen[room] = self._looked_at(room, answer)
        return known

    def _looked_at(self, room: str, answer: Reply | Rejected) -> "_Seen":
        card = self.cards[room]
        try:
            reply = _checked(answer, card, self.round.number)
            if not self.trains(room) or reply.upload is None:
                return _Seen(answer)
            forms = self.algorithm.uploads(card, self.round)
            upload = acceptance.take(reply.upload, card, forms)
            return _Seen(answer, upload, acceptance.sizes_of(upload, forms))
        except PayloadError as error:
            return _Seen(answer, rejected=one_line(str(error)[:_LONGEST_REASON]))

    def trains(self, room: str) -> bool:
        """Whether a room is asked to train."""
        return room in self.present and not self._is_last

    def download_bytes(self, room: str) -> int:
        """How long the download of a room is; 0 for one that only is scored."""
        if room in self.present and room not in self.sizes:
            self._download(room)
        return self.sizes.get(room, 0)

    def _download(self, room: str) -> bytes:
        payload = self.algorithm.download(self.server, room, self.round)
        values = dict(leaves(payload))
        if not self.newest or not _same_objects(values, self.newest[0][0]):
            frame = encode(payload, self.plan.precision, travels=self.travels)
            self.newest[:] = [(values, frame)]
        made = self.newest[0][1]
        self.sizes[room] = len(made)
        return made

    @property
    def _is_last(self) -> bool:
        return self.round.number > self.plan.rounds

    @functools.cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.members)


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a room sent, looked at for itself."""

    answer: Reply | Rejected
    upload: Payload | None = None
    sizes: acceptance.Sizes | None = None
    """How large the upload is."""
    rejected: str | None = None
    """Why nothing of it is used."""


def _same_objects(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether two payloads are the same by their arrays as objects, which nobody changes."""
    return one.keys() == other.keys() and all(
        value is other[path]
        or (
            not isinstance(value, np.ndarray)
            and type(value) is type(other[path])
            and value == other[path]
        )
        for path, value in one.items()
    )


# ---- who is there ------------------------------------------------------------------------------


def _sorted(roster: Roster) -> list[RoomCard]:
    return sorted(roster, key=lambda card: card.name)


def cards_of(state: Tree) -> dict[str, RoomCard]:
    """The cards of all rooms that a state knows of."""
    rooms = cast(Mapping[str, Tree], state["rooms"])
    return {name: card_of(cast(Tree, rooms[name]["card"])) for name in sorted(rooms)}


def _with_roster(
    algorithm: Algorithm, state: Tree, cards: Mapping[str, RoomCard], roster: Roster
) -> tuple[Tree, dict[str, RoomCard], list[str]]:
    """The state with the rooms that are there now, all cards so far, and what is to be said.

    Rooms that left are dismissed, new ones admitted. A room that comes back with another card
    (another net, other windows) leaves and joins; one that only has more windows stays. One that
    does not fit is refused, and the run goes on without it.
    """
    rooms = cast(Mapping[str, Tree], state["rooms"])
    now = {card.name: card for card in _sorted(roster)}
    cohort.check_once(roster)
    here = {name for name, entry in rooms.items() if entry["here"]}
    grown = {
        name: now[name] for name in sorted(here & set(now)) if _has_grown(cards[name], now[name])
    }
    cards = {**cards, **grown}
    left = sorted(name for name in here if now.get(name) != cards[name])
    new = sorted(name for name in now if name not in here or name in left)
    server = cast(Tree, state["server"])
    said = [
        f"room '{name}' has new recordings: {card.windows} train windows, fingerprint "
        f"{card.fingerprint}"
        for name, card in grown.items()
    ]
    for name in left:
        server = algorithm.dismiss(server, name)
    first = next(iter(cards.values()))
    members, known = here - set(left), dict(cards)
    for name in new:
        try:
            cohort.check_labels(now[name], first)
            server = algorithm.admit(server, now[name])
        except RosterError as error:
            said.append(f"room '{name}' is refused, the run goes on without it: {error}")
        else:
            members, known = members | {name}, {**known, name: now[name]}
    if reason := algorithm.standstill(server):
        said.append(reason)
    if not left and not new and not grown:
        return state, known, said
    about: Tree = {
        name: {"card": card_tree(known[name]), "here": name in members} for name in sorted(known)
    }
    return {**state, "server": server, "rooms": about}, {name: known[name] for name in about}, said


def _has_grown(before: RoomCard, now: RoomCard) -> bool:
    """Whether a room is the one that it was, with more windows to learn from or to test."""
    told = ("windows", "parts", "recordings", "fingerprint", "blind")
    if before == now or replace(before, **{name: getattr(now, name) for name in told}) != now:
        return False
    return all(now.parts[part] >= before.parts[part] for part in before.parts) and (
        sum(now.recordings.values()) > sum(before.recordings.values())
    )


def _noted(notes: Mapping[str, Tree], exchange: int, said: Sequence[str]) -> Tree:
    """The notes with those that were not said before."""
    known = {note["said"] for note in notes.values()}
    new = [sentence for sentence in dict.fromkeys(said) if sentence not in known]
    return {
        **notes,
        **{
            str(number): {"exchange": exchange, "said": sentence}
            for number, sentence in enumerate(new, start=len(notes))
        },
    }


# ---- what is merged ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Heard:
    """What came of the rooms in one exchange."""

    replies: Mapping[str, Reply]
    uploads: Mapping[str, Payload]
    rejected: Mapping[str, str]
    """room → why its reply is not used."""
    sizes: acceptance.Accepted
    """room → how large its upload is."""
    spent: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """room → what its releases have cost, of those whose reply is not used."""

    @property
    def diverged(self) -> dict[str, str]:
        """Room → what became of its training."""
        given = ((room, reply.diverged) for room, reply in self.replies.items())
        return {room: one_line(why) for room, why in given if why}

    @property
    def withheld(self) -> dict[str, str]:
        """Room → why it sends nothing though it trained."""
        given = ((room, reply.withheld) for room, reply in self.replies.items())
        return {room: one_line(why) for room, why in given if why}

    def said(self, *, last: bool = False) -> list[str]:
        """What people should know of it, in sentences; of the last exchange, what it means."""
        so = "; it has no last score, maybe no model file: mend that and make the run longer"
        noting: dict[str, list[str]] = {}
        for room, reply in self.replies.items():
            if reply.note:
                noting.setdefault(reply.note, []).append(f"room '{room}'")
        rejected = [
            f"the reply of room '{room}' is rejected: {reason}{so if last else ''}"
            for room, reason in self.rejected.items()
        ]
        notes = [f"{', '.join(rooms)}: {one_line(note)}" for note, rooms in noting.items()]
        diverged = [
            f"room '{room}' is without an upload: {why}"
            for room, why in {**self.diverged, **self.withheld}.items()
        ]
        return [*rejected, *diverged, *notes]


def _heard(
    engine: Engine,
    plan: Plan,
    round: Round,
    requests: _Requests,
    accepted: acceptance.Accepted,
) -> _Heard:
    """One exchange, every reply checked; repeated, and then given up, where too few are left.

    Rooms answer a repeated request from their files. Those that only score are asked too, and
    count: the last exchange has nobody who trains.
    """
    needed = min(plan.network.quorum, len(requests))
    for _ in range(_TRIES):
        heard = _checked_replies(requests, accepted, engine.exchange(round, requests))
        if len(heard.replies) >= needed:
            if plan.attack is None:  # else it is what the liars did, and the rooms' to bear
                _refuse_to_learn_nothing(round, requests, heard.diverged)
            return heard
    refused = "".join(f"; {sentence}" for sentence in heard.said())
    raise PausedError(
        f"round {round.number}: {len(heard.replies)} of {len(requests)} rooms answered, the quorum "
        f"is {needed}; the run pauses and goes on from here when rooms are back{refused}"
    )


def _refuse_to_learn_nothing(
    round: Round, requests: _Requests, diverged: Mapping[str, str]
) -> None:
    """End a run in which training diverges everywhere: the plan is wrong, not a room.

    One room that was drawn alone out of many proves nothing.
    """
    asked = [room for room in requests if requests.trains(room)]
    if len(asked) >= min(2, len(requests)) and set(asked) == set(diverged) and asked:
        room = min(diverged)
        raise RunError(
            f"round {round.number}: training diverged in every room, so nothing is learned; room "
            f"'{room}': {diverged[room]}"
        )


def _checked_replies(
    requests: _Requests,
    accepted: acceptance.Accepted,
    answered: Mapping[str, Reply | Rejected],
) -> _Heard:
    replies: dict[str, Reply] = {}
    uploads: dict[str, Payload] = {}
    sizes: dict[str, acceptance.Sizes] = {}
    rejected: dict[str, str] = {}
    for room in (room for room in requests if room in answered):
        seen = requests.came(room, answered[room])
        if seen.rejected is not None:
            rejected[room] = seen.rejected
            continue
        replies[room] = cast(Reply, seen.answer)
        if seen.upload is not None and seen.sizes is not None:
            uploads[room], sizes[room] = seen.upload, seen.sizes
    # Only when all are there it is known what is usual.
    for room, reason in acceptance.implausible(sizes, accepted).items():
        del replies[room], uploads[room], sizes[room]
        rejected[room] = reason
    kept = {room: acceptance.summary_of(given) for room, given in sizes.items()}
    spent: dict[str, Mapping[str, float]] = {}
    for room in rejected:
        answer = answered[room]
        if isinstance(answer, Reply) and answer.round == requests.round.number:
            spent[room] = {name: answer.report[name] for name in SPENT if name in answer.report}
    return _Heard(replies, uploads, dict(sorted(rejected.items())), kept, spent)


def _checked(answer: Reply | Rejected, card: RoomCard, number: int) -> Reply:
    """The reply of a room to exchange ``number``, or PayloadError."""
    if isinstance(answer, Rejected):
        raise PayloadError(answer.reason)
    if answer.round != number:
        raise PayloadError(f"it answers round {answer.round}, asked was round {number}")
    check_reply(answer, card)
    return answer


def _to_no_effect(plan: Plan) -> list[str]:
    """What a plan asks for that does nothing where rooms send nothing."""
    asked = {
        "defence": plan.defence is not None and plan.defence.is_on,
        "attack": plan.attack is not None and plan.attack.kind != "flipped-labels",
    }
    return [
        f"the {what} has nothing to do: rooms send neither weights nor prototypes"
        for what, given in asked.items()
        if given
    ]


def _undefended(uploads: Mapping[str, Payload], defended: Defended) -> list[str]:
    """What a defence does not look at, said once of every room: it counts as it came."""
    needs = {"weights": "with the same net", "prototypes": "with the same class"}
    return [
        f"{UNCOMPARED} the {what} of {_named(rooms, uploads)}: that takes three rooms "
        f"{needs[what]}; what these send counts as it came"
        for what, rooms in defended.alone.items()
        if rooms
    ]


def _named(rooms: Sequence[str], among: Mapping[str, Payload]) -> str:
    return "any room" if len(rooms) == len(among) else ", ".join(map(repr, rooms))


# ---- what is recorded --------------------------------------------------------------------------


def _trained(
    algorithm: Algorithm,
    server: Tree,
    requests: _Requests,
    heard: _Heard,
    defended: Defended,
) -> Tree:
    """The half of a record that is known when a round's uploads are merged."""
    members, replies = sorted(requests), heard.replies
    rooms: dict[str, dict[str, Any]] = {}
    missing: dict[str, bool] = {}
    for room in members:
        reply = replies.get(room)
        rooms[room] = {
            **(heard.spent.get(room, {}) if reply is None else reply.report),
            "participated": reply is not None and reply.upload is not None,
            "bytes_up": 0 if reply is None else len(reply.upload or b""),
        }
        if room in defended.trust:
            rooms[room]["trust"] = defended.trust[room]
        if reply is None and requests.trains(room):
            missing[room] = True
    between: dict[str, Any] = {}
    for name, value in algorithm.explain(server).items():
        if not isinstance(value, np.ndarray):
            between[name] = value
        elif value.shape == (len(members),):
            for room, own in zip(members, value, strict=True):
                rooms[room][name] = own.item()
        elif value.shape == (len(members), len(members)):
            if len(members) <= _MATRIX_ROOMS:
                between[name] = value
        else:
            raise RunError(
                f"{algorithm.title}: explain gives '{name}' of shape {value.shape} for "
                f"{len(members)} rooms; give a number, a value for each room, or a matrix between "
                "them"
            )
    apart = {
        "rejected": dict(heard.rejected),
        "diverged": heard.diverged,
        "withheld": heard.withheld,
        "suspects": dict(sorted(defended.suspects.items())),
    }
    told: Tree = {what: by_room for what, by_room in apart.items() if by_room}
    return {"rooms": rooms, "server": between, "missing": missing, **told}


def _with_movement(algorithm: Algorithm, before: Tree, after: Tree, trained: Tree) -> Tree:
    """The half of a record with how far a merge moved what the server has."""
    moved = algorithm.movement(before, after)
    between = {
        **cast(Tree, trained["server"]),
        **{f"{THEORY}{name}": value for name, value in moved.items()},
    }
    return {**trained, "server": between}


def _untrained(replies: Mapping[str, Reply]) -> dict[str, Any]:
    """The scores of the first exchange, which no round has a line for."""
    scores = {room: reply.scores for room, reply in sorted(replies.items())}
    tested = {room: int(reply.confusion.sum()) for room, reply in replies.items()}
    return {
        "rooms": {room: dict(own) for room, own in scores.items()},
        **over_rooms(scores, tested),
    }


def _record(
    number: int,
    trained: Tree,
    requests: _Requests,
    replies: Mapping[str, Reply],
) -> dict[str, Any]:
    """The line of a round: what it did, and what the next exchange brought.

    A round's download is the one that answers its uploads: it travels in the next exchange. A room
    that was in one of the two exchanges only has what is known of it; one without a score has none.
    """
    halves = cast(Mapping[str, Mapping[str, Any]], trained["rooms"])
    tested = {room: int(reply.confusion.sum()) for room, reply in replies.items()}
    between = cast(Mapping[str, Any], trained["server"])
    rooms = {}
    for room in sorted({*halves, *replies}):
        reply = replies.get(room)
        rooms[room] = {
            **({} if reply is None else reply.scores),
            **halves.get(room, {"participated": False, "bytes_up": 0}),
            "bytes_down": 0 if reply is None else requests.download_bytes(room),
        }
    record: dict[str, Any] = {
        "round": number,
        "rooms": rooms,
        **over_rooms({room: reply.scores for room, reply in replies.items()}, tested),
        "server": {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in between.items()
        },
    }
    missing = {
        "upload": sorted(cast(Tree, trained["missing"])),
        "score": sorted({*halves, *requests} - set(replies)),
    }
    if any(missing.values()):
        record["missing"] = {what: names for what, names in missing.items() if names}
    record |= {what: trained[what] for what in (*NOT_TAKEN, "suspects") if what in trained}
    if "attackers" in trained:
        record["attackers"] = sorted(cast(Tree, trained["attackers"]))
    if sorted(halves) != sorted(rooms):
        record["members"] = sorted(halves)  # whose rows the matrices of "server" are
    return record

"""One run whose messages are overheard, and what each attack makes of them.

Who attacks a room is the room after it in the order of names: it has windows and an encoder of its
own. The server is given them too: whoever runs a server may have a room. Attackers, by what they
have beside that: the *server* every upload of every round; a *room* what the server sends it; the
*model file* is a server that also has the room's model file, with encoder, classifier and
normaliser, of the last round in which the room sent. All of them know the plan: where it has rooms
clip their embeddings before they add noise, attackers clip theirs.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from fedapa.algorithms.algorithm import Algorithm, Payload
from fedapa.attacks.identity import alike, masks_alike
from fedapa.attacks.membership import aligned, likeness, nearness, regression
from fedapa.attacks.reconstruction import compare_windows, reconstruct
from fedapa.errors import DataError, RunError
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.engines.listening import Listening
from fedapa.federation.participant import kept_state
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree, cut_windows, make_room, tell_data
from fedapa.learning.private import clipped
from fedapa.learning.prototypes import class_prototypes
from fedapa.learning.tree import NamedArrays
from fedapa.models.model import Model
from fedapa.report.captions import number_of
from fedapa.rooms.room import Room, normalised
from fedapa.stores.materialise import Surveyed
from fedapa.windows.labels import NO_CLASS
from fedapa.windows.normalise import Normaliser

__all__ = [
    "Candidate",
    "Overheard",
    "Place",
    "Told",
    "by_day",
    "candidates_of",
    "identity",
    "membership",
    "overhear",
    "places_of",
    "reconstruction",
]

_Index = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_PIECE = 10
"""Windows of a part of a recording, where recordings are split in parts: a candidate."""
_LOOK = 256
"""Windows at a time through a net."""
_RUN = "overheard"


@dataclass(frozen=True, eq=False)
class Place:
    """A room and where its windows come from."""

    room: Room
    origins: Surveyed
    home: str = ""
    """Where the room is one day of another: that one."""
    day: str = ""


def places_of(plan: Plan) -> list[Place]:
    """The rooms of a plan, which names its view."""
    windows = cut_windows(plan)
    agreed = agree(plan, [tell_data(plan, own) for own in windows])
    return [Place(make_room(plan, own, agreed=agreed), own) for own in windows]


def by_day(places: Sequence[Place]) -> list[Place]:
    """A room for each day of each of them that it has two classes to train on, and a test of."""
    made = []
    for place in places:
        days, room = np.asarray(place.origins.days), place.room
        for day in sorted(set(days.tolist()) - {""}):
            parts = {
                part: (mine := getattr(room.split, part))[days[mine] == day]
                for part in ("train", "validation", "test")
            }
            train = parts["train"]
            if len(np.unique(room.labels[train])) < 2 or not len(parts["test"]):
                continue
            split = replace(room.split, **parts, continuous=np.zeros(0, np.int64))
            own = replace(
                room,
                name=f"{room.name} day {day}",
                split=split,
                recipe=replace(room.recipe, normaliser=Normaliser.of(room.windows, train)),
            )
            made.append(Place(own, place.origins, home=room.name, day=day))
    return made


@dataclass(frozen=True, eq=False)
class Overheard:
    """What passed between server and rooms in one run, and what rooms kept to themselves."""

    algorithm: Algorithm
    places: Mapping[str, Place]
    uploads: Mapping[int, Mapping[str, Payload]]
    """round → room → what it sent."""
    downloads: Mapping[int, Mapping[str, Payload]]
    nets: Mapping[int, Mapping[str, NamedArrays]]
    """round → room → the weights after its training: never sent where prototypes are."""
    accuracy: float
    """Of the last round, mean over rooms."""
    clip: float | None = None
    """The length that rooms cut embeddings to before they send their means; none: they do not."""

    @property
    def rounds(self) -> list[int]:
        """The rounds in which every room sent; with noise rooms may send in some of them only."""
        return sorted(
            number for number in self.nets if set(self.uploads[number]) >= set(self.places)
        )

    @property
    def last(self) -> int:
        """The last of them."""
        return self.rounds[-1]

    def attacker_of(self, room: str) -> str:
        """Who attacks a room."""
        names = sorted(self.places)
        return names[(names.index(room) + 1) % len(names)]

    def model(self, room: str, weights: NamedArrays) -> Model:
        """A net of a room with some weights, to look through."""
        model = self.algorithm.model(self.places[room].room, {"model": weights})
        model.eval()
        return model

    def sets(self, round: int) -> dict[str, tuple[_Floats, npt.NDArray[np.bool_]]]:
        """By room: its prototypes [C, D] of a round, which are real [C]; none where none travel."""
        made = {}
        for name, upload in self.uploads[round].items():
            if "prototypes" in upload:
                present = np.asarray(upload["present"], bool)
                made[name] = _full(np.asarray(upload["prototypes"]), present), present
        return made

    @property
    def sends_weights(self) -> bool:
        """Whether a server has an encoder of every room without anybody's model file."""
        sent = self.uploads[self.last].values()
        return bool(sent) and all("weights" in upload for upload in sent)

    @property
    def sent(self) -> float:
        """The share of the prototypes that rooms could have sent in the last round.

        Noise alone may tell of a class that a room has no window of: that one is not counted.
        """
        rooms = {name: place.room.held for name, place in self.places.items()}
        told = sum(
            int(present[rooms[name]].sum()) for name, (_, present) in self.sets(self.last).items()
        )
        return told / sum(len(held) for held in rooms.values())


def _full(rows: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> _Floats:
    """[C, D] of the rows that are real."""
    whole = np.zeros((len(present), rows.shape[1]))
    whole[present] = rows
    return whole


def overhear(plan: Plan, places: Sequence[Place]) -> Overheard:
    """Carry out a plan in this process, and keep what passes.

    Attacks compare all rooms in a round, so that a run without one in which all sent is refused.
    """
    algorithm = plan.build()
    nets: dict[int, dict[str, NamedArrays]] = {}
    records: list[Mapping[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fedapa-") as spare:
        folder = Path(spare)
        rooms = [place.room for place in places]
        with InProcess(algorithm, rooms, folder=folder, workers=0) as engine:
            heard = Listening(engine)
            state = rounds.begin(algorithm, heard, plan)
            for step in rounds.run(algorithm, heard, plan, state, name=_RUN):
                if step.record is not None:
                    records.append(step.record)
                if step.exchange > plan.rounds:
                    break
                nets[step.exchange] = {
                    room.name: cast(
                        NamedArrays,
                        kept_state(folder / "rooms" / room.name / _RUN, step.exchange)["model"],
                    )
                    for room in rooms
                }
    made = Overheard(
        algorithm=algorithm,
        places={place.room.name: place for place in places},
        uploads=heard.uploads,
        downloads=heard.downloads,
        nets=nets,
        accuracy=float(records[-1]["mean"]["accuracy"]),
        clip=plan.privacy.clip if plan.privacy.is_on else None,
    )
    if not made.rounds:
        raise RunError(_who_is_missing(made, plan.seed, records))
    return made


def _who_is_missing(heard: Overheard, seed: int, records: Sequence[Mapping[str, Any]]) -> str:
    """Why nothing can be attacked: the room that sent least often, and what became of it."""
    sent = {
        room: sum(room in heard.uploads[number] for number in heard.nets) for room in heard.places
    }
    room = min(sorted(sent), key=lambda name: sent[name])
    why = [
        f": it {said}, {record[what][room]}"
        for record in records
        for what, said in (
            ("diverged", "diverged"),
            ("rejected", "was rejected"),
            ("withheld", "withheld its set"),
        )
        if room in record.get(what, {})
    ]
    return (
        f"{heard.algorithm.name}, seed {seed}: there is no round in which every room sent, and "
        f"attacks compare all of them; '{room}' sent in {sent[room]} of "
        f"{number_of(len(heard.nets), 'round')}{why[0] if why else ''}; mend that, leave the room "
        "out with data.without, or choose others with --method"
    )


# ---- membership ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidate:
    """A recording, or a part of one where recordings are split in parts."""

    windows: _Index
    label: int
    day: str
    member: bool
    """Whether the room trained on it."""


def candidates_of(place: Place) -> list[Candidate]:
    """Recordings that a room trained on whole, and those that it never saw; or parts of them."""
    room, origins = place.room, place.origins
    trained, held = np.zeros(len(room.windows), bool), np.zeros(len(room.windows), bool)
    trained[room.split.train] = True
    held[room.split.test], held[room.split.validation] = True, True
    recordings = np.asarray(origins.recordings)
    found = []
    for name in np.unique(recordings).tolist():
        mine = np.flatnonzero(recordings == name)
        mine = mine[np.argsort(origins.starts[mine], kind="stable")]
        if origins.continuous[mine[0]] or room.labels[mine[0]] == NO_CLASS:
            continue
        label, day = int(room.labels[mine[0]]), origins.days[mine[0]]
        if room.split.kind == "blocked":
            parts = [(part, True) for part in _pieces(mine, trained)]
            parts += [(part, False) for part in _pieces(mine, held)]
        elif trained[mine].all() or not trained[mine].any():
            parts = [(mine, bool(trained[mine[0]]))]
        else:
            parts = []  # it was seen in part: neither
        found += [Candidate(part, label, day, member) for part, member in parts]
    return found


def _pieces(mine: _Index, wanted: npt.NDArray[np.bool_]) -> Iterator[_Index]:
    """Parts of ten windows that follow each other, all of them wanted."""
    edges = np.flatnonzero(np.diff(wanted[mine].astype(int))) + 1
    for stretch in np.split(mine, edges):
        if wanted[stretch[0]]:
            for first in range(0, len(stretch) - _PIECE + 1, _PIECE):
                yield stretch[first : first + _PIECE]


@dataclass(frozen=True, eq=False)
class Told:
    """What an attack says of its candidates, as columns."""

    rooms: list[str]
    strata: list[str]
    members: list[bool]
    scores: dict[str, list[float]]
    """"attacker · attack" → a score for each."""

    def add(self, room: str, strata: Sequence[str], members: Sequence[bool]) -> None:
        """The candidates of one more room."""
        self.rooms.extend([room] * len(strata))
        self.strata.extend(strata)
        self.members.extend(members)

    def tree(self) -> dict[str, Any]:
        """For a file."""
        return vars(self)


def membership(heard: Overheard) -> Told:
    """Whether each recording was used for training, by every attacker that there can be.

    *Nobody* has no message at all: what it finds, used and unused recordings tell by themselves,
    and no message is to blame for it.
    """
    told = Told([], [], [], {})
    for name in sorted(heard.places):
        candidates = candidates_of(heard.places[name])
        if not candidates:
            continue
        told.add(
            name,
            [f"{name} · {each.label} · {each.day}" for each in candidates],
            [each.member for each in candidates],
        )
        scores: dict[str, _Floats] = {}
        if heard.sets(heard.last):
            scores |= _of_prototypes(heard, name, candidates)
        if heard.sends_weights:
            scores |= _of_weights(heard, name, candidates)
        scores |= {"nobody · typicality": _typicality(heard.places[name].room, candidates)}
        for attack, values in scores.items():
            told.scores.setdefault(attack, []).extend(values.tolist())
    if not told.strata:
        raise DataError(
            "no room has a recording that it trained on whole, and one that it never saw; use "
            "--split recording or blocked"
        )
    return told


def _typicality(room: Room, candidates: Sequence[Candidate]) -> _Floats:
    """How near the mean window of each candidate is to the middle of all of its class.

    Members and others are given alike, so that 0.5 is expected where who was used was drawn. Blocks
    of a recording are not drawn: those that were used lie together, earlier or later than others.
    """
    labels = np.asarray([each.label for each in candidates])
    pool = Normaliser.of(room.windows, np.concatenate([each.windows for each in candidates]))
    means = np.stack(
        [
            np.ravel(normalised(pool, room.windows, each.windows).mean(axis=0, dtype=np.float64))
            for each in candidates
        ]
    )
    scores = np.zeros(len(candidates))
    for label in np.unique(labels).tolist():
        mine = labels == label
        scores[mine] = nearness(means[mine], means[mine].mean(axis=0))
    return scores


def _of_prototypes(
    heard: Overheard, name: str, candidates: Sequence[Candidate]
) -> dict[str, _Floats]:
    """Scores of a room's candidates by its prototypes."""
    room, other = heard.places[name].room, heard.attacker_of(name)
    labels = np.asarray([each.label for each in candidates])
    pool = Normaliser.of(room.windows, np.concatenate([each.windows for each in candidates]))
    shadows = [
        _embedded(
            heard.model(other, heard.nets[number][other]), room, candidates, pool, clip=heard.clip
        )[0]
        for number in heard.rounds
    ]
    sent = [heard.sets(number) for number in heard.rounds]
    if heard.sends_weights:  # the room's own encoder came with the set
        looked = [
            _embedded(
                heard.model(name, cast(NamedArrays, heard.uploads[number][name]["weights"])),
                room,
                candidates,
                pool,
                clip=heard.clip,
            )[0]
            for number in heard.rounds
        ]
    else:
        looked = [
            _in_its_place(shadow, labels, sets[other], sets[name])
            for shadow, sets in zip(shadows, sent, strict=True)
        ]
    scores = _by_rounds("server", labels, looked, [sets[name] for sets in sent])
    means = [_mean_sent(heard.downloads[number + 1][other]) for number in heard.rounds]
    if all(mean is not None for mean in means):
        got = [mean for mean in means if mean is not None]
        moved = [
            _in_its_place(shadow, labels, sets[other], mean)
            for shadow, sets, mean in zip(shadows, sent, got, strict=True)
        ]
        scores |= _by_rounds("room", labels, moved, got)
    model = heard.model(name, heard.nets[heard.last][name])
    embeddings, losses = _embedded(model, room, candidates, room.normaliser, clip=heard.clip)
    scores |= _by_rounds("model file", labels, [embeddings], [sent[-1][name]])
    return {**scores, "model file · loss": likeness(losses[None])}


def _mean_sent(download: Payload) -> tuple[_Floats, npt.NDArray[np.bool_]] | None:
    """The mean over rooms where that is all a room gets of the others."""
    if "mean" not in download:
        return None
    known = np.asarray(download["known"], bool)
    return _full(np.asarray(download["mean"]), known), known


def _in_its_place(
    embeddings: _Floats,
    labels: _Index,
    own: tuple[_Floats, npt.NDArray[np.bool_]],
    theirs: tuple[_Floats, npt.NDArray[np.bool_]],
) -> _Floats:
    """Embeddings by one's own encoder in the other room's space, by the other classes."""
    moved = np.array(embeddings)
    for label in np.unique(labels).tolist():
        both = own[1] & theirs[1]
        both[label] = False
        mine = labels == label
        moved[mine] = aligned(embeddings[mine], own[0][both], theirs[0][both])
    return moved


def _by_rounds(
    attacker: str,
    labels: _Index,
    embeddings: Sequence[_Floats],
    sets: Sequence[tuple[_Floats, npt.NDArray[np.bool_]]],
) -> dict[str, _Floats]:
    """Both attacks on prototypes; candidates of classes that were not sent have 0, all alike."""
    near, weights = np.zeros(len(labels)), np.zeros(len(labels))
    for label in np.unique(labels).tolist():
        mine = labels == label
        there = [
            (z[mine], prototypes[label])
            for z, (prototypes, present) in zip(embeddings, sets, strict=True)
            if present[label]
        ]
        if not there:
            continue
        by_round = [nearness(z, prototype) for z, prototype in there]
        # In one unit, so that no round counts more than another.
        near[mine] = np.mean([each / max(-each.mean(), 1e-12) for each in by_round], axis=0)
        weights[mine] = regression([z for z, _ in there], [prototype for _, prototype in there])
    return {f"{attacker} · nearness": near, f"{attacker} · regression": weights}


def _of_weights(heard: Overheard, name: str, candidates: Sequence[Candidate]) -> dict[str, _Floats]:
    """Scores of a room's candidates by the weights that travel."""
    room, other = heard.places[name].room, heard.attacker_of(name)
    pool = Normaliser.of(room.windows, np.concatenate([each.windows for each in candidates]))

    def losses(owner: str, weights: object) -> _Floats:
        model = heard.model(owner, cast(NamedArrays, weights))
        return _embedded(model, room, candidates, pool)[1]

    trained = heard.rounds
    own = np.stack([losses(name, heard.uploads[number][name]["weights"]) for number in trained])
    strangers = np.stack(
        [
            losses(stranger, heard.uploads[number][stranger]["weights"])
            for number in trained
            for stranger in heard.uploads[number]
            if stranger != name
        ]
    )
    merged = losses(other, heard.downloads[heard.last + 1][other]["weights"])
    return {
        "server · loss": likeness(own),
        "server · calibrated loss": likeness(own, strangers),
        "room · loss": likeness(merged[None]),
    }


@torch.no_grad()
def _embedded(
    model: Model,
    room: Room,
    candidates: Sequence[Candidate],
    normaliser: Normaliser,
    *,
    clip: float | None = None,
) -> tuple[_Floats, _Floats]:
    """Mean embedding [candidates, D] and mean cross-entropy [candidates] of candidates' windows.

    With a clip every window's embedding is cut to it before the mean, as in what rooms send.
    """
    index = np.concatenate([each.windows for each in candidates])
    owner = np.repeat(np.arange(len(candidates)), [len(each.windows) for each in candidates])
    embeddings, losses = [], []
    for first in range(0, len(index), _LOOK):
        some = index[first : first + _LOOK]
        logits, embedding = model(torch.from_numpy(normalised(normaliser, room.windows, some)))
        truth = torch.from_numpy(room.labels[some])
        losses.append(F.cross_entropy(logits[:, : len(room.classes)], truth, reduction="none"))
        embeddings.append(embedding)
    means, _ = class_prototypes(
        clipped(torch.cat(embeddings).double(), clip), torch.from_numpy(owner), len(candidates)
    )
    number = np.bincount(owner)
    return means.numpy(), np.bincount(owner, torch.cat(losses).double().numpy()) / number


# ---- reconstruction -----------------------------------------------------------------------------


def reconstruction(heard: Overheard) -> list[dict[str, Any]]:
    """Of every prototype of the last round: the mean window that it gives away, and what does not.

    The attacker has the room's model file. "alone" begins at the mean of all windows, "own room" at
    the class's mean window in the attacker's own room, which alone is the baseline "another room".
    """
    found = []
    for name, (prototypes, present) in heard.sets(heard.last).items():
        room = heard.places[name].room
        other = heard.places[heard.attacker_of(name)].room
        model = heard.model(name, heard.nets[heard.last][name])
        true, theirs = _mean_windows(room), _mean_windows(other)
        labels = [label for label in np.flatnonzero(present).tolist() if label in true]
        if not labels:
            continue
        targets = torch.from_numpy(prototypes[labels].astype(np.float32))
        nothing = torch.zeros_like(next(iter(true.values())))
        starts = {
            "alone": torch.stack([nothing for _ in labels]),
            "own room": torch.stack([theirs.get(label, nothing) for label in labels]),
        }
        windows = {
            way: reconstruct(model, targets, start, clip=heard.clip)
            for way, start in starts.items()
        }
        windows["another room"] = starts["own room"]
        for place, label in enumerate(labels):
            for way, guesses in windows.items():
                near = compare_windows(guesses[place], true[label])
                found.append({"room": name, "label": label, "way": way, **vars(near)})
    return found


def _mean_windows(room: Room) -> dict[int, torch.Tensor]:
    """By class: the mean of its train windows, normalised."""
    means: dict[int, torch.Tensor] = {}
    train = room.split.train
    for label in room.held:
        mine = train[room.labels[train] == label]
        total = torch.zeros(tuple(room.windows.shape[1:]), dtype=torch.float64)
        for first in range(0, len(mine), _LOOK):
            total += room.tensors(mine[first : first + _LOOK])[0].double().sum(dim=0)
        means[label] = (total / len(mine)).float()
    return means


# ---- identity -----------------------------------------------------------------------------------


def identity(heard: Overheard) -> dict[str, Told]:
    """By question: likeness of every set without a name to every set with one.

    Over rounds: of each room the set of the round a third of the way in has a name, that of the
    last round has none. Over days: the sets of a room's first days have names, those of its last
    days have none. Where every room sent in one round alone a set would be compared with itself:
    what is asked over rounds then has no pairs.
    Weights are compared by the arrays that all rooms have alike; nets that share none are not asked
    about.
    """
    before, once = heard.rounds[max(0, len(heard.rounds) // 3 - 1)], len(heard.rounds) == 1
    early, has_early, names = _stacked(heard, before)
    late, has_late, _ = _stacked(heard, heard.last)
    if not len(names):
        return {}
    homes = [heard.places[name].home or name for name in names]
    days = [heard.places[name].day for name in names]
    likely = alike(late, has_late, early, has_early)
    told: dict[str, Told] = {}
    if not any(days):
        asked = [] if once else names
        told["room, over rounds"] = _pairs(likely, asked, names)
        if heard.sets(heard.last):  # weights are sent whole
            told["room, by its classes"] = _pairs(masks_alike(has_late, has_early), asked, names)
        return told
    # Which day of the room it is: others' days are not asked about.
    within = np.equal.outer(homes, homes)
    told["day, over rounds"] = _pairs(likely, [] if once else names, names, within, homes)
    first = np.asarray(
        [_is_early(day, home, homes, days) for day, home in zip(days, homes, strict=True)]
    )
    for question, likely in (
        ("room, over days", alike(late[~first], has_late[~first], late[first], has_late[first])),
        ("room, by its classes", masks_alike(has_late[~first], has_late[first])),
    ):
        asked, known = (np.asarray(homes)[part].tolist() for part in (~first, first))
        told[question] = _pairs(likely, asked, known)
    return told


def _is_early(day: str, home: str, homes: Sequence[str], days: Sequence[str]) -> bool:
    """Whether a day is in the first half of its room's days; of three in the first two."""
    own = sorted(other for other, place in zip(days, homes, strict=True) if place == home)
    return own.index(day) < (len(own) + 1) // 2


def _stacked(heard: Overheard, number: int) -> tuple[_Floats, npt.NDArray[np.bool_], list[str]]:
    """What all sent in a round: sets [N, C, D], masks [N, C] and names; weights as one row.

    Of weights only arrays that have one name and one shape in all rooms.
    """
    given = heard.sets(number)
    if given:
        names = sorted(given)
        sets, masks = zip(*(given[name] for name in names), strict=True)
        return np.stack(sets), np.stack(masks), names
    names = sorted(name for name, upload in heard.uploads[number].items() if "weights" in upload)
    nets = [cast(NamedArrays, heard.uploads[number][name]["weights"]) for name in names]
    shapes = [{(key, np.shape(value)) for key, value in net.items()} for net in nets]
    shared = sorted(key for key, _ in set.intersection(*shapes)) if shapes else []
    if not shared:
        return np.zeros((0, 1, 1)), np.zeros((0, 1), bool), []
    rows = [np.concatenate([np.ravel(net[key]) for key in shared])[None] for net in nets]
    return np.stack(rows).astype(np.float64), np.ones((len(names), 1), bool), names


def _pairs(
    likely: _Floats,
    asked: Sequence[str],
    known: Sequence[str],
    within: npt.NDArray[np.bool_] | None = None,
    rooms: Sequence[str] | None = None,
) -> Told:
    """Every pair of a set without a name [U] and one with a name [K], a stratum for each of U."""
    told = Told([], [], [], {"likeness": []})
    for place, name in enumerate(asked):
        chosen = np.ones(len(known), bool) if within is None else within[place]
        mine = np.flatnonzero(chosen).tolist()
        told.add(
            name if rooms is None else rooms[place],
            [f"{place}"] * len(mine),
            [known[other] == name for other in mine],
        )
        told.scores["likeness"].extend(likely[place, mine].tolist())
    return told

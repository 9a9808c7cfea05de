"""FedJoin: classes that a room does not hold are left alone, few labels move a net a little."""

import dataclasses

import numpy as np
import pytest
import torch

from fedapa.algorithms.fedjoin import FedJoin, FedJoinAlone
from fedapa.algorithms.local import Local
from fedapa.errors import PayloadError, RosterError
from fedapa.federation.acceptance import take
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import prepare_rooms
from fedapa.learning.alignment import align_prototypes
from fedapa.models.model import NEVER
from fedapa.payload import encode
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.rooms.task import ACTIVITY, Task
from fedapa.windows.origins import Origins
from tests.algorithms.by_hand import QUICKLY, Game, round_number
from tests.conftest import MakeRooms, MakeStore

THREE = ((0, 1, 2), (0, 1, 2), (0, 1, 2))
"""The counts of three rooms."""


def poor(room: Room, *, held: int = 1, answerable: tuple[int, ...] | None = None) -> Room:
    """The same room with labels for its first classes only; the others' windows have none."""
    train, labels = room.split.train, room.labels
    known = train[labels[train] <= held]
    split = dataclasses.replace(
        room.split,
        train=known,
        validation=train[:0],
        unlabelled=np.setdiff1d(train, known),
    )
    origins = Origins(room.labels, np.arange(len(room.labels)), spans=1, step=1)
    return dataclasses.replace(room, split=split, answerable=answerable, origins=origins)


def test_rows_of_classes_that_a_room_does_not_hold_stay_as_they_were(
    make_rooms: MakeRooms,
) -> None:
    """Without decay their gradient is zero to the bit; FedAvg's would push them down."""
    room = poor(make_rooms(THREE)[0])
    algorithm = FedJoin(training=dataclasses.replace(QUICKLY, weight_decay=0.0))
    before = algorithm.join(room, Key(0))
    after, _, _ = algorithm.train(room, before, round_number(1))
    for name in ("classifier.weight", "classifier.bias"):
        old, new = np.array(before["model"][name]), np.array(after["model"][name])
        assert (old[2] == new[2]).all()
        assert (old[:2] != new[:2]).any()


def test_the_rate_by_hand(make_rooms: MakeRooms) -> None:
    """n train windows of each of 2 classes and κ = n: half of the rate, for who finds a net."""
    room = make_rooms()[0]
    number = len(room.split.train) / len(room.held)
    algorithm = FedJoin(training=QUICKLY, shrinkage=number)
    half = dataclasses.replace(QUICKLY, learning_rate=QUICKLY.learning_rate / 2)
    plain = FedJoin(training=half, shrinkage=0.0)
    state = algorithm.join(room, Key(0))
    found = {"weights": {name: np.array(values) for name, values in state["model"].items()}}
    newcomer = algorithm.receive(room, state, {**found, "newcomer": True}, round_number(1))
    _, one, _ = algorithm.train(room, newcomer, round_number(1))
    _, other, _ = plain.train(
        room, plain.receive(room, state, found, round_number(1)), round_number(1)
    )
    assert encode(one) == encode(other)
    founder = algorithm.receive(room, state, {}, round_number(1))
    _, full, _ = algorithm.train(room, founder, round_number(1))
    whole = FedJoin(training=QUICKLY, shrinkage=0.0).train(room, state, round_number(1))[1]
    assert encode(full) == encode(whole), "who begins with the others stays near nothing"
    assert "newcomer" not in algorithm.receive(room, state, found, round_number(2))


def test_who_comes_later_is_a_newcomer_and_who_missed_a_round_is_not(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(FedJoin(training=QUICKLY), rooms[:2])
    upload = game.algorithm.train(rooms[0], game.states["room 0"], round_number(1))[1]
    server = game.algorithm.merge(game.server, {"room 0": upload}, round_number(1))
    assert "newcomer" not in game.algorithm.download(server, "room 1", round_number(2))
    later = game.algorithm.admit(server, rooms[2].card)
    assert game.algorithm.download(later, "room 2", round_number(2))["newcomer"]
    assert "newcomer" not in game.algorithm.download(later, "room 1", round_number(2))
    early = game.algorithm.admit(game.server, rooms[2].card)
    assert "newcomer" not in game.algorithm.download(early, "room 2", round_number(1))


def test_a_room_that_has_not_trained_answers_by_prototypes(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(FedJoin(training=QUICKLY), rooms[:2]).play(2)
    new = rooms[2]  # it holds 1 and 2
    server = game.algorithm.admit(game.server, new.card)
    now = round_number(1)
    state = game.algorithm.receive(
        new,
        game.algorithm.join(new, Key(0)),
        game.algorithm.download(server, new.name, now),
        now,
    )
    counter = game.algorithm.deploy(new, state, now)
    lengths = torch.linalg.vector_norm(counter.classifier.weight, dim=1)
    assert torch.allclose(lengths[1], lengths[2], rtol=1e-5)
    assert counter.classifier.bias.tolist() == [NEVER, 0, 0]
    state, _, _ = game.algorithm.train(new, state, now)
    trained = game.algorithm.deploy(new, state, now)
    assert (trained.classifier.bias[1:] != 0).any(), "its own classifier from now on"


def test_prototypes_are_the_rooms_own_where_it_holds_the_class(make_rooms: MakeRooms) -> None:
    rooms = make_rooms(THREE)
    game = Game(FedJoin(training=QUICKLY), rooms[:2]).play(1)
    new = poor(rooms[2])
    server = game.algorithm.admit(game.server, new.card)
    download = game.algorithm.download(server, new.name, round_number(1))
    state = game.algorithm.receive(new, game.algorithm.join(new, Key(0)), download, round_number(1))
    model = game.algorithm.model(new, state)
    anchors, known = game.algorithm.anchors(new, state, model)
    own, held = super(FedJoin, game.algorithm).anchors(new, state, model)
    assert known.all()
    assert held.tolist() == [True, True, False]
    assert torch.equal(anchors[:2], own[:2])
    mean = np.mean([game.server["sets"]["prototypes"][room, 2] for room in (0, 1)], axis=0)
    np.testing.assert_allclose(anchors[2], mean, rtol=1e-6)


@pytest.mark.parametrize("hostile", [1e-300, 0.001, 90.0])
def test_a_temperature_that_no_room_can_find_is_rejected(
    make_rooms: MakeRooms, hostile: float
) -> None:
    """Rooms without validation windows divide their classifier by the mean of all."""
    (room, *_) = make_rooms()
    card = room.card
    form = FedJoin().uploads(card, round_number(2))["temperature"]
    frame = encode({"temperature": hostile})
    with pytest.raises(PayloadError, match=r"temperature has values .* expected 0.01 to 20"):
        take(frame, card, {"temperature": form})


def test_temperatures_are_averaged_as_logarithms(make_rooms: MakeRooms) -> None:
    """√(0.5 · 2) = 1, and a room without validation windows divides its scores by the mean."""
    rooms = make_rooms(windows_per_class=20)
    algorithm = FedJoin(training=QUICKLY)
    server = {**Game(algorithm, rooms).play(1).server, "temperatures": {"a": 0.5, "b": 2.0}}
    told = algorithm.download(server, rooms[0].name, round_number(2))
    assert told["temperature"] == pytest.approx(1.0)
    room = poor(rooms[0], answerable=(0, 1, 2))
    state, _, _ = algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))
    cold = algorithm.deploy(room, {**state, "temperature": 0.5}, round_number(2))
    plain = algorithm.model(room, state, net="trained")
    assert torch.allclose(cold.classifier.weight, 2 * plain.classifier.weight)


def test_windows_of_one_recording_are_guessed_together_and_once(make_rooms: MakeRooms) -> None:
    rooms = make_rooms(THREE, windows_per_class=12)
    algorithm = FedJoin(training=QUICKLY, labelled_rounds=1)
    game = Game(algorithm, rooms[:2]).play(1)
    new = poor(rooms[2], answerable=(0, 1, 2))
    server = algorithm.admit(game.server, new.card)
    state = algorithm.join(new, Key(0))
    guesses = []
    for number in (1, 2, 3):
        now = round_number(number)
        state = algorithm.receive(new, state, algorithm.download(server, new.name, now), now)
        state, upload, report = algorithm.train(new, state, now)
        server = algorithm.merge(server, {new.name: upload}, now)
        assert ("loss_unlabelled" in report) == (number > 1)
        if number > 1:
            guesses.append(np.array(state["guessed"]))
    assert (guesses[0] == guesses[1]).all(), "an error cannot feed itself"
    np.testing.assert_allclose(guesses[0].sum(axis=1), 1.0, rtol=1e-6)
    assert new.origins is not None
    origin = new.origins.recordings[new.split.unlabelled]
    for recording in np.unique(origin):
        own = guesses[0][origin == recording]
        assert (own == own[0]).all()


@pytest.mark.parametrize(
    ("setting", "answerable", "guesses"),
    [
        ("unseen", (0, 1, 2), True),
        ("unseen", (0, 1), False),
        ("always", (0, 1), True),
        ("ignore", (0, 1, 2), False),
    ],
)
def test_unlabelled_windows_are_used_where_they_help(
    make_rooms: MakeRooms, setting: str, answerable: tuple[int, ...], guesses: bool
) -> None:
    room = poor(make_rooms(THREE)[0], answerable=answerable)
    algorithm = FedJoin(training=QUICKLY, labelled_rounds=0, unlabelled=setting)
    state = {**algorithm.join(room, Key(0)), "known": np.ones(3, bool)}
    _, _, report = algorithm.train(room, state, round_number(1))
    assert ("loss_unlabelled" in report) == guesses


def test_labels_that_were_taken_away_are_never_read(make_rooms: MakeRooms) -> None:
    """With other labels on unlabelled windows training and upload are the same to the bit."""
    room = poor(make_rooms(THREE)[0], answerable=(0, 1, 2))
    labels = np.array(room.labels)
    labels[room.split.unlabelled] = 0
    shuffled = dataclasses.replace(room, labels=labels)
    algorithm = FedJoin(training=QUICKLY, labelled_rounds=0, unlabelled="always")
    made = []
    for each in (room, shuffled):
        state = {**algorithm.join(each, Key(0)), "known": np.ones(3, bool)}
        made.append(encode(algorithm.train(each, state, round_number(1))[1]))
    assert made[0] == made[1]


def test_weights_travel_in_every_kth_round(make_rooms: MakeRooms) -> None:
    game = Game(FedJoin(training=QUICKLY, weights_every=2), make_rooms())
    down, up = [], []
    for _ in range(4):
        number = game.number + 1
        told = game.algorithm.download(game.server, "room 0", round_number(number))
        down.append("weights" in told)
        game.receive()
        room = game.rooms[0]
        sent = game.algorithm.train(room, game.states[room.name], round_number(number))[1]
        up.append("weights" in sent)
        game.train()
    assert (down, up) == ([False, False, True, False], [False, True, False, True])


def test_alone_nothing_travels(make_rooms: MakeRooms) -> None:
    game = Game(FedJoinAlone(training=QUICKLY), make_rooms()).play(2)
    assert game.server == {}
    assert game.algorithm.download(game.server, "room 0", round_number(3)) == {}


def test_recordings_that_never_had_a_label_are_learned_from(make_store: MakeStore) -> None:
    """From the store through the split to a round: cafe has no label of class 2, hall has."""
    path = make_store({"cafe": {0: 2, 1: 2, None: 2}, "hall": {0: 2, 1: 2, 2: 2}})
    data = {"file": str(path), "window": 16, "split": "recording", "view": "amplitude"}
    plan = Plan.of({"data": data, "model": {"architecture": "tiny", "width": 8}})
    rooms = prepare_rooms(plan)
    game = Game(FedJoin(training=QUICKLY, labelled_rounds=1), rooms).play(3)
    assert "loss_unlabelled" in game.reports["cafe"]
    assert "loss_unlabelled" not in game.reports["hall"]
    guessed = np.array(game.states["cafe"]["guessed"])  # (8, 3): 2 recordings of 4 windows
    assert guessed.shape == (8, 3)
    np.testing.assert_allclose(guessed.sum(axis=1), 1.0, rtol=1e-6)
    assert (guessed[:4] == guessed[0]).all()
    assert (guessed[4:] == guessed[4]).all()
    alone = Game(Local(training=QUICKLY), rooms).play(1)
    assert set(alone.reports["cafe"]) == set(alone.reports["hall"]), "others leave them out"


def test_windows_without_a_label_meet_no_label(make_store: MakeStore) -> None:
    """Whatever stands in place of their class, training and upload are the same to the bit."""
    path = make_store({"cafe": {0: 2, 1: 2, None: 2}, "hall": {0: 2, 1: 2, 2: 2}})
    data = {"file": str(path), "window": 16, "split": "recording", "view": "amplitude"}
    plan = Plan.of({"data": data, "model": {"architecture": "tiny", "width": 8}})
    room = prepare_rooms(plan)[0]
    labels = np.array(room.labels)
    labels[room.split.unlabelled] = 2**40  # whoever looked something up by it would fail
    made = []
    for each in (room, dataclasses.replace(room, labels=labels)):
        algorithm = FedJoin(training=QUICKLY, labelled_rounds=0, unlabelled="always")
        state = {**algorithm.join(each, Key(0)), "known": np.ones(3, bool)}
        state, upload, report = algorithm.train(each, state, round_number(1))
        assert "loss_unlabelled" in report
        made.append(encode(upload))
    assert made[0] == made[1]


def test_what_only_rooms_of_another_net_hold_is_carried_over(make_rooms: MakeRooms) -> None:
    """Room 0 alone has its net and no window of class 2; it gets theirs in its own axes."""
    rooms = make_rooms(((0, 1), (0, 1, 2), (0, 1, 2)), architecture=("tiny", "middle", "middle"))
    game = Game(FedJoin(training=QUICKLY), rooms).play(2)
    told = game.algorithm.download(game.server, "room 0", round_number(3))
    assert told["carried"].tolist() == [False, False, True]
    assert told["known"].all()
    prototypes = game.server["sets"]["prototypes"]
    theirs, ours = prototypes[1:].mean(axis=0), prototypes[0]
    shared = np.array([True, True, False])
    np.testing.assert_allclose(
        told["mixture"][2], align_prototypes(theirs, ours, shared)[2], rtol=1e-4, atol=1e-5
    )
    assert "carried" not in game.algorithm.download(game.server, "room 1", round_number(3))


def test_without_carrying_over_a_room_of_its_own_net_hears_of_no_other_class(
    make_rooms: MakeRooms,
) -> None:
    rooms = make_rooms(((0, 1), (0, 1, 2), (0, 1, 2)), architecture=("tiny", "middle", "middle"))
    game = Game(FedJoin(training=QUICKLY, across=False), rooms).play(1)
    told = game.algorithm.download(game.server, "room 0", round_number(2))
    assert "carried" not in told
    assert told["known"].tolist() == [True, True, False]


def test_nets_that_all_differ_need_carrying_over(make_rooms: MakeRooms) -> None:
    rooms = make_rooms(THREE[:2], architecture=("tiny", "middle"))
    Game(FedJoin(training=QUICKLY), rooms).play(1)
    with pytest.raises(RosterError, match="averages nothing here"):
        Game(FedJoin(training=QUICKLY, across=False), rooms)


def test_a_room_guesses_carried_classes_by_prototypes(make_rooms: MakeRooms) -> None:
    """Its classifier has no rows for them: whatever they hold, the guesses are the same."""
    room = poor(make_rooms(THREE)[0], answerable=(0, 1, 2))
    algorithm = FedJoin(training=QUICKLY, labelled_rounds=0)
    mixture = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    known = {"known": np.ones(3, bool), "carried": np.arange(3) == 2, "mixture": mixture}
    made = []
    for level in (0.0, 100.0):
        state = algorithm.join(room, Key(0))
        weights = {name: np.array(values) for name, values in state["model"].items()}
        weights["classifier.bias"] = weights["classifier.bias"] + np.array([0, 0, level])
        state = {**state, "model": weights, **known}
        made.append(algorithm.train(room, state, round_number(1))[0]["guessed"])
    assert (made[0] == made[1]).all()


def test_consistency_is_a_loss_of_unlabelled_windows_alone(make_rooms: MakeRooms) -> None:
    room = make_rooms(THREE)[0]
    training = dataclasses.replace(QUICKLY, augment=("differences",))
    steady = FedJoin(training=training, consistency=1.0)
    plain = FedJoin(training=training)
    state = plain.join(room, Key(0))
    alike = [encode(each.train(room, state, round_number(1))[1]) for each in (steady, plain)]
    assert alike[0] == alike[1], "there are no windows without a label"
    fewer = poor(room)
    _, upload, report = steady.train(fewer, state, round_number(1))
    assert report["loss"] == pytest.approx(report["loss_ce"] + report["loss_consistency"])
    assert encode(upload) != encode(plain.train(fewer, state, round_number(1))[1])
    ignoring = dataclasses.replace(steady, unlabelled="ignore")
    assert "loss_consistency" not in ignoring.train(fewer, state, round_number(1))[2]


def test_unlabelled_windows_are_guessed_in_each_task_by_itself(make_rooms: MakeRooms) -> None:
    """Shares of the counts sum to one, and so do those of the activities; nobody looks at what
    the activities of unlabelled windows would be."""
    room = poor(make_rooms(THREE)[0])
    algorithm = FedJoin(training=QUICKLY, labelled_rounds=0, unlabelled="always")
    uploads = []
    for hidden in (0, 1):
        activity = np.arange(len(room.labels)) % 2
        activity[room.split.unlabelled] = hidden
        task = Task(ACTIVITY, ("sitting", "walking"), activity)
        both = dataclasses.replace(room, further=(task,))
        state, upload, report = algorithm.train(both, algorithm.join(both, Key(0)), round_number(1))
        guessed = np.array(state["guessed"])
        assert guessed.shape == (len(room.split.unlabelled), 5)
        np.testing.assert_allclose(guessed[:, :3].sum(axis=1), 1.0, rtol=1e-6)
        np.testing.assert_allclose(guessed[:, 3:].sum(axis=1), 1.0, rtol=1e-6)
        assert (guessed[:, 2] == 0).all(), "nobody has told of count 2"
        assert report["loss_unlabelled"] > 0
        uploads.append(encode(upload))
    assert uploads[0] == uploads[1]


def test_the_rate_of_two_tasks_is_that_of_their_classes_on_average(make_rooms: MakeRooms) -> None:
    """n windows of each of 3 counts and 1.5 n of each of 2 activities: 6 n of 5 classes, so with
    κ = 1.2 n half of the rate."""
    room = make_rooms(THREE)[0]
    task = Task(ACTIVITY, ("sitting", "walking"), np.arange(len(room.labels)) % 2)
    both = dataclasses.replace(room, further=(task,))
    number = 2 * len(room.split.train) / 5
    half = dataclasses.replace(QUICKLY, learning_rate=QUICKLY.learning_rate / 2)
    slow, plain = FedJoin(training=QUICKLY, shrinkage=number), FedJoin(training=half, shrinkage=0.0)
    state = {**slow.join(both, Key(0)), "newcomer": True}
    one, other = (each.train(both, state, round_number(1))[1] for each in (slow, plain))
    assert encode(one) == encode(other)


def test_a_room_that_may_answer_some_counts_answers_any_activity(make_rooms: MakeRooms) -> None:
    room = poor(make_rooms(THREE)[0], answerable=(0, 1))
    task = Task(ACTIVITY, ("sitting", "walking"), np.arange(len(room.labels)) % 2)
    both = dataclasses.replace(room, further=(task,))
    algorithm = FedJoin(training=QUICKLY)
    state = {**algorithm.join(both, Key(0)), "known": np.ones(5, bool)}
    assert algorithm._possible(both, state) == [0, 1, 3, 4]


def test_a_room_never_answers_a_class_that_it_cannot_have(make_rooms: MakeRooms) -> None:
    """0 and 1 in one room, 2 in others: their net has a row of it, which this room never trains."""
    small, large = make_rooms(((0, 1), (0, 1, 2)))
    game = Game(FedJoin(training=QUICKLY), [small, large]).play(3)
    for answerable, never in ((None, [False, False, True]), ((0, 1, 2), [False, False, False])):
        room = dataclasses.replace(small, answerable=answerable)
        asked = (room, game.states[room.name], round_number(4))
        deployed = game.algorithm.deploy(*asked)
        for model in (deployed, *game.algorithm.alternatives(*asked).values()):
            assert (model.classifier.bias == NEVER).tolist() == never
            assert (model.classifier.weight == 0).all(dim=1).tolist() == never
        _, answered = game.algorithm.anchors(*asked[:2], deployed)  # of the answer "nearest"
        assert (~answered).tolist() == never

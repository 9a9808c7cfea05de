"""CARING: two weights by validation accuracy, and never a look at the test windows."""

import dataclasses

import numpy as np
import pytest

from fedapa.algorithms.caring import Caring
from fedapa.errors import RosterError
from fedapa.learning.tree import weights_of
from fedapa.payload import encode
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms


def test_the_mean_by_hand(make_rooms: MakeRooms) -> None:
    """Accuracies 0.9, 0.6, 0.3 have the mean 0.6: weights 1, 1 and 0.3, whatever the windows.
    Ones, twos, threes: (1 + 2 + 0.9)/2.3."""
    algorithm, rooms = Caring(), make_rooms()
    uploads = constants(algorithm, rooms)
    for upload, accuracy in zip(uploads.values(), (0.9, 0.6, 0.3), strict=True):
        upload["accuracy"] = accuracy
    assert algorithm.influence(uploads) == {"room 0": 1.0, "room 1": 1.0, "room 2": 0.3}
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, uploads, round_number(1))
    found = algorithm.download(server, "room 0", round_number(2))["weights"]
    np.testing.assert_allclose(found["classifier.weight"], 3.9 / 2.3, rtol=1e-6)


def test_rooms_that_do_equally_well_weigh_the_same() -> None:
    """The mean of three times 0.1 is not 0.1 in floating point."""
    uploads = {f"room {index}": {"accuracy": 0.1} for index in range(3)}
    assert set(Caring().influence(uploads).values()) == {1.0}


def test_it_never_looks_at_test_windows(make_rooms: MakeRooms) -> None:
    """With NaN for test windows, training and upload are the same to the bit."""
    room = make_rooms()[0]
    windows = np.array(room.windows)
    windows[room.split.test] = np.nan
    blind = dataclasses.replace(room, windows=windows)
    algorithm = Caring(training=QUICKLY)
    seen, unseen = (
        algorithm.train(each, algorithm.join(each, Key(0)), round_number(1))[1]
        for each in (room, blind)
    )
    assert encode(seen) == encode(unseen)


def test_the_accuracy_is_that_of_the_validation_windows(make_rooms: MakeRooms) -> None:
    room = make_rooms(windows_per_class=20)[0]
    algorithm = Caring(training=QUICKLY)
    state, sent, report = algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))
    guess, truth = room.predict(algorithm.model(room, state), "validation")
    assert len(truth) > 1
    assert sent["accuracy"] == report["validation"] == (guess == truth).mean()


def test_a_room_is_scored_after_its_local_step(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(Caring(training=QUICKLY), rooms).play(2)
    trained = game.states["room 0"]["model"]
    game.receive()
    deployed, merged = game.deployed(rooms[0]), game.states["room 0"]["model"]
    for name, value in deployed.items():
        np.testing.assert_array_equal(value, trained[name])
    assert any(not np.array_equal(deployed[name], merged[name]) for name in deployed)


def test_the_merged_net_is_scored_beside_it(make_rooms: MakeRooms) -> None:
    """Like for like with FedAvg: the alternative is what the server sent."""
    rooms = make_rooms()
    game = Game(Caring(training=QUICKLY), rooms).play(2)
    game.receive()
    sent = game.states["room 0"]["model"]
    merged = Caring().alternatives(rooms[0], game.states["room 0"], round_number(3))["merged"]
    for name, value in weights_of(merged).items():
        np.testing.assert_array_equal(value, sent[name])


def without_validation(room: Room) -> Room:
    none = dataclasses.replace(room.split, validation=room.split.validation[:0])
    return dataclasses.replace(room, split=none)


def test_rooms_of_which_only_some_have_validation_windows_are_refused(
    make_rooms: MakeRooms,
) -> None:
    rooms = make_rooms()
    bare = without_validation(rooms[1])
    with pytest.raises(RosterError, match=r"room 1 has no validation windows; set data.validation"):
        Caring().open([rooms[0].card, bare.card], Key(0))
    state = Caring().open([bare.card, without_validation(rooms[2]).card], Key(0))
    with pytest.raises(RosterError, match="room 0 has validation windows and the others have none"):
        Caring().admit(state, rooms[0].card)


def test_without_validation_windows_accuracy_on_train_windows_weighs(
    make_rooms: MakeRooms,
) -> None:
    """As in the paper's protocol, where 80 % train and 20 % test; test windows stay unseen."""
    rooms = [without_validation(room) for room in make_rooms(windows_per_class=20)]
    algorithm = Caring(training=QUICKLY)
    algorithm.open([room.card for room in rooms], Key(0))
    state, sent, report = algorithm.train(
        rooms[0], algorithm.join(rooms[0], Key(0)), round_number(1)
    )
    guess, truth = rooms[0].predict(algorithm.model(rooms[0], state), "train")
    assert len(truth) == len(rooms[0].split.train)
    assert sent["accuracy"] == report["train_accuracy"] == (guess == truth).mean()
    assert "validation" not in report

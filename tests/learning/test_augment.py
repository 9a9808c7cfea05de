"""Augmentation: each kind does what it says, and what would do nothing is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedapa.errors import PlanError
from fedapa.learning.augment import Augmenter
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.windows.recipe import Recipe
from tests.conftest import MakeRooms


def room_of(make_rooms: MakeRooms, *, view: str = "amplitude", links: int = 2) -> Room:
    """Windows of 12 packets with two links of five subcarriers."""
    room = make_rooms()[0]
    recipe = Recipe(window=12, links="all", link_count=links, view=view, normaliser=room.normaliser)
    return replace(room, recipe=recipe)


def reported(room: Room, windows: torch.Tensor) -> torch.Tensor:
    normaliser = room.normaliser
    return windows * torch.from_numpy(normaliser.deviation) + torch.from_numpy(normaliser.mean)


def test_a_gain_multiplies_what_the_receiver_reported(make_rooms: MakeRooms) -> None:
    room = room_of(make_rooms)
    windows, labels = room.tensors(room.split.train)
    with Key(0).as_torch_default():
        made = Augmenter.of(room, ["gain"])(windows, labels)
    ratio = (reported(room, made) / reported(room, windows)).reshape(len(windows), -1)
    factor = ratio.median(dim=1).values
    torch.testing.assert_close(ratio, factor[:, None].expand_as(ratio), rtol=1e-3, atol=1e-3)
    assert 0.1 < factor.log().std() < 0.35
    assert len(factor.unique()) == len(windows), "each window has a gain of its own"


def test_half_of_the_windows_run_backwards(make_rooms: MakeRooms) -> None:
    room = room_of(make_rooms)
    windows, labels = room.tensors(room.split.train.repeat(8))
    with Key(0).as_torch_default():
        made = Augmenter.of(room, ["time"])(windows, labels)
    same = torch.isclose(made, windows, atol=1e-4).all(dim=(1, 2))
    turned = torch.isclose(made, windows.flip(1), atol=1e-4).all(dim=(1, 2))
    assert (same ^ turned).all()
    assert 0.35 < turned.float().mean() < 0.65


def test_links_change_places_whole(make_rooms: MakeRooms) -> None:
    room = room_of(make_rooms)
    windows, labels = room.tensors(room.split.train.repeat(4))
    with Key(0).as_torch_default():
        made = Augmenter.of(room, ["links"])(windows, labels)
    before, after = reported(room, windows), reported(room, made)
    other = torch.cat([before[:, :, 5:], before[:, :, :5]], dim=2)
    same = torch.isclose(after, before, atol=1e-3).all(dim=(1, 2))
    swapped = torch.isclose(after, other, atol=1e-3).all(dim=(1, 2))
    assert (same ^ swapped).all()
    assert same.any() and swapped.any()


def test_a_tenth_of_the_subcarriers_is_not_heard_throughout_a_window(make_rooms: MakeRooms) -> None:
    room = room_of(make_rooms)
    windows, labels = room.tensors(room.split.train.repeat(8))
    with Key(0).as_torch_default():
        made = Augmenter.of(room, ["subcarriers"])(windows, labels)
    silent = (made == 0).all(dim=1)  # (B, columns)
    assert torch.equal(made[:, 0][~silent], windows[:, 0][~silent])
    assert 0.05 < silent.float().mean() < 0.15


@pytest.mark.parametrize(
    ("view", "kind", "others"),
    [
        ("level", "gain", "'subcarriers', 'time', 'links', 'differences'"),
        ("spectrum", "time", "'subcarriers', 'links', 'differences'"),
        ("statistics", "links", "'differences'"),
    ],
)
def test_what_a_view_leaves_out_is_refused(
    make_rooms: MakeRooms, view: str, kind: str, others: str
) -> None:
    room = room_of(make_rooms, view=view)
    with pytest.raises(
        PlanError, match=f"'{kind}' changes nothing in the windows of room 'room 0'"
    ) as told:
        Augmenter.of(room, [kind])  # type: ignore[list-item]
    assert str(told.value).endswith(f"these can: {others}")


def test_one_link_cannot_be_swapped_and_finished_windows_are_not_touched(
    make_rooms: MakeRooms,
) -> None:
    with pytest.raises(PlanError, match="'links' changes nothing"):
        Augmenter.of(room_of(make_rooms, links=1), ["links"])
    with pytest.raises(PlanError, match="no packets"):
        Augmenter.of(make_rooms()[0], ["gain"])


def test_training_draws_it_from_the_key(make_rooms: MakeRooms) -> None:
    room = room_of(make_rooms)
    weights = []
    for kinds, key in (((), 1), (("links", "gain"), 1), (("links", "gain"), 1), (("links",), 1)):
        model = room.build()
        fit(model, room, cross_entropy, Training(augment=kinds), key=Key(key))
        weights.append(model.classifier.weight.detach().numpy().copy())
    assert np.array_equal(weights[1], weights[2])
    assert not np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[1], weights[3])


def test_a_difference_is_that_of_two_windows_of_one_class(make_rooms: MakeRooms) -> None:
    """By hand: of 0 and 8 (class 0) and 100 and 101 (class 1), with the windows' own axis each."""
    room = make_rooms(shape=(2,), architecture="mlp")[0]
    windows = torch.tensor([[0.0, 0], [8, 0], [0, 100], [0, 101]])
    labels = torch.tensor([0, 0, 1, 1])
    moved = set()
    for number in range(20):
        with Key(number).as_torch_default():
            made = Augmenter.of(room, ["differences"])(windows, labels) - windows
        # Class 0 differs along the first axis, class 1 along the second: never along both.
        assert (made == 0).any(dim=1).all()
        assert made[:, 0].abs().max() <= 8 * 0.6 * 5
        assert made[:, 1].abs().max() <= 1 * 0.6 * 5
        moved |= {tuple(row) for row in (made != 0).tolist()}
    assert moved == {(True, False), (False, True)}


def test_a_window_alone_in_its_class_lends_no_difference(make_rooms: MakeRooms) -> None:
    room = make_rooms(shape=(2,), architecture="mlp")[0]
    windows, labels = torch.eye(2), torch.tensor([0, 1])
    with Key(0).as_torch_default():
        assert torch.equal(Augmenter.of(room, ["differences"])(windows, labels), windows)

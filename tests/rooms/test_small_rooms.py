"""What small rooms keep from round to round: normalised windows, and nets that are only filled."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedapa.models.model import unset_copy
from fedapa.rooms import room as room_module
from fedapa.rooms.room import Room


def _room(shape: tuple[int, ...], architecture: str) -> Room:
    stream = np.random.default_rng(0)
    windows = stream.normal(3, 2, (40, *shape)).astype(np.float32)
    return Room.of("cafe", windows, [n % 2 for n in range(40)], architecture=architecture, width=8)


@pytest.mark.parametrize(("shape", "net"), [((5,), "mlp"), ((9, 4), "middle")])
def test_windows_that_are_kept_have_the_bits_of_those_that_are_not(
    shape: tuple[int, ...], net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = _room(shape, net)
    kept = [pair for _ in range(2) for pair in small.inspect("train")]
    index = small.split.train[::-1]
    drawn = small.tensors(index)
    monkeypatch.setattr(room_module, "_SMALL", 0)
    large = replace(small)
    fresh = [pair for _ in range(2) for pair in large.inspect("train")]
    for (windows, labels), (others, other_labels) in zip(
        [*kept, drawn], [*fresh, large.tensors(index)], strict=True
    ):
        assert torch.equal(windows, others)
        assert torch.equal(labels, other_labels)


@pytest.mark.parametrize(("shape", "net"), [((5,), "mlp"), ((5,), "counter"), ((9, 4), "large")])
def test_a_blank_net_is_the_built_one_but_for_its_values(shape: tuple[int, ...], net: str) -> None:
    room = _room(shape, net)
    built, blank = room.build(), room.blank()
    assert str(blank) == str(built)
    assert blank.blocks == built.blocks
    assert blank.training
    for (name, one), (other_name, other) in zip(
        built.named_parameters(), blank.named_parameters(), strict=True
    ):
        assert (name, one.shape, one.stride()) == (other_name, other.shape, other.stride())
        assert other.requires_grad
    assert blank.state_dict().keys() == built.state_dict().keys()


def test_copies_of_a_net_share_nothing_that_changes() -> None:
    net = _room((9, 4), "large").build()
    one, other = unset_copy(net), unset_copy(net)
    one.eval()
    one.encoder.register_forward_hook(lambda *_: None)
    one.register_buffer("extra", torch.zeros(1))
    assert other.training
    assert not other.encoder._forward_hooks
    assert "extra" not in dict(other.named_buffers())
    places = [{value.data_ptr() for value in some.state_dict().values()} for some in (one, other)]
    assert not places[0] & places[1]

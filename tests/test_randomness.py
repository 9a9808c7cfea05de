"""Streams: same name, same numbers; different name, different numbers; nothing global moves."""

import numpy as np
import torch

from fedapa.randomness import Key


def test_the_same_path_gives_the_same_stream() -> None:
    left, right = Key(3) / "round" / 1, Key(3) / "round" / 1
    assert left == right
    assert np.array_equal(left.numpy().normal(size=5), right.numpy().normal(size=5))
    assert torch.equal(
        torch.randn(5, generator=left.torch()), torch.randn(5, generator=right.torch())
    )


def test_paths_are_told_apart_word_by_word() -> None:
    keys = [
        Key(0) / "ab",
        Key(0) / "a" / "b",
        Key(0) / 1,
        Key(0) / "1",
        Key(1) / 1,
        Key(0),
        Key(1),
    ]
    assert len({key.number for key in keys}) == len(keys)


def test_the_number_is_the_same_on_every_machine() -> None:
    """Frozen: a change here changes every published result."""
    assert Key(0).number == 31968547004957882777163574513321328186
    assert (Key(7) / "round" / 3 / "room" / "bus").number == (
        89322952329520689355235713815927862332
    )


def test_as_torch_default_leaves_the_global_stream_alone() -> None:
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    with (Key(0) / "weights").as_torch_default():
        inside = torch.randn(3)
    assert torch.equal(torch.randn(3), expected)
    with (Key(0) / "weights").as_torch_default():
        assert torch.equal(torch.randn(3), inside)

"""A few of the random kills of `make soak`, and that another result would be seen."""

from pathlib import Path

import pytest

from tests.conftest import MakeStore
from tests.federation.kills import _compare, kill_often
from tests.federation.test_flower import THREE, plan_of


@pytest.mark.slow
def test_runs_killed_at_random_moments_end_with_the_same_bytes(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Four kills of 50; the others are the soak's."""
    killed = kill_often(plan_of(make_store(THREE), rounds=4), tmp_path, 4)
    assert killed.moments == 4
    assert killed.folders >= 1


def test_another_byte_and_a_left_over_file_are_seen() -> None:
    whole = {"checkpoint": b"1", "rounds.jsonl": b"2"}
    _compare(dict(whole), whole, Path("out"))
    with pytest.raises(AssertionError, match="out: other bytes in checkpoint"):
        _compare({**whole, "checkpoint": b"0"}, whole, Path("out"))
    with pytest.raises(AssertionError, match=r"out: other bytes in rounds\.jsonl"):
        _compare({"checkpoint": b"1"}, whole, Path("out"))
    with pytest.raises(AssertionError, match=r"left over: rooms/\.x\.partial"):
        _compare({**whole, "rooms/.x.partial": b""}, whole, Path("out"))

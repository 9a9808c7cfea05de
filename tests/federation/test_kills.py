"""That another result after a kill would be seen; the kills themselves are `make soak`'s."""

from pathlib import Path

import pytest

from tests.federation.kills import _compare


def test_another_byte_and_a_left_over_file_are_seen() -> None:
    whole = {"checkpoint": b"1", "rounds.jsonl": b"2"}
    _compare(dict(whole), whole, Path("out"))
    with pytest.raises(AssertionError, match="out: other bytes in checkpoint"):
        _compare({**whole, "checkpoint": b"0"}, whole, Path("out"))
    with pytest.raises(AssertionError, match=r"out: other bytes in rounds\.jsonl"):
        _compare({"checkpoint": b"1"}, whole, Path("out"))
    with pytest.raises(AssertionError, match=r"left over: rooms/\.x\.partial"):
        _compare({**whole, "rooms/.x.partial": b""}, whole, Path("out"))

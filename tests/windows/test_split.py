"""Splits: disjoint, seeded, honest about what they hold out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.windows.split import Split, SplitKind, split_windows

KINDS: list[SplitKind] = ["random", "blocked", "recording"]


def split(
    layout: dict[tuple[int, str], int], kind: SplitKind, seed: int = 0, **settings: float
) -> tuple[Split, np.ndarray, np.ndarray, np.ndarray]:
    """Split windows laid out as {(label, take): number}; windows of 10 rows without overlap."""
    labels = [label for (label, _), number in layout.items() for _ in range(number)]
    takes = [take for (_, take), number in layout.items() for _ in range(number)]
    starts = np.concatenate([10 * np.arange(number) for number in layout.values()])
    parts = split_windows(
        "cafe", labels, takes, starts, spans=10, kind=kind, key=Key(seed), **settings
    )
    return parts, np.asarray(labels), np.asarray(takes), starts


def regular(takes: int = 4, windows: int = 10) -> dict[tuple[int, str], int]:
    return {(label, f"{label}-{take}"): windows for label in range(3) for take in range(takes)}


@given(st.sampled_from(KINDS), st.integers(0, 500), st.integers(2, 5), st.integers(3, 12))
def test_parts_are_disjoint_and_every_class_can_be_learned_and_tested(
    kind: SplitKind, seed: int, takes: int, windows: int
) -> None:
    parts, labels, _, _ = split(regular(takes, windows), kind, seed)
    everything = np.concatenate([parts.train, parts.validation, parts.test])
    assert len(np.unique(everything)) == len(everything)
    assert set(labels[parts.train]) == {0, 1, 2}
    assert set(labels[parts.test]) == {0, 1, 2}
    too_little = (kind == "blocked" and windows < 8) or (kind == "recording" and takes < 3)
    assert len(parts.validation) > 0 or too_little
    if kind != "blocked":
        assert len(everything) == len(labels), "only gaps are left out"


def test_shares_of_a_random_split() -> None:
    """3 classes × 40 windows: 8 of each are tested; of the 96 left, 10 validate."""
    parts, labels, _, _ = split(regular(), "random")
    assert np.bincount(labels[parts.test]).tolist() == [8, 8, 8]
    assert len(parts.validation) == 10
    assert len(parts.train) == 86


def test_a_recording_split_holds_out_whole_takes() -> None:
    parts, _, takes, _ = split(regular(), "recording")
    train, checked, tested = (
        set(takes[part]) for part in (parts.train, parts.validation, parts.test)
    )
    assert not train & tested
    assert not train & checked
    assert not checked & tested
    assert len(tested) == 3, "one of four takes a class"


@given(st.integers(0, 300), st.integers(3, 12))
def test_a_blocked_split_leaves_a_gap(seed: int, windows: int) -> None:
    parts, _, takes, starts = split(regular(windows=windows), "blocked", seed)
    for held in (parts.test, parts.validation):
        for window in held:
            same = parts.train[takes[parts.train] == takes[window]]
            assert (np.abs(starts[same] - starts[window]) > 10).all()


@given(st.integers(0, 300))
def test_a_blocked_split_holds_out_runs_of_time(seed: int) -> None:
    parts, _, takes, starts = split(regular(), "blocked", seed)
    for take in set(takes[parts.test]):
        held = np.sort(starts[parts.test[takes[parts.test] == take]])
        assert (np.diff(held) == 10).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind: SplitKind) -> None:
    one, again, other = (split(regular(), kind, seed)[0] for seed in (1, 1, 2))
    assert one.test.tolist() == again.test.tolist()
    assert one.test.tolist() != other.test.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_with_one_window_is_trained_not_tested(kind: SplitKind) -> None:
    layout = {**regular(), (7, "7-0"): 1}
    parts, labels, _, _ = split(layout, kind)
    assert 7 in labels[parts.train]
    assert 7 not in labels[parts.test]
    assert 7 not in labels[parts.validation]


def test_a_class_with_two_windows_is_split_in_half() -> None:
    parts, labels, _, _ = split({**regular(), (7, "7-0"): 2}, "random")
    assert (labels[parts.test] == 7).sum() == 1
    assert (labels[parts.train] == 7).sum() == 1


def test_no_validation_where_none_is_wanted() -> None:
    parts, labels, _, _ = split(regular(), "random", validation=0.0)
    assert len(parts.validation) == 0
    assert len(parts.train) + len(parts.test) == len(labels)


@pytest.mark.parametrize(
    ("layout", "kind", "remedy"),
    [
        ({(0, "a"): 9, (1, "b"): 9}, "recording", "use split = 'blocked'"),
        ({(0, "a"): 2, (1, "b"): 2}, "blocked", "or split = 'recording'"),
        ({(0, "a"): 1, (1, "b"): 1}, "random", "record more"),
    ],
)
def test_a_split_that_leaves_nothing_to_test_offers_a_remedy(
    layout: dict[tuple[int, str], int], kind: SplitKind, remedy: str
) -> None:
    with pytest.raises(DataError, match=f"room 'cafe': split = '{kind}' .*{remedy}"):
        split(layout, kind)

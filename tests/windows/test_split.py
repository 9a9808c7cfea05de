"""Splits: disjoint, seeded, honest about what they hold out."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.windows.split import (
    LabelledClasses,
    Split,
    SplitKind,
    by_date,
    refused_splits,
    split_windows,
    with_fewer_labels,
)

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


# ---- days ----------------------------------------------------------------------------------------

Layout = dict[tuple[int, str, str], int]
"""{(label, day, take): windows}."""


def laid_out(layout: Layout, *, stride: int = 10) -> dict[str, Any]:
    """What is known of windows of 10 rows, ``stride`` rows from one to the next."""
    cells = [cell for cell, number in layout.items() for _ in range(number)]
    return {
        "labels": [label for label, _, _ in cells],
        "recordings": [f"{label} {day} {take}" for label, day, take in cells],
        "days": [day for _, day, _ in cells],
        "starts": np.concatenate([stride * np.arange(number) for number in layout.values()]),
        "spans": 10,
    }


def campaign(days: str = "abcde", takes: str = "1", windows: int = 4) -> Layout:
    """Counts 0, 1 and 2 on every day."""
    return {(n, day, take): windows for n in range(3) for day in days for take in takes}


def days_of(known: dict[str, Any], part: np.ndarray) -> set[str]:
    return {known["days"][window] for window in part}


def counts_of(known: dict[str, Any], part: np.ndarray) -> list[int]:
    return [known["labels"][window] for window in part]


@given(st.integers(0, 300))
def test_a_day_split_holds_out_whole_days(seed: int) -> None:
    """5 days of 12 windows: a fifth is one day; of the other four, a tenth is one day again."""
    known = laid_out(campaign())
    parts = split_windows("cafe", **known, kind="day", key=Key(seed))
    train, checked, tested = (
        days_of(known, part) for part in (parts.train, parts.validation, parts.test)
    )
    assert (len(train), len(checked), len(tested)) == (3, 1, 1)
    assert train | checked | tested == set("abcde")
    assert sorted(map(len, (parts.train, parts.validation, parts.test))) == [12, 12, 36]


@given(st.integers(0, 300))
def test_the_only_day_of_a_class_is_never_held_out(seed: int) -> None:
    """Count 7 was there on day c alone: day c trains, whole, in any draw."""
    known = laid_out({**campaign("abc"), (7, "c", "1"): 4})
    parts = split_windows("cafe", **known, kind="day", key=Key(seed))
    assert "c" in days_of(known, parts.train)
    assert "c" not in days_of(known, parts.test) | days_of(known, parts.validation)


def test_a_day_split_without_days_names_the_room_and_the_remedy() -> None:
    known = laid_out({**campaign("ab"), (0, "", "1"): 2})
    with pytest.raises(
        DataError,
        match=r"room 'cafe': split = 'day', but recording '0  1' has no day; import with \{day\} "
        r"in the pattern, or use split = 'recording'$",
    ):
        split_windows("cafe", **known, kind="day", key=Key(0))
    with pytest.raises(DataError, match="has no day"):
        split_windows("cafe", **{**known, "days": None}, kind="day", key=Key(0))


def test_a_later_split_keeps_to_the_order_of_time() -> None:
    """9 days of 12 windows, by thirds: 3 test, half of the other 6 validate; whatever the seed.

    Day 10 comes after day 9. Count 7 was first there on day 5, so it is nowhere; a window without
    a label is to learn from on day 2, and nowhere on day 10.
    """
    dates = [*map(str, range(2, 11))]
    known = laid_out(
        {**campaign(dates), (7, "5", "1"): 2, (None, "2", "x"): 1, (None, "10", "x"): 1}
    )
    for seed in (0, 1):
        parts = split_windows(
            "cafe", **known, kind="later", key=Key(seed), test=1 / 3, validation=1 / 2
        )
        assert days_of(known, parts.train) == {"2", "3", "4"}
        assert days_of(known, parts.validation) == {"5", "6", "7"}
        assert days_of(known, parts.test) == {"8", "9", "10"}
        assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [36] * 3
        assert days_of(known, parts.unlabelled) == {"2"}
        assert parts.kind == "later"
    assert by_date({"day 10", "day 9", "2024-03-02", "2024-03-01"}) == [
        *("2024-03-01", "2024-03-02", "day 9", "day 10"),
    ]


def test_a_later_split_always_leaves_a_day_to_learn_from() -> None:
    known = laid_out(campaign("abc"))
    parts = split_windows("cafe", **known, kind="later", key=Key(0), test=0.9, validation=0.9)
    found = [days_of(known, part) for part in (parts.train, parts.validation, parts.test)]
    assert found == [{"a"}, {"b"}, {"c"}]
    none = split_windows("cafe", **known, kind="later", key=Key(0), test=0.3, validation=0.0)
    assert days_of(known, none.train) == {"a", "b"}
    with pytest.raises(DataError, match="recorded on 2 of at least 3 days; record more"):
        split_windows("cafe", **laid_out(campaign("ab")), kind="later", key=Key(0))


def test_later_days_without_a_class_of_the_first_are_refused() -> None:
    layout = {(count, day, "1"): 4 for count in (0, 1) for day in "abef"}
    known = laid_out({**layout, (2, "c", "1"): 4, (2, "d", "1"): 4})
    with pytest.raises(DataError, match=r"no validation windows with split = 'later': .*\(c, d\)"):
        split_windows("cafe", **known, kind="later", key=Key(0), test=1 / 3, validation=1 / 2)


def test_a_day_that_is_held_out_lends_no_window_without_a_label() -> None:
    known = laid_out({**campaign("abcd"), **{(None, day, "x"): 1 for day in "abcd"}})
    parts = split_windows("cafe", **known, kind="day", key=Key(0))
    held_out = days_of(known, parts.test) | days_of(known, parts.validation)
    assert held_out
    assert days_of(known, parts.unlabelled) == set("abcd") - held_out


@pytest.mark.parametrize("kind", ["day", "later", "recording", "blocked", "random"])
def test_what_was_labelled_later_trains_but_for_days_that_are_held_out(kind: SplitKind) -> None:
    """The other parts are those of the same room without it."""
    layout = campaign("abcd")
    known = laid_out({**layout, **{(1, day, "late"): 2 for day in "abcd"}})
    plain = laid_out(layout)
    late = [take.endswith("late") for take in known["recordings"]]
    assert sum(late) == 8
    assert np.flatnonzero(late)[0] == len(plain["labels"]), "they are the last"
    parts = split_windows("cafe", **known, kind=kind, key=Key(0), train_only=late)
    without = split_windows("cafe", **plain, kind=kind, key=Key(0))
    assert parts.test.tolist() == without.test.tolist()
    assert parts.validation.tolist() == without.validation.tolist()
    added = np.setdiff1d(parts.train, without.train)
    days = set("abcd")
    if kind in ("day", "later"):
        days -= days_of(known, parts.test) | days_of(known, parts.validation)
    assert days_of(known, added) == days
    assert set(added) <= set(np.flatnonzero(late))
    assert not len(parts.unlabelled)


def test_days_that_are_each_the_only_one_of_a_class_leave_nothing_to_test() -> None:
    known = laid_out({(0, "a", "1"): 4, (1, "b", "1"): 4})
    with pytest.raises(DataError, match=r"every day is the only one of some class.*'recording'"):
        split_windows("cafe", **known, kind="day", key=Key(0))


# ---- which splits a room allows ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "reasons"),
    [
        (campaign("abc"), {}),
        (campaign("ab"), {"day": "was recorded on 2 of at least 3 days"}),
        (
            {**campaign("abc"), (7, "a", "1"): 4, (7, "a", "2"): 4},
            {"day": "has class 7 on a single day"},
        ),
        (
            {**campaign("abc"), (7, "", "1"): 2, (7, "b", "1"): 2},
            {
                "day": "has recordings without a day",
                "blocked": "has no recording of 3 windows of class 7",
            },
        ),
        (
            {**campaign("abc"), (7, "a", "1"): 1},
            {
                "day": "has class 7 on a single day",
                "recording": "has a single recording of class 7",
                "blocked": "has no recording of 3 windows of class 7",
            },
        ),
    ],
)
def test_a_room_says_which_splits_it_does_not_allow(
    layout: Layout, reasons: dict[str, str]
) -> None:
    assert refused_splits(**laid_out(layout)) == reasons


def test_overlap_forbids_random_and_makes_recordings_shorter() -> None:
    """4 windows of 10 rows at a stride of 5 span 25 rows; of 3, the last begins where the first
    ends, so that nothing could be left beyond a gap."""
    assert refused_splits(**laid_out(campaign("abc"), stride=5)) == {
        "random": "has windows that overlap"
    }
    short = refused_splits(**laid_out(campaign("abc", windows=3), stride=5))
    assert short["blocked"] == "has no recording of 3 windows of class 0"


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.sampled_from([5, 10]))
def test_what_a_room_allows_can_be_split(days: int, takes: int, windows: int, stride: int) -> None:
    known = laid_out(campaign("abcd"[:days], "123"[:takes], windows), stride=stride)
    refused = refused_splits(**known)
    for kind in {*KINDS, "day"} - set(refused):
        if (kind, windows * takes * days) != ("random", 1):
            assert len(split_windows("cafe", **known, kind=kind, key=Key(0)).test)


# ---- validation of every class -------------------------------------------------------------------


@given(st.integers(0, 300))
def test_every_class_of_four_recordings_validates(seed: int) -> None:
    """Per count 4 takes of 4 windows: 16 · 0.2 = 3 windows are one take to test; of the 12 left a
    tenth is 1 window, so one take validates and two train. Count 7 has 3 takes: one is tested, none
    validates, two train."""
    layout = {**campaign("ab", "12"), **{(7, "a", take): 4 for take in "123"}}
    known = laid_out(layout)
    parts = split_windows("cafe", **known, kind="recording", key=Key(seed), validation_of="class")
    assert counts_of(known, parts.validation) == [0] * 4 + [1] * 4 + [2] * 4
    assert counts_of(known, parts.train) == [0] * 8 + [1] * 8 + [2] * 8 + [7] * 8
    assert counts_of(known, parts.test) == [0] * 4 + [1] * 4 + [2] * 4 + [7] * 4


def test_the_last_recording_of_a_class_trains() -> None:
    """Four takes of which 0.7 are tested: 11 windows, so three takes; the fourth must train."""
    known = laid_out(campaign("ab", "12"))
    parts = split_windows(
        "cafe", **known, kind="recording", key=Key(0), test=0.7, validation_of="class"
    )
    assert counts_of(known, parts.train) == [0] * 4 + [1] * 4 + [2] * 4
    assert not len(parts.validation)


def test_every_class_of_four_windows_validates_in_a_random_split() -> None:
    """Of 20 windows 4 are tested and a tenth of 16, two, validate; of 3 windows none does."""
    known = laid_out({**campaign(), (7, "a", "1"): 3})
    parts = split_windows("cafe", **known, kind="random", key=Key(0), validation_of="class")
    assert counts_of(known, parts.validation) == [0] * 2 + [1] * 2 + [2] * 2


@given(st.integers(0, 100))
def test_every_class_with_room_for_a_block_validates(seed: int) -> None:
    """20 windows in one take: a block of 4 is tested, with a gap of one or two; a tenth of the 14
    or 15 that are left is a block of one or two."""
    known = laid_out(campaign("a", windows=20))
    parts = split_windows("cafe", **known, kind="blocked", key=Key(seed), validation_of="class")
    assert all(number in (1, 2) for number in np.bincount(counts_of(known, parts.validation)))


@given(st.integers(0, 300))
def test_validation_days_cover_every_class_of_four_days(seed: int) -> None:
    """Count 0 is there on a to e, count 1 on f to j. One day is a tenth of what is left, but only
    one of the counts: a day of the other is held out too. Days stay whole."""
    layout = {(0, day, "1"): 4 for day in "abcde"} | {(1, day, "1"): 4 for day in "fghij"}
    known = laid_out(layout)
    of_room, of_class = (
        split_windows("cafe", **known, kind="day", key=Key(seed), validation_of=of)
        for of in ("room", "class")
    )
    assert of_class.test.tolist() == of_room.test.tolist()
    assert len(of_room.validation) == 4
    assert set(counts_of(known, of_class.validation)) == {0, 1}
    assert not days_of(known, of_class.train) & days_of(known, of_class.validation)
    assert set(counts_of(known, of_class.train)) == {0, 1}


# ---- overlapping windows, continuous recordings --------------------------------------------------


@given(st.sampled_from(["day", "recording", "blocked"]), st.integers(0, 200), st.integers(2, 10))
def test_held_out_windows_do_not_overlap_each_other(
    kind: SplitKind, seed: int, stride: int
) -> None:
    known = laid_out(campaign(takes="12", windows=30), stride=stride)
    parts = split_windows("cafe", **known, kind=kind, key=Key(seed))
    takes, starts = np.asarray(known["recordings"]), known["starts"]
    for part in (parts.test, parts.validation):
        for take in set(takes[part]):
            assert (np.diff(starts[part[takes[part] == take]]) >= 10).all()


def test_overlapping_windows_all_train_and_every_second_is_tested() -> None:
    """9 windows of 10 rows at a stride of 5 begin at 0, 5 … 40: 0, 10, 20, 30 and 40 are tested."""
    known = laid_out(campaign("ab", windows=9), stride=5)
    parts = split_windows("cafe", **known, kind="recording", key=Key(0), validation=0.0)
    assert known["starts"][parts.test].tolist() == [0, 10, 20, 30, 40] * 3
    assert known["starts"][parts.train].tolist() == list(range(0, 45, 5)) * 3


def test_overlapping_windows_cannot_be_split_at_random() -> None:
    known = laid_out(campaign(), stride=9)
    with pytest.raises(DataError, match=r"room 'cafe': split = 'random', .* share packets; use"):
        split_windows("cafe", **known, kind="random", key=Key(0))


@pytest.mark.parametrize("kind", [*KINDS, "day", "later"])
def test_continuous_recordings_neither_train_nor_test(kind: SplitKind) -> None:
    """They change nothing for the others."""
    plain = laid_out(campaign())
    more = laid_out({**campaign(), (9, "", "long"): 20})
    continuous = [label == 9 for label in more["labels"]]
    before = split_windows("cafe", **plain, kind=kind, key=Key(0))
    after = split_windows("cafe", **more, continuous=continuous, kind=kind, key=Key(0))
    for part in ("train", "validation", "test"):
        assert getattr(after, part).tolist() == getattr(before, part).tolist()
    assert after.continuous.tolist() == list(range(60, 80))
    assert before.continuous.tolist() == []
    assert refused_splits(**more, continuous=continuous) == {}


def test_windows_of_a_continuous_recording_lie_end_to_end() -> None:
    """8 windows of 10 rows at a stride of 5 begin at 0, 5 … 35: 0, 10, 20 and 30 are counted."""
    known = laid_out({**campaign("ab"), (9, "", "long"): 8}, stride=5)
    continuous = [label == 9 for label in known["labels"]]
    parts = split_windows("cafe", **known, continuous=continuous, kind="recording", key=Key(0))
    assert known["starts"][parts.continuous].tolist() == [0, 10, 20, 30]


def test_a_room_of_continuous_recordings_only_has_nothing_to_learn_from() -> None:
    known = laid_out(campaign("a"))
    with pytest.raises(DataError, match="room 'cafe' has continuous recordings only"):
        split_windows("cafe", **known, continuous=[True] * 12, kind="random", key=Key(0))


def test_fewer_recordings_by_hand() -> None:
    """Three recordings of 0 and two of 1 train; of two asked for, each class keeps two."""
    labels = [0] * 6 + [1] * 4 + [0, 1]
    recordings = [*"aabbccddee", "t", "u"]
    split = Split(np.arange(10), np.zeros(0, np.int64), np.array([10, 11]), kind="recording")

    def kept(most: int) -> list[str]:
        starts = np.zeros(12, np.int64)
        fewer = with_fewer_labels(
            split, labels, recordings, starts, most_recordings=most, key=Key(3)
        )
        assert fewer.test is split.test
        return [recordings[window] for window in fewer.train]

    one, two = kept(1), kept(2)
    assert len(one) == 4
    assert len(set(one) & set("abc")) == len(set(one) & set("de")) == 1
    assert len(set(two) & set("abc")) == len(set(two) & set("de")) == 2
    assert set(one) < set(two)
    assert kept(3) == kept(99) == list("aabbccddee")


def test_fewer_windows_are_labelled_one_after_the_other() -> None:
    """Of ten windows in two recordings three follow each other, perhaps around the end."""
    labels, recordings = [0] * 10 + [1] * 10, [*"aaaaabbbbbcccccddddd"]
    starts = np.tile(np.arange(5) * 10, 4)
    nothing = np.zeros(0, np.int64)
    split = Split(np.arange(20), nothing, nothing)

    def kept(most: int) -> set[int]:
        fewer = with_fewer_labels(split, labels, recordings, starts, most_windows=most, key=Key(1))
        return set(fewer.train.tolist())

    three = kept(3)
    for first in (0, 10):
        mine = sorted(place - first for place in three if first <= place < first + 10)
        assert len(mine) == 3
        assert any({(one + step) % 10 for step in range(3)} == set(mine) for one in range(10))
    assert three < kept(4)
    assert kept(99) == set(range(20))


@pytest.mark.parametrize(
    ("which", "expected"),
    [("lower", {0, 2, 4}), ("upper", {4, 8, 10}), ("alternate", {0, 4, 10}), ("all", None)],
)
def test_labels_for_some_classes(which: LabelledClasses, expected: set[int] | None) -> None:
    """0, 2, 4, 8, 10 in this order, not as text; the rest and validation have no label then."""
    counts = (0, 2, 4, 8, 10)
    labels = [count for count in counts for _ in range(4)]
    train = np.array([place for place in range(20) if place % 4 < 2])
    split = Split(train, np.arange(2, 20, 4), np.arange(3, 20, 4))
    fewer = with_fewer_labels(
        split, labels, ["a"] * 20, np.arange(20), classes=which, keep=True, key=Key(0)
    )
    assert {labels[place] for place in fewer.train} == (expected or set(counts))
    assert len(fewer.validation) == 0
    assert fewer.test is split.test
    without = np.sort(np.concatenate([fewer.train, fewer.unlabelled]))
    assert without.tolist() == sorted([*split.train, *split.validation])
    assert fewer.withheld is split.train


def test_two_classes_keep_their_labels_at_least() -> None:
    split = Split(np.arange(4), np.zeros(0, np.int64), np.zeros(0, np.int64))
    for which in get_args(LabelledClasses):
        fewer = with_fewer_labels(
            split, [0, 0, 1, 1], [*"abcd"], np.zeros(4, np.int64), classes=which, key=Key(0)
        )
        assert len(fewer.train) == 4


@pytest.mark.parametrize("kind", ["random", "blocked", "recording", "day"])
def test_windows_without_a_label_are_in_a_part_of_their_own(kind: SplitKind) -> None:
    """Whatever the kind, the split of the others is the one that they have alone."""
    labels: list[int | None] = [label for label in (0, 1) for _ in range(24)]
    recordings = [f"{label}-{place // 6}" for label in (0, 1) for place in range(24)]
    days = [f"day {place % 24 // 6}" for place in range(48)]
    starts = np.tile(np.arange(6) * 10, 8)
    how: dict[str, Any] = {"spans": 10, "kind": kind, "key": Key(0)}
    alone = split_windows("cafe", labels, recordings, starts, days=days, **how)
    # Between the others, overlapping, without a day, one of them continuous.
    more = split_windows(
        "cafe",
        [None, None, *labels, None, 1],
        ["x", "x", *recordings, "y", "walk"],
        np.array([0, 5, *starts, 0, 0]),
        days=["", "", *days, "", ""],
        continuous=[False] * 51 + [True],
        **how,
    )
    for part in ("train", "validation", "test"):
        assert (getattr(more, part) - 2).tolist() == getattr(alone, part).tolist()
    assert more.unlabelled.tolist() == [0, 1, 50], "all of them, as in train"
    assert more.continuous.tolist() == [51]
    assert len(alone.unlabelled) == 0
    assert more.seen.tolist() == sorted([*more.train, *more.unlabelled])


def test_windows_without_a_label_refuse_no_split() -> None:
    labels = [0] * 8 + [1] * 8
    recordings = [*"aaaabbbbccccdddd"]
    starts = np.tile(np.arange(4) * 10, 4)
    alone = refused_splits(labels, recordings, starts, spans=10, days=["mon"] * 16)
    more = refused_splits(
        [*labels, None], [*recordings, "x"], np.array([*starts, 3]), spans=10, days=["mon"] * 17
    )
    assert more == alone
    assert set(alone) == {"day"}


def test_a_room_without_any_label_is_refused() -> None:
    with pytest.raises(DataError, match=r"room 'cafe' has no windows with a label: .* import lab"):
        split_windows(
            "cafe", [None] * 4, [*"aabb"], np.arange(4), spans=1, kind="random", key=Key(0)
        )


def test_labels_that_are_taken_away_join_those_that_never_were() -> None:
    nothing = np.zeros(0, np.int64)
    split = Split(np.arange(8), nothing, nothing, unlabelled=np.array([8, 9]))
    labels = [0, 0, 0, 0, 1, 1, 1, 1, None, None]
    how: dict[str, Any] = {"most_windows": 1, "key": Key(0)}
    arrays = (labels, ["a"] * 10, np.arange(10))
    assert with_fewer_labels(split, *arrays, **how).unlabelled.tolist() == [8, 9]
    kept = with_fewer_labels(split, *arrays, keep=True, **how)
    assert kept.unlabelled.tolist() == sorted({*range(10)} - {*kept.train.tolist()})

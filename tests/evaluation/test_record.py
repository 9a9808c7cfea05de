"""Records: whole lines, means over the last five rounds, never the best."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa.evaluation.outcomes import blind_row, outcome_of
from fedapa.evaluation.record import (
    JsonLines,
    alternatives_in,
    between_rooms,
    by_room,
    entropies,
    over_rooms,
    summarise,
    suspects,
)
from fedapa.evaluation.results import outcome_at


def test_lines_are_kept_whole(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "rounds.jsonl")
    assert lines.read() == []
    for number in range(3):
        lines.append({"round": number})
    with lines.path.open("a") as file:
        file.write('{"round": 3, "unfin')
    assert [each["round"] for each in lines.read()] == [0, 1, 2]
    lines.keep(2)
    assert lines.path.read_text() == '{"round": 0}\n{"round": 1}\n'


def test_nan_does_not_get_into_a_record(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        JsonLines(tmp_path / "x").append({"loss": float("nan")})


def test_over_rooms_by_hand() -> None:
    """Accuracies 0.2 and 0.8 with 1 and 3 test windows: mean 0.5, deviation 0.3, weighted 0.65."""
    found = over_rooms({"a": {"accuracy": 0.2}, "b": {"accuracy": 0.8}}, {"a": 1, "b": 3})
    assert found["mean"]["accuracy"] == pytest.approx(0.5)
    assert found["std"]["accuracy"] == pytest.approx(0.3)
    assert found["weighted"]["accuracy"] == pytest.approx(0.65)


def test_a_metric_that_some_rooms_lack_is_over_the_others_and_says_so() -> None:
    """Rooms a and c have an error after 60 s, 1 and 2 people with 1 and 3 test windows: 1.5, and
    weighted 1.75. Room d has no score at all and is none of those that lack it."""
    whole = {room: {"accuracy": 0.5} for room in "abc"}
    some = {**whole, "a": {"accuracy": 0.5, "mae_60s": 1.0}, "c": {"accuracy": 0.5, "mae_60s": 2.0}}
    weights = {"a": 1, "b": 2, "c": 3, "d": 4}
    found = over_rooms({**some, "d": {}}, weights)
    assert found["mean"]["mae_60s"] == pytest.approx(1.5)
    assert found["std"]["mae_60s"] == pytest.approx(0.5)
    assert found["weighted"]["mae_60s"] == pytest.approx(1.75)
    assert found["fewer_rooms"] == {"mae_60s": 2}
    assert set(over_rooms({**whole, "d": {}}, weights)) == {"mean", "std", "weighted"}
    records = [
        {
            "round": 1,
            "rooms": {
                room: {**told, "bytes_up": 0, "bytes_down": 0} for room, told in some.items()
            },
        }
    ]
    windows = {room: {"train": 1, "validation": 0, "test": weights[room]} for room in "abc"}
    blind = {room: {"constant": told} for room, told in some.items()}
    summary = summarise(records, blind=blind, windows=windows)
    assert summary["over_rooms"] == found
    assert summary["blind"]["constant"]["fewer_rooms"] == {"mae_60s": 2}
    at = outcome_at(records, 1)
    assert at is not None
    assert at["fewer_rooms"] == {"mae_60s": 2}
    row = blind_row("constant", {0: summary["blind"]}, [1])
    assert row.rooms_behind(1, "mae_60s") == [(2, 3)]
    assert row.of_every_room(1, "accuracy") and not row.of_every_room(1, "mae_60s")


def test_the_summary_is_the_mean_of_the_last_five_rounds() -> None:
    """Accuracies 0.9, 0.1, 0.2, 0.3, 0.4, 0.5: the best round is not the answer, 0.3 is."""
    records: list[dict[str, Any]] = [
        {
            "round": number + 1,
            "rooms": {
                "a": {"accuracy": value, "macro_f1": value, "bytes_up": 10, "bytes_down": 20}
            },
        }
        for number, value in enumerate([0.9, 0.1, 0.2, 0.3, 0.4, 0.5])
    ]
    summary = summarise(
        records,
        blind={"a": {"constant": {"accuracy": 0.1, "macro_f1": 0.1}}},
        windows={"a": {"train": 8, "validation": 1, "test": 2}},
    )
    assert summary["rooms"]["a"]["accuracy"] == pytest.approx(0.3)
    assert summary["averaged_rounds"] == [2, 3, 4, 5, 6]
    assert summary["bytes"] == {"bytes_up": 60, "bytes_down": 120, "per_round_and_room": 30.0}
    assert summary["blind"]["constant"]["mean"]["accuracy"] == 0.1


def test_alternatives_have_a_summary_of_their_own() -> None:
    """Two rounds, two rooms: means 0.25 and 0.75 over rounds, 0.5 over rooms; a figure that one
    record lacks is left out."""
    records = [
        {
            "round": number,
            "rooms": {
                room: {
                    "accuracy": 1.0,
                    "macro_f1": 1.0,
                    "nearest.accuracy": base + 0.1 * number,
                    **({"merged.accuracy": 0.5} if number == 1 else {}),
                    "bytes_up": 0,
                    "bytes_down": 0,
                }
                for room, base in (("a", 0.1), ("b", 0.6))
            },
        }
        for number in (1, 2)
    ]
    windows = {room: {"train": 1, "validation": 0, "test": 1} for room in ("a", "b")}
    blind = {room: {} for room in ("a", "b")}
    alternatives = summarise(records, blind=blind, windows=windows)["alternatives"]
    assert set(alternatives) == {"nearest"}
    assert alternatives["nearest"]["rooms"]["a"]["accuracy"] == pytest.approx(0.25)
    assert alternatives["nearest"]["over_rooms"]["mean"]["accuracy"] == pytest.approx(0.5)


def test_a_room_that_was_absent_is_averaged_over_the_rounds_that_it_has() -> None:
    """Of the last five rounds b has two: 0.2 and 0.4 give 0.3; c has none and no figure. A mean
    over rooms is over those that have one: a's 0.5 and b's 0.3 give 0.4."""
    moved = {"bytes_up": 10, "bytes_down": 20}
    half = {**moved, "participated": True}
    records: list[dict[str, Any]] = [
        {
            "round": number,
            "rooms": {
                "a": {**moved, "accuracy": 0.5},
                **({"b": {**moved, "accuracy": 0.1 * number}} if number in (2, 4) else {}),
                **({"b": half, "c": half} if number == 5 else {}),
            },
        }
        for number in (1, 2, 3, 4, 5)
    ]
    names = ("a", "b", "c")
    summary = summarise(
        records,
        blind={room: {"constant": {"accuracy": 0.1}} for room in names},
        windows={room: {"train": 8, "validation": 1, "test": 2} for room in names},
    )
    assert summary["rooms"]["b"]["accuracy"] == pytest.approx(0.3)
    assert summary["averaged_fewer"] == {"b": 2}
    assert set(summary["rooms"]) == set(summary["windows"]) == {"a", "b"}
    assert summary["over_rooms"]["mean"]["accuracy"] == pytest.approx(0.4)
    assert summary["bytes"]["per_round_and_room"] == 30.0
    found = outcome_at(records, 5)
    assert found is not None
    assert found["rooms"]["b"]["accuracy"] == pytest.approx(0.3)
    assert over_rooms({}, {}) == {"mean": {}, "std": {}, "weighted": {}}


def test_what_is_between_rooms_is_found_by_their_names() -> None:
    """Rooms a and c were weighed, b only told a score; of b nothing is known."""
    line = {
        "rooms": {"a": {}, "b": {}, "c": {}},
        "members": ["a", "c"],
        "server": {"weights": [[0.7, 0.3], [0.4, 0.6]]},
    }
    found = between_rooms(line, "weights", ["a", "b", "c"])
    assert found[[0, 0, 2, 2], [0, 2, 0, 2]].tolist() == [0.7, 0.3, 0.4, 0.6]
    assert np.isnan(found[1]).all() and np.isnan(found[:, 1]).all()


def test_what_rooms_tell_is_found_by_their_names_round_by_round() -> None:
    """Room b joins in the second round, and c says nothing of it in the first."""
    records = [
        {"rooms": {"a": {"loss": 1.0}, "c": {}}},
        {"rooms": {"c": {"loss": 4.0}, "b": {"loss": 3.0}, "a": {"loss": 2}}},
    ]
    np.testing.assert_array_equal(
        by_room(records, "loss", ["a", "b", "c"]), [[1.0, np.nan, np.nan], [2.0, 3.0, 4.0]]
    )


def test_entropies_are_those_recorded_or_else_those_of_the_weights() -> None:
    """−½ ln ½ − ½ ln ½ = ln 2 for room a, 0 for c, which takes of itself alone; b is not there."""
    line = {
        "rooms": {"a": {}, "c": {}},
        "members": ["a", "c"],
        "server": {"weights": [[0.5, 0.5], [0.0, 1.0]]},
    }
    later = {
        "rooms": {"b": {}},
        "members": ["b"],
        "server": {"weights": [[1.0]]},
    }
    names = ["a", "b", "c"]
    np.testing.assert_allclose(
        entropies([line, later], names), [[np.log(2), np.nan, 0.0], [np.nan, 0.0, np.nan]]
    )
    told = {**line, "rooms": {"a": {"entropy": 0.4}, "c": {"entropy": 0.1}}}
    np.testing.assert_array_equal(entropies([told], names), [[0.4, np.nan, 0.1]])


def test_an_outcome_of_rounds_that_nobody_scored() -> None:
    """Rounds 1 and 3 have no score: the curve has nothing there, and the figure is round 2's."""
    lines = [
        {
            "round": number,
            "rooms": {"a": {"bytes_up": 1, "bytes_down": 1, **({"accuracy": 0.5} if told else {})}},
            **over_rooms({"a": {"accuracy": 0.1 * number}} if told else {}, {"a": 1}),
        }
        for number, told in ((1, False), (2, True), (3, False))
    ]
    made = outcome_of(lines, [3], seed=0, run="", commits=[])
    assert made.curve["accuracy"] == [None, 0.2, None]
    assert made.over_rooms == [None, 0.0, None]
    assert made.at["3"]["mean"]["accuracy"] == 0.5
    assert made.bytes == [2, 4, 6]
    assert alternatives_in(lines) == []


def test_suspects_are_rooms_named_in_half_of_the_rounds_that_judged_them() -> None:
    """Of four rounds "a" is named in three, "b" in two, "c" in one: it is no suspect."""
    trust = {"a": 0.0, "b": 0.5, "c": 1.0, "d": 1.0}
    named = ["ab", "ab", "ac", ""]
    records: list[dict[str, Any]] = [
        {
            "rooms": {room: {"trust": own} for room, own in trust.items()},
            "suspects": dict.fromkeys(rooms, f"reason {number}"),
        }
        for number, rooms in enumerate(named)
    ]
    found = suspects([*records, {"rooms": {"a": {}}}])
    assert [(one["room"], one["rounds"], one["judged"]) for one in found] == [
        ("a", 3, 4),
        ("b", 2, 4),
    ]
    assert found[0]["reason"] == "reason 2"
    assert found[1]["trust"] == 0.5

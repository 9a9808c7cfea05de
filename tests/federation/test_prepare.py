"""From a plan to rooms: steps that a room does alone, and what the server agrees on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedapa import Plan
from fedapa.errors import DataError, PlanError, RosterError
from fedapa.federation.messages import Agreement
from fedapa.federation.participant import introduce
from fedapa.federation.prepare import (
    agree,
    cut_windows,
    describe,
    make_room,
    prepare_rooms,
    survey_rooms,
    tell_data,
)
from fedapa.models.build import assign_by_size
from fedapa.rooms.card import DataCard
from fedapa.stores.store import write_store
from fedapa.windows.labels import NO_CLASS
from fedapa.windows.normalise import Normaliser
from tests.conftest import MakeStore

THREE = {"cafe": {0: 4, 1: 4, 2: 4}, "hall": {0: 2, 2: 2}, "lab": {1: 3, 2: 3}}


def plan_of(store: Path, **values: Any) -> Plan:
    data = {"file": str(store), "window": 16, "split": "random"}
    base = {"data": data, "model": {"architecture": "by-size", "width": 16}}
    return Plan.of(base, values)


def test_rooms_that_prepare_alone_are_those_of_one_process(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Each room has a store of its own; only cards meet, and what was agreed comes back."""
    whole = make_store(THREE)
    plans = {}
    with h5py.File(whole) as together:
        for room in THREE:
            path = tmp_path / f"{room}.h5"
            with h5py.File(path, "w") as alone:
                for name, value in together.attrs.items():
                    alone.attrs[name] = value
                together.copy(room, alone)
            plans[room] = plan_of(path)
    cards = [tell_data(plans[room], *survey_rooms(plans[room])) for room in sorted(plans)]
    agreed = agree(plan_of(whole), cards)
    windows = {room: cut_windows(plan, view=agreed.view)[0] for room, plan in plans.items()}
    assert agreed.classes == (0, 1, 2)
    assert set(agreed.nets.values()) == {"tiny", "middle", "large"}
    for expected in prepare_rooms(plan_of(whole)):
        name = expected.name
        made = make_room(plans[name], windows[name], agreed=agreed)
        assert introduce(made) == introduce(expected)
        np.testing.assert_array_equal(made.windows, expected.windows)
        np.testing.assert_array_equal(made.split.test, expected.split.test)


def test_window_shapes_that_do_not_fit_are_refused_by_name_with_a_remedy() -> None:
    cards = [
        DataCard("cafe", (0, 1), (16, 52), {"train": 8, "validation": 1, "test": 2}),
        DataCard("hall", (0, 1), (16, 64), {"train": 8, "validation": 1, "test": 2}),
    ]
    plan = Plan(data={"view": "amplitude", "split": "recording"})
    with pytest.raises(
        DataError, match=r"room 'hall' has windows of \(16, 64\), room 'cafe' .*same bandwidth"
    ):
        agree(plan, cards)
    alike = {"spectrum": (16, 8), "statistics": (169,)}
    told = [replace(card, view_shapes={"amplitude": card.window_shape, **alike}) for card in cards]
    remedy = "one window shape: with data.view = 'spectrum' or 'statistics' they have one"
    with pytest.raises(DataError, match=remedy):
        agree(plan, told)


def test_what_cannot_agree_is_told_with_the_rooms() -> None:
    card = DataCard("cafe", (0, 1), (16, 52), {"train": 8, "validation": 1, "test": 2})
    with pytest.raises(RosterError, match="no rooms to agree"):
        agree(Plan(), [])
    with pytest.raises(RosterError, match="room 'cafe' appears twice"):
        agree(Plan(), [card, card])
    others = [replace(card, name=name, labels=("sit", "walk")) for name in ("hall", "lab")]
    with pytest.raises(DataError, match=r"0 … in room 'cafe', 'walk' … in room 'hall', room 'lab'"):
        agree(Plan(data={"split": "random"}), [card, *others])


def test_a_room_that_did_not_agree_is_named(make_store: MakeStore) -> None:
    plan = plan_of(make_store(THREE))
    windows = cut_windows(plan)[0]
    agreed = Agreement((0, 1, 2), (16, 6), {"hall": "tiny"}, "random")
    with pytest.raises(RosterError, match=r"room 'cafe' is not among those that agreed \(hall\)"):
        make_room(plan, windows, agreed=agreed)


def test_windows_that_are_seen_otherwise_than_agreed_are_refused(make_store: MakeStore) -> None:
    plan = plan_of(make_store(THREE))
    agreed = Agreement((0, 1, 2), (16, 6), {"cafe": "tiny"}, "random", view="motion")
    with pytest.raises(RosterError, match=r"seen as 'amplitude', the rooms agreed on 'motion'"):
        make_room(plan, cut_windows(plan)[0], agreed=agreed)


def test_rooms_of_other_shapes_are_refused_before_windows_are_dealt(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    with write_store(path) as store:
        for room, width in (("a", 8), ("b", 9)):
            store.add_room(room, synthetic=False, about={})
            for label in (0, 1):
                rows = np.random.RandomState(label).rand(20, width).astype(np.float32)
                store.add_features(room, f"P{label}", label=label, features=rows + label)
    dealt = {"partition": "classes", "partition_rooms": 2}
    for data in ({}, dealt):
        plan = plan_of(path, model={"architecture": "mlp"}, data=data)
        with pytest.raises(DataError, match=r"rooms\.h5.*room 'b' has windows of \(9,\)"):
            prepare_rooms(plan)


def test_recordings_of_other_subcarriers_are_named(make_store: MakeStore) -> None:
    mixed = make_store({"cafe": {0: 1, 1: 1}}, name="mixed.h5")
    with h5py.File(mixed, "r+") as file:
        file.copy("cafe", "hall")
        for recording in ("0-0", "1-0"):
            del file["hall"][recording]["amplitude"]
            file["hall"][recording]["amplitude"] = np.random.rand(64, 5, 1)  # noqa: NPY002
    with pytest.raises(DataError, match=r"room 'hall' has windows of \(32, 5\), room 'cafe'"):
        prepare_rooms(plan_of(mixed, data={"window": 32, "view": "amplitude"}))


# ---- one way to split for all rooms --------------------------------------------------------------

AUTO = {"data": {"split": "auto"}}
PARTS = {"train": 8, "validation": 1, "test": 2}


def card_of(name: str, allowed: dict[Any, int], refused: dict[Any, str]) -> DataCard:
    return DataCard(name, (0, 1), (16, 52), PARTS, allowed_splits=allowed, refused_splits=refused)


def test_auto_takes_the_strictest_split_that_every_room_allows() -> None:
    """The cafe could do days, the hall could not; sizes are those of the split that is taken."""
    cafe = card_of("cafe", {"day": 4, "recording": 9, "blocked": 8, "random": 12}, {})
    hall = card_of(
        "hall",
        {"recording": 6, "blocked": 30, "random": 31},
        {"day": "was recorded on 2 of at least 3 days"},
    )
    plan = Plan(**AUTO, model={"architecture": "by-size"})
    agreed = agree(plan, [cafe, hall])
    assert agreed.split == "recording"
    assert agreed.why == (
        "the strictest that all rooms allow; not day, because room 'hall' was recorded on 2 of at "
        "least 3 days"
    )
    assert agreed.nets == assign_by_size({"cafe": 9, "hall": 6})
    assert agree(plan, [cafe]).split == "day"
    assert agree(plan, [cafe]).why == "the strictest that all rooms allow"
    asked = agree(Plan(data={"split": "blocked"}), [cafe, hall])
    assert (asked.split, asked.why) == ("blocked", "the plan asks for it")


def test_auto_without_a_split_for_all_names_the_rooms() -> None:
    cafe = card_of("cafe", {"recording": 9}, {"day": "has recordings without a day"})
    hall = card_of("hall", {"blocked": 9}, {"recording": "has a single recording of class 1"})
    with pytest.raises(RosterError, match=r"none that all rooms allow \(not day, because room"):
        agree(Plan(**AUTO), [cafe, hall])


def test_auto_splits_by_days_where_every_room_has_them(make_store: MakeStore) -> None:
    """Takes are days here: three of every count in both rooms, so one day of each is tested."""
    store = make_store({"cafe": {0: 3, 1: 3}, "hall": {0: 3, 2: 3}})
    rooms = prepare_rooms(plan_of(store, **AUTO))
    assert {room.split.kind for room in rooms} == {"day"}
    for room in rooms:
        assert room.split.sizes == {"train": 8, "validation": 8, "test": 8}
    data = describe([introduce(room) for room in rooms], plan_of(store, **AUTO))
    assert (data["split"], data["why"]) == ("day", "the strictest that all rooms allow")


@pytest.mark.parametrize(
    ("layout", "packets", "kind", "reason"),
    [
        ({0: 2, 1: 2}, 64, "recording", "not day, because room 'cafe' was recorded on 2 of"),
        ({0: 3, 1: 1}, 64, "blocked", "not recording, because room 'cafe' has a single recording"),
        ({0: 3, 1: 1}, 32, "random", "not blocked, because room 'cafe' has no recording of 3 win"),
    ],
)
def test_auto_says_why_it_is_no_stricter(
    layout: dict[int | str, int], packets: int, kind: str, reason: str, make_store: MakeStore
) -> None:
    (room,) = prepare_rooms(plan_of(make_store({"cafe": layout}, packets=packets), **AUTO))
    assert room.split.kind == kind
    assert reason in room.split.why


def test_a_room_that_auto_cannot_split_is_named(make_store: MakeStore) -> None:
    """Takes of 20 packets at a stride of 2: three windows of 16, all overlapping."""
    plan = plan_of(
        make_store({"cafe": {0: 1, 1: 1}}, packets=20), data={"split": "auto", "stride": 2}
    )
    with pytest.raises(DataError, match=r"room 'cafe': split = 'auto' finds no way .*random: it"):
        prepare_rooms(plan)


def test_a_store_without_days_is_told_the_remedy(make_store: MakeStore) -> None:
    path = make_store()
    with h5py.File(path, "r+") as file:
        for take in file["cafe"].values():
            take.attrs["day"] = ""
    with pytest.raises(DataError, match=r"room 'cafe': split = 'day', but .*\{day\} in the"):
        prepare_rooms(plan_of(path, data={"split": "day"}))


def test_continuous_recordings_are_in_a_part_of_their_own(make_store: MakeStore) -> None:
    """They change neither the split nor the labels a room tells, but its fingerprint."""
    path = make_store({"cafe": {0: 4, 1: 4}})
    with h5py.File(path, "r+") as file:
        file["cafe"].copy("1-3", "2-0")
        file["cafe/1-3"].attrs["part"] = file["cafe/2-0"].attrs["part"] = "continuous"
        file["cafe/2-0"].attrs["label"] = 2
    plan = plan_of(path, classes=(0, 1, 2), data={"split": "recording"})
    (windows,) = cut_windows(plan)
    assert tell_data(plan, windows).labels == (0, 1)
    (room,) = prepare_rooms(plan)
    assert room.split.continuous.tolist() == list(range(28, 36))
    assert room.labels[room.split.continuous].tolist() == [1] * 4 + [2] * 4
    forgotten = replace(room, split=replace(room.split, continuous=room.split.continuous[:0]))
    assert introduce(forgotten).fingerprint != introduce(room).fingerprint
    assert len(room.predict(room.build(), "continuous")[0]) == 8


def test_the_plan_can_ask_for_validation_of_every_class(make_store: MakeStore) -> None:
    """Four takes of four windows per count: one is tested, one validates, two train."""
    path = make_store({"cafe": {0: 4, 1: 4, 2: 4}})
    asked = {"split": "recording", "validation_of": "class"}
    (room,) = prepare_rooms(plan_of(path, data=asked))
    assert room.labels[room.split.validation].tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_the_plan_can_ask_for_fewer_recordings(make_store: MakeStore) -> None:
    """Of four recordings of four windows per count one is tested: one of the rest trains."""
    path = make_store({"cafe": {0: 4, 1: 4}})
    asked = {"split": "recording", "validation": 0, "view": "amplitude"}
    (whole,) = prepare_rooms(plan_of(path, data=asked))
    (fewer,) = prepare_rooms(plan_of(path, data={**asked, "train_recordings": 1}))
    assert (len(whole.split.train), len(fewer.split.train)) == (24, 8)
    assert set(fewer.split.train) < set(whole.split.train)
    np.testing.assert_array_equal(fewer.split.test, whole.split.test)


def test_views_that_are_left_out_are_told_with_the_reason() -> None:
    cards = [
        DataCard(
            name,
            (0, 1),
            (16, 6),
            PARTS,
            allowed_splits={"recording": 8},
            view_shapes=dict.fromkeys(scores, (16, 6)),
            refused_views=refused,
            view_scores={"recording": scores},
        )
        for name, scores, refused in (
            (
                "cafe",
                {"amplitude": 0.4},
                {"level": "is dead; mend it", "motion": "is dead; mend it"},
            ),
            ("hall", {"amplitude": 0.6, "level": 0.9, "motion": 0.9}, {}),
        )
    ]
    plan = Plan(data={"split": "recording"})
    agreed = agree(plan, cards)
    assert agreed.view == "amplitude"
    assert agreed.view_why == (
        "the only view that is left; left out: level, motion (room 'cafe': is dead; mend it)"
    )
    assert "left out" not in agree(plan, cards[1:]).view_why


def test_categories_have_no_expected_number() -> None:
    card = DataCard("hall", ("sit", "walk"), (16, 6), {"train": 4, "validation": 1, "test": 1})
    with pytest.raises(PlanError, match="'walk' are categories and have no mean"):
        agree(Plan(answer="expected", data={"split": "random", "view": "amplitude"}), [card])
    assert agree(Plan(data={"split": "random", "view": "amplitude"}), [card]).classes


WITH_UNLABELLED = {"cafe": {0: 2, 1: 2, None: 2}, "hall": {0: 2, 1: 2, 2: 2}}
"""Two recordings of each class; two that nobody labelled."""


def test_recordings_without_a_label_are_learned_from_and_nothing_else(
    make_store: MakeStore,
) -> None:
    """4 recordings of 4 windows have a label: one of each class is tested. 2 · 4 have none."""
    plan = plan_of(make_store(WITH_UNLABELLED), data={"split": "recording", "validation": 0.0})
    windows, _ = cut_windows(plan)
    assert windows.labels == (0,) * 8 + (1,) * 8 + (None,) * 8
    told = tell_data(plan, windows)
    assert told.labels == (0, 1)
    assert told.parts == {"train": 8, "validation": 0, "test": 8}
    cafe, hall = prepare_rooms(plan)
    assert cafe.classes == (0, 1, 2)
    assert cafe.split.unlabelled.tolist() == list(range(16, 24))
    assert cafe.held == [0, 1]
    for part in ("train", "test"):
        assert set(cafe.labels[getattr(cafe.split, part)]) == {0, 1}
    assert set(cafe.labels[cafe.split.unlabelled]) == {NO_CLASS}
    assert cafe.card.unlabelled == 8
    assert cafe.card.recordings["unlabelled"] == 2
    seen = np.sort(np.concatenate([cafe.split.train, cafe.split.unlabelled]))
    assert (cafe.normaliser.mean == Normaliser.of(cafe.windows, seen).mean).all()
    rooms = describe([introduce(cafe), introduce(hall)], plan)["rooms"]
    assert rooms["cafe"]["unlabelled"] == 8
    assert "unlabelled" not in rooms["hall"]
    assert introduce(cafe).blind.keys() == introduce(hall).blind.keys()


def test_what_a_room_holds_decides_what_it_may_answer_not_what_has_no_label(
    make_store: MakeStore,
) -> None:
    path = make_store(WITH_UNLABELLED)
    cafe, _ = prepare_rooms(plan_of(path, answerable="room"))
    assert cafe.answerable == (0, 1)
    cafe, _ = prepare_rooms(plan_of(path, answerable=(2,)))
    assert cafe.answerable == (0, 1, 2)


@pytest.mark.parametrize("split", ["auto", "random", "recording"])
def test_a_room_without_any_label_is_refused(make_store: MakeStore, split: str) -> None:
    path = make_store({"cafe": {None: 3}, "hall": {0: 2, 1: 2}})
    with pytest.raises(DataError, match=r"room 'cafe' has no windows with a label: .* leave the"):
        prepare_rooms(plan_of(path, data={"split": split}))
    with pytest.raises(DataError, match="room 'cafe' has no windows with a label"):
        prepare_rooms(plan_of(path, data={"split": split, "view": "auto"}))


def test_views_are_tried_with_labelled_windows_alone(make_store: MakeStore) -> None:
    """The scores are those of the room without its other recordings."""
    cards = []
    for name, labels in (("more.h5", {0: 4, 1: 4, None: 2}), ("bare.h5", {0: 4, 1: 4})):
        path = make_store({"cafe": labels}, packets=128, name=name)
        plan = plan_of(
            path,
            data={"view": "auto", "window": 32, "split": "auto"},
            model={"architecture": "auto"},
        )
        cards.append(tell_data(plan, *survey_rooms(plan)))
    more, bare = cards
    assert more.view_scores == bare.view_scores
    assert (more.labels, more.parts) == (bare.labels, bare.parts)
    assert more.refused_splits == bare.refused_splits


def test_windows_without_a_label_are_not_dealt(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 8, 1: 8, None: 2}, "hall": {0: 8, 1: 8}})
    dealt = {"partition": "dirichlet", "partition_rooms": 2, "split": "recording"}
    rooms = cut_windows(plan_of(path, data=dealt))
    assert sum(len(room.labels) for room in rooms) == 32 * 4
    assert all(label is not None for room in rooms for label in room.labels)

"""Which view suits a room: what a linear model makes of each, and what the rooms agree on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedapa import Plan
from fedapa.errors import DataError, PlanError, RosterError
from fedapa.federation import trial
from fedapa.federation.participant import introduce
from fedapa.federation.prepare import agree, describe, prepare_rooms, survey_rooms, tell_data
from fedapa.files import cache_folder
from fedapa.rooms.card import DataCard
from fedapa.stores.materialise import materialise, survey
from fedapa.stores.store import write_store
from fedapa.windows.views import VIEWS

PARTS = {"train": 8, "validation": 2, "test": 2}
SHAPES = {"amplitude": (16, 6), "motion": (16, 6), "statistics": (169,)}


def store_of(
    path: Path, *, links: int = 1, subcarriers: int = 8, packets: int = 128, takes: int = 5
) -> Path:
    """Two counts at 100 packets a second: in the second the subcarriers swing at 10 Hz, 3 % of
    what they are. How strong they are is drawn anew for every take: it says nothing."""
    stream = np.random.default_rng(0)
    time = np.arange(packets) / 100
    with write_store(path) as store:
        store.add_room("cafe", synthetic=True, about={})
        for take in range(takes):
            for count in (0, 1):
                shape = stream.uniform(1, 9, (1, subcarriers, links))
                swing = np.sin(2 * np.pi * 10 * time)[:, None, None] * stream.normal(
                    size=(1, subcarriers, links)
                )
                noise = stream.normal(size=(packets, subcarriers, links))
                values = shape * (1 + 0.03 * count * swing + 0.003 * noise)
                store.add_recording(
                    "cafe",
                    f"{count}-{take}",
                    label=count,
                    amplitude=values.astype(np.float32),
                    timestamps=time,
                    rate=100.0,
                    day=f"day {take}",
                )
    return path


def plan_of(store: Path, *, net: str = "auto", **data: Any) -> Plan:
    given = {"file": str(store), "window": 32, "split": "recording", **data}
    return Plan(data=given, model={"architecture": net, "width": 8}, algorithm="local")


def test_the_view_that_tells_counts_apart_is_taken_and_said(tmp_path: Path) -> None:
    """Amplitude is by chance at best; how fast things move tells the two counts apart."""
    plan = plan_of(store_of(tmp_path / "rooms.h5"))
    card = tell_data(plan, *survey_rooms(plan))
    scores = card.view_scores["recording"]
    assert set(scores) == set(VIEWS) - {"statistics by link"}  # there is one link
    assert scores["amplitude"] < 1
    assert scores["spectrum"] == scores["statistics"] == 1
    (room,) = prepare_rooms(plan)
    assert room.recipe.view == "spectrum"  # of equals the simpler
    data = describe([introduce(room)], plan)
    assert data["windows"] == "windows of 32 packets (0.32 s at 100 per second), view spectrum"
    assert "unseen windows right with it, in %: amplitude" in data["view_why"]


@pytest.mark.parametrize(
    ("net", "algorithm", "view"),
    [("counter", "local", "statistics"), ("tiny", "local", "spectrum")],
)
def test_nets_decide_which_views_are_tried(
    net: str, algorithm: str, view: str, tmp_path: Path
) -> None:
    plan = plan_of(store_of(tmp_path / "rooms.h5"), net=net)
    card = tell_data(plan, *survey_rooms(plan))
    flat = {name for name, known in VIEWS.items() if known.is_flat}
    assert set(card.view_scores["recording"]) <= (flat if net == "counter" else set(VIEWS) - flat)
    assert agree(plan, [card]).view == view


def test_a_model_of_numbers_is_tried_with_numbers_only(tmp_path: Path) -> None:
    plan = Plan.of(plan_of(store_of(tmp_path / "rooms.h5")).document(), {"algorithm": "forest"})
    (room,) = prepare_rooms(plan)
    assert (room.recipe.view, room.architecture) == ("statistics", "counter")


def test_a_window_too_short_for_numbers_is_no_view_for_a_net_of_numbers(tmp_path: Path) -> None:
    plan = plan_of(store_of(tmp_path / "rooms.h5"), net="counter", window=4)
    with pytest.raises(PlanError, match=r"room 'cafe': Local with net 'counter' needs vectors"):
        prepare_rooms(plan)


def test_links_are_told_apart_where_there_are_several(tmp_path: Path) -> None:
    plan = plan_of(store_of(tmp_path / "rooms.h5", links=2))
    card = tell_data(plan, *survey_rooms(plan))
    assert card.view_shapes["statistics by link"] == (2 * 169,)
    assert "statistics by link" in card.view_scores["recording"]
    alone = tell_data(plan_of(tmp_path / "rooms.h5", links="first"), *survey_rooms(plan))
    assert alone.view_shapes["amplitude"] == (32, 16)


def test_test_windows_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(store_of(tmp_path / "rooms.h5"), overlap=0.5)
    (origins,) = survey_rooms(plan)
    asked: list[int] = []
    seen_as = trial.seen_as

    def noted(store: Path, origins: Any, views: Any, chosen: Any) -> Any:
        asked.extend(chosen)
        return seen_as(store, origins, views, chosen)

    monkeypatch.setattr(trial, "seen_as", noted)
    tell_data(plan, origins)
    (room,) = prepare_rooms(plan)
    assert not set(asked) & set(room.split.test.tolist())
    learned = {*room.split.train.tolist(), *room.split.validation.tolist()}
    assert set(asked) == {window for window in learned if origins.starts[window] % 32 == 0}


def test_what_is_held_out_together_is_what_the_split_holds_out(tmp_path: Path) -> None:
    """Five takes of each count on five days, four windows each; a take is in one fold."""
    plan = plan_of(store_of(tmp_path / "rooms.h5"))
    (origins,) = survey_rooms(plan)
    every = np.arange(len(origins.labels))
    by_take = trial._folds(origins, "recording", every)
    assert {(origins.recordings[n][-1], int(by_take[n])) for n in every} == {
        (str(take), take) for take in range(5)
    }
    assert trial._folds(origins, "day", every).tolist() == by_take.tolist()
    assert trial._folds(origins, "random", every)[:8].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_a_share_by_hand() -> None:
    """Two classes on a line at −1 and 1; the last window of the second lies among the first."""
    windows = np.array([[-1], [-1.1], [-0.9], [1], [1.1], [-1.05]], np.float32)
    labels, folds = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2])
    assert trial._share_right(windows, labels, folds, 2) == pytest.approx(5 / 6)


def test_scores_are_kept_and_made_again_where_they_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(store_of(tmp_path / "rooms.h5"))
    first = tell_data(plan, *survey_rooms(plan))
    for file in (cache_folder() / "views").iterdir():
        file.write_text(file.read_text().replace("1.0", "0.5"))
    assert tell_data(plan, *survey_rooms(plan)) == first
    monkeypatch.setattr(trial, "seen_as", None)  # nothing is looked at any more
    assert tell_data(plan, *survey_rooms(plan)) == first


def test_a_survey_is_of_the_windows_that_are_cut(tmp_path: Path) -> None:
    path = store_of(tmp_path / "rooms.h5")
    recipe = plan_of(path, overlap=0.5).data.recipe(None)
    for surveyed, cut in zip(survey(path, recipe), materialise(path, recipe), strict=True):
        for name in ("labels", "recordings", "days", "continuous", "spans", "shapes", "recipe"):
            assert getattr(surveyed, name) == getattr(cut, name)
        np.testing.assert_array_equal(surveyed.starts, cut.starts)


@pytest.mark.parametrize("decimate", [1, 2])
@pytest.mark.parametrize("bad", ["refuse", "drop"])
def test_a_silent_subcarrier_decides_which_views_there_are(
    bad: str, decimate: int, tmp_path: Path
) -> None:
    """Refused windows leave the paper's input; dropped ones leave all views but that."""
    path = store_of(tmp_path / "rooms.h5")
    recipe = plan_of(path, bad_windows=bad, decimate=decimate).data.recipe(None)
    whole = survey(path, recipe)[0]
    with h5py.File(path, "r+") as file:
        file["cafe/1-2/amplitude"][:, 3] = 0
    silent = survey(path, recipe)[0]
    if bad == "refuse":
        assert list(silent.shapes) == ["amplitude"]
        assert len(silent.labels) == len(whole.labels)
    else:
        assert set(silent.shapes) == set(whole.shapes) - {"amplitude"}
        assert len(silent.labels) == len(whole.labels) - 4


def card_of(name: str, scores: dict[str, float], **values: Any) -> DataCard:
    return DataCard(
        name,
        (0, 1),
        (16, 6),
        PARTS,
        allowed_splits={"recording": 8},
        view_shapes={view: SHAPES[view] for view in scores},
        view_scores={"recording": scores},
        **values,
    )


def test_the_best_mean_wins_and_of_equals_the_simplest() -> None:
    plan = Plan(data={"split": "recording"})
    cafe = card_of("cafe", {"amplitude": 0.9, "motion": 0.5, "statistics": 0.7})
    hall = card_of("hall", {"amplitude": 0.1, "motion": 0.5, "statistics": 0.5})
    agreed = agree(plan, [cafe, hall])
    assert (agreed.view, agreed.window_shape) == ("statistics", (169,))  # 0.5, 0.5, 0.6
    assert agreed.view_why.endswith("in %: amplitude 50, motion 50, statistics 60")
    assert set(agreed.nets.values()) == {"counter"}
    low = {"amplitude": 0.9, "motion": 0.5, "statistics": 0.1}
    agreed = agree(plan, [replace(cafe, view_scores={"recording": low}), hall])
    assert (agreed.view, set(agreed.nets.values())) == ("amplitude", {"middle"})


def test_rooms_of_different_receivers_meet_under_a_view_that_makes_them_alike() -> None:
    plan = Plan(data={"split": "recording"})
    cafe = card_of("cafe", {"amplitude": 0.9, "statistics": 0.2})
    hall = card_of("hall", {"amplitude": 0.9, "statistics": 0.2})
    hall = replace(hall, view_shapes={**hall.view_shapes, "amplitude": (16, 12)})
    assert agree(plan, [cafe, hall]).view == "statistics"
    apart = [card_of("cafe", {"amplitude": 0.9}), card_of("hall", {"statistics": 0.2})]
    with pytest.raises(RosterError, match=r"no view in common .*'cafe': amplitude; room 'hall'"):
        agree(plan, apart)


def test_views_are_chosen_by_train_windows_where_none_validate(tmp_path: Path) -> None:
    (room,) = prepare_rooms(plan_of(store_of(tmp_path / "rooms.h5"), validation=0))
    assert room.recipe.view == "spectrum"


def test_a_single_recording_of_every_count_is_tried_by_fifths_of_its_time(tmp_path: Path) -> None:
    path = store_of(tmp_path / "rooms.h5", takes=1, packets=640)
    plan = plan_of(path, split="auto")
    card = tell_data(plan, *survey_rooms(plan))
    assert set(card.allowed_splits) == {"blocked", "random"}
    scores = card.view_scores["blocked"]
    assert scores["spectrum"] == 1  # twenty windows, of which the others tell
    origins = survey_rooms(plan)[0]
    chosen = np.flatnonzero([name == "1-0" for name in origins.recordings])
    folds = trial._folds(origins, "blocked", chosen)
    assert folds.tolist() == [number // 4 for number in range(20)]


def test_rooms_that_cannot_choose_take_statistics() -> None:
    plan = Plan(data={"split": "recording"})
    agreed = agree(plan, [card_of("cafe", dict.fromkeys(SHAPES, 0.0))])
    assert agreed.view == "statistics"
    assert agreed.view_why == "the usual one: there are too few windows to choose by"


def test_a_split_that_leaves_nothing_to_test_is_none_for_auto(tmp_path: Path) -> None:
    """So large a test part leaves no block beside which anything is left; days are whole."""
    plan = plan_of(store_of(tmp_path / "rooms.h5"), split="auto", test=0.99)
    card = tell_data(plan, *survey_rooms(plan))
    assert "day" in card.allowed_splits
    assert card.refused_splits["blocked"] == "is left without windows to test"


def test_without_validation_windows_the_view_still_fits_the_net(tmp_path: Path) -> None:
    plan = plan_of(store_of(tmp_path / "rooms.h5"), net="counter", validation=0)
    (room,) = prepare_rooms(plan)
    assert (room.recipe.view, room.architecture) == ("statistics", "counter")


def test_recordings_of_unequal_width_are_named_before_views_are_tried(tmp_path: Path) -> None:
    path = store_of(tmp_path / "rooms.h5")
    with h5py.File(path, "r+") as file:
        values = file["cafe/1-2/amplitude"][:, :5]
        del file["cafe/1-2/amplitude"]
        file["cafe/1-2/amplitude"] = values
    with pytest.raises(DataError, match=r"recording '1-2' gives windows of \(32, 5\).*same subc"):
        prepare_rooms(plan_of(path))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"view_scores": {"day": {"amplitude": 0.5}}}, "view 'amplitude' under split 'day'"),
        ({"view_scores": {"recording": {"level": 0.5}}}, "view 'level' under split 'recording'"),
        ({"view_scores": {"recording": {"amplitude": 1.5}}}, "scores 1.5; expected 0 to 1"),
        ({"view_shapes": {"amplitude": (0, 3)}}, "view 'amplitude': windows of shape"),
    ],
)
def test_cards_that_cannot_be_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        replace(card_of("cafe", {"amplitude": 0.9}), **values)

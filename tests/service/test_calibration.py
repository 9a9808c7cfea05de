"""Calibration: takes asked for, judged and saved; every refusal is one sentence."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedapa.csi.capture import Capture
from fedapa.errors import DataError, PlanError
from fedapa.service.calibration import (
    Calibration,
    CalibrationSettings,
    KnownRoom,
    Outcome,
    Step,
    capture_take,
    known_room,
    save_take,
)
from fedapa.service.sources import SimulatedStay, follow
from fedapa.stores.store import Store, write_store
from tests.service.takes import moving, quiet, simulated_take

SHORT = CalibrationSettings(counts=(0, 1), takes=2, seconds=12)


def fed(calibration: Calibration, capture: Capture, size: int = 100) -> Outcome | None:
    """A take, its packets handed on some at a time."""
    calibration.begin(0.0)
    for first in range(0, capture.packets, size):
        outcome = calibration.feed(capture.part(slice(first, first + size)), first / 50)
        if outcome is not None:
            return outcome
    return None


def refused(calibration: Calibration, capture: Capture) -> str:
    step = calibration.step
    outcome = fed(calibration, capture)
    assert outcome is not None
    assert outcome.take is None
    assert calibration.step == step  # it is asked for again
    return outcome.sentence


def test_takes_are_asked_for_round_by_round_the_empty_room_first() -> None:
    calibration = Calibration("den", SHORT, day="d")
    asked = []
    while (step := calibration.step) is not None:
        asked.append((step.count, step.number))
        outcome = fed(calibration, moving(14) if step.count else quiet(14, seed=len(asked)))
        assert outcome is not None
        assert outcome.take is not None
    assert asked == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert calibration.left == 0
    with pytest.raises(PlanError, match="all takes are there"):
        calibration.begin(0.0)


def test_a_take_is_as_long_as_was_asked_for_and_has_every_packet() -> None:
    calibration = Calibration("den", SHORT, day="d")
    whole = quiet(20)
    outcome = fed(calibration, whole, size=333)
    assert outcome is not None
    assert outcome.take is not None
    take = outcome.take
    assert take.capture.packets == 12 * 50 + 1
    assert np.array_equal(take.capture.csi, whole.csi[: 12 * 50 + 1])
    assert (take.count, take.day, take.name) == (0, "d", "people 00 day d take 0")
    assert take.seconds == pytest.approx(12)
    assert take.rate == pytest.approx(50)
    assert take.notes["motion_level"] < take.notes["motion_limit"]
    assert "kept_despite_motion" not in take.notes
    assert "nothing moved: " in outcome.sentence


def test_an_empty_room_in_which_something_moves_is_refused_with_the_evidence() -> None:
    calibration = Calibration("den", SHORT, day="d")
    outcome = fed(calibration, moving(14, since=3, until=8))
    assert outcome is not None
    assert (outcome.take, outcome.moved) == (None, True)
    assert "the empty room is not empty or not still: " in outcome.sentence
    assert "times the noise floor over the whole take (1.3" in outcome.sentence
    assert "; it moved from second 2 to 9" in outcome.sentence
    assert outcome.sentence.endswith("and take it again")
    assert outcome.stillness is not None
    assert not outcome.stillness.is_still

    brief = moving(60, until=1.5, depth=0.05)
    leaving = Calibration("den", replace(SHORT, seconds=60), day="d")
    assert refused(leaving, brief).endswith("wait longer after leaving it, and take it again")

    again = fed(calibration, quiet(14))
    assert again is not None
    assert again.take is not None
    with pytest.raises(PlanError, match="no take was refused because something moved"):
        calibration.keep()


@pytest.mark.parametrize("by", ["setting", "word"])
def test_it_is_kept_nevertheless_when_the_owner_says_so_and_the_store_knows(
    tmp_path: Path, by: str
) -> None:
    calibration = Calibration("den", replace(SHORT, keep_moving=by == "setting"), day="d")
    outcome = fed(calibration, moving(14))
    if by == "word":
        outcome = calibration.keep()
    assert outcome is not None
    assert outcome.take is not None
    assert "kept nevertheless, the store says so" in outcome.sentence
    save_take(tmp_path / "den.h5", "den", outcome.take)
    with h5py.File(tmp_path / "den.h5") as file:
        attributes = dict(file["den/people 00 day d take 0"].attrs)
    assert attributes["kept_despite_motion"]
    assert attributes["motion_level"] > attributes["motion_limit"]
    assert calibration.step == Step(1, 0, 2)


def test_nobody_guesses_a_count_but_a_still_take_of_somebody_is_remarked() -> None:
    calibration = Calibration("den", SHORT, day="d")
    fed(calibration, quiet(14))
    outcome = fed(calibration, quiet(14, seed=1))
    assert outcome is not None
    assert outcome.take is not None
    assert outcome.take.count == 1
    assert "nothing moved in it: was 1 person really there?" in outcome.sentence


def test_what_is_wrong_with_packets_is_one_sentence() -> None:
    def new() -> Calibration:
        return Calibration("den", SHORT, day="d")

    few = refused(new(), quiet(14, rate=15))
    assert few.startswith("15 packets per second are too few, at least 20 are needed")
    whole = quiet(14)
    gap = whole.part(np.flatnonzero((whole.timestamps < 5) | (whole.timestamps > 7.5)))
    assert "unevenly: none for 2.5 s at second 5" in refused(new(), gap)
    stamps = quiet(30).timestamps
    back = replace(quiet(30), timestamps=np.where(stamps < 9, stamps, stamps - 5))
    assert "clock was set back by 5.0 s after packet 450" in refused(new(), back)
    thin = (whole.timestamps.astype(int) % 4 != 0) | (np.arange(whole.packets) % 4 == 0)
    uneven = refused(new(), whole.part(np.flatnonzero(thin)))
    assert "% of the seconds have less than half of the usual 50" in uneven

    calibration = new()
    fed(calibration, quiet(14))
    assert "the takes before had 50" in refused(calibration, quiet(14, rate=100))
    other = refused(calibration, quiet(14, device="another"))
    assert other.startswith("the receiver changed: receiver another, before it was test;")
    narrow = replace(quiet(14), csi=quiet(14).csi[:, 1:], subcarriers=quiet(14).subcarriers[1:])
    assert "number of subcarriers 39, before it was 40" in refused(calibration, narrow)
    made_up = refused(calibration, replace(quiet(14), synthetic=True))
    assert "data SIMULATED, before it was real" in made_up


def test_a_receiver_that_changes_within_a_take_ends_it() -> None:
    calibration = Calibration("den", SHORT, day="d")
    calibration.begin(0.0)
    assert calibration.feed(quiet(5), 5.0) is None
    outcome = calibration.feed(replace(quiet(5, start=5.1), bandwidth=40), 10.0)
    assert outcome is not None
    assert "bandwidth in MHz 40, before it was 20" in outcome.sentence
    assert not calibration.taking


def test_a_source_that_stops_is_told_after_the_timeout() -> None:
    calibration = Calibration("den", SHORT, day="d")
    assert calibration.tick(100.0) is None  # no take has begun
    calibration.begin(100.0)
    assert calibration.tick(109.9) is None
    silent = calibration.tick(110.0)
    assert silent is not None
    assert silent.sentence.startswith("no packets for 10 s: the source stopped")

    calibration.begin(200.0)
    calibration.feed(quiet(5), 205.0)
    assert calibration.progress == (5.0, 251)
    assert calibration.tick(214.0) is None
    stopped = calibration.tick(215.0)
    assert stopped is not None
    assert stopped.sentence.startswith("no packets for 10 s after 5.0 s of 12: the source stopped")
    calibration.begin(300.0)
    calibration.feed(quiet(5), 305.0)
    ended = calibration.end()
    assert ended is not None
    assert "the source ended after 5.0 s of 12 and 251 packets" in ended.sentence
    assert calibration.end() is None


def test_what_cannot_be_asked_for_is_refused() -> None:
    for wrong, said in [
        ({"counts": ()}, "list numbers of people"),
        ({"counts": (0, 1, 1)}, "each once"),
        ({"counts": (-1,)}, "list numbers of people"),
        ({"takes": 0}, "takes = 0"),
        ({"seconds": 5.0}, "seconds = 5; choose 9 to 3600"),
        ({"seconds": float("nan")}, "seconds = nan"),
        ({"margin": 0.0}, "margin = 0"),
    ]:
        with pytest.raises(PlanError, match=said):
            CalibrationSettings(**wrong)  # type: ignore[arg-type]
    later = CalibrationSettings(counts=(1, 0))
    with pytest.raises(PlanError, match="no take of the empty room yet, and it comes first"):
        Calibration("den", later, day="d")
    Calibration("den", later, day="d", known=KnownRoom(takes=((0, "before"),)))


def test_a_store_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "den.h5"
    assert known_room(path, "den") == KnownRoom()
    calibration = Calibration("den", SHORT, day="d")
    for capture in (quiet(14), moving(14)):
        outcome = fed(calibration, capture)
        assert outcome is not None
        assert outcome.take is not None
        save_take(path, "den", outcome.take)
    known = known_room(path, "den")
    assert known.takes == ((0, "d"), (1, "d"))
    assert known.rate == pytest.approx(50)
    assert known_room(path, "attic") == KnownRoom()

    same_day = Calibration("den", SHORT, day="d", known=known)
    assert same_day.left == 2
    assert same_day.step == Step(0, 1, 2)
    assert "receiver another, before it was test" in refused(same_day, quiet(14, device="another"))
    assert Calibration("den", SHORT, day="e", known=known).left == 4
    with Store(path) as store:
        assert [(one.label, one.day, one.synthetic) for one in store.recordings("den")] == [
            (0, "d", False),
            (1, "d", False),
        ]
        assert store.recipe("den").device == "test"


def test_a_store_of_something_else_is_refused(tmp_path: Path) -> None:
    with write_store(tmp_path / "text.h5") as store:
        store.add_room("den", synthetic=False, about={})
        store.add_features("den", "one", label="walking", features=np.ones((3, 4), np.float32))
    with pytest.raises(DataError, match="categories or finished features"):
        known_room(tmp_path / "text.h5", "den")
    with write_store(tmp_path / "silent.h5") as store:
        store.add_room("den", synthetic=False, about={})
        store.add_recording(
            "den", "one", label=0, amplitude=np.ones((3, 4, 1)), timestamps=np.arange(3.0)
        )
    with pytest.raises(DataError, match="does not say its device, bandwidth, subcarriers"):
        known_room(tmp_path / "silent.h5", "den")


def test_captures_are_takes_and_one_capture_is_one_take(tmp_path: Path) -> None:
    empty = simulated_take(tmp_path / "0.pcap", 0, 12)
    one = simulated_take(tmp_path / "1.pcap", 1, 9)
    short = simulated_take(tmp_path / "s.pcap", 0, 5)
    store = tmp_path / "lobby.h5"
    calibration = Calibration("lobby", SHORT, day="d", order=[0, 1, 0, 1])
    brief = calibration.add(*capture_take(short))
    assert "an empty room needs at least 8 s: take a longer one" in brief.sentence
    for path in (empty, one):
        outcome = calibration.add(*capture_take(path))
        assert outcome.take is not None
        save_take(store, "lobby", outcome.take)
    again = calibration.add(*capture_take(empty))
    assert again.take is not None
    with pytest.raises(DataError, match=r"0\.pcap: is in lobby\.h5 already, as 'people 00 day d"):
        save_take(store, "lobby", again.take)
    other = calibration.add(*capture_take(empty))
    assert other.take is not None
    with pytest.raises(DataError, match="labelled 1, but the same recording is labelled 0"):
        save_take(store, "lobby", other.take)
    with Store(store) as opened:
        assert opened.synthetic
        assert all(one.synthetic for one in opened.recordings("lobby"))
        assert [one.label for one in opened.recordings("lobby")] == [0, 1]
        assert opened.about("lobby")["source"] == "SIMULATED by fedapa; not measured"


def test_a_simulated_stay_has_as_many_people_all_the_time() -> None:
    def made(**how: int) -> list[Capture]:
        source = SimulatedStay("bus", 3, preset="smoke", seconds=2, paced=False, **how)
        pieces = list(follow(source))
        assert all((piece.people == 3).all() for piece in pieces)
        assert all(piece.capture.synthetic for piece in pieces)
        return [piece.capture for piece in pieces]

    first, again, other = made(), made(), made(number=1)
    assert 230 < sum(piece.packets for piece in first) <= 250  # some are lost
    assert np.array_equal(first[0].csi, again[0].csi)
    assert not np.array_equal(first[0].csi, other[0].csi)
    assert not np.array_equal(first[0].csi, made(day=1)[0].csi)
    with pytest.raises(PlanError, match=r"0 to \d+ fit"):
        SimulatedStay("hotel room", 1000)
    with pytest.raises(PlanError, match="did you mean 'living room'"):
        SimulatedStay("livingroom", 1)

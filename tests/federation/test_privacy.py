"""Noised uploads: what leaves a room, what it costs, where it stops, and that repeats are free."""

import json
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedapa import Plan
from fedapa.algorithms.algorithm import Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.errors import DataError, PlanError, RunError
from fedapa.evaluation.record import not_taken, privacy_spent
from fedapa.federation.acceptance import take
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.ledger import Ledger
from fedapa.federation.messages import Reply, Request, decode_reply, encode_reply
from fedapa.federation.participant import Participant
from fedapa.federation.run import run
from fedapa.learning.private import Privacy
from fedapa.payload import decode, encode
from fedapa.randomness import Key
from fedapa.report.page import write_run_page
from tests.conftest import MakeRooms

WINDOWS = Privacy(epsilon=8.0, unit="window", releases=2)
TRAIN = Request(download=encode({}), train=True)


class Counted:
    """Noise of a test, which knows how often it was asked for."""

    def __init__(self, seed: int = 0, scale: float = 1.0) -> None:
        self.asked, self._stream, self._scale = 0, Key(seed).numpy(), scale

    def normal(self, *shape: int) -> npt.NDArray[np.float64]:
        self.asked += 1
        return self._scale * self._stream.standard_normal(shape)


def participant(
    make_rooms: MakeRooms, folder: Path, privacy: Privacy = WINDOWS, **also: Any
) -> Participant:
    algorithm = FedAPA(privacy=privacy, **also)
    room = make_rooms()[0]
    return Participant(algorithm, room, folder, folder / "model.safetensors", noise=Counted())


def exchanges(room: Participant, numbers: Sequence[int]) -> list[Reply]:
    return [room.exchange(Round(number, 9, Key(0) / number), TRAIN) for number in numbers]


def test_a_room_stops_sending_at_its_budget_and_learns_on(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = participant(make_rooms, tmp_path)
    first, second, third = exchanges(room, [1, 2, 3])
    assert first.upload is not None
    assert second.upload is not None
    assert third.upload is None
    assert "its privacy budget is spent (ε 8 of 8 in 2 releases)" in third.withheld
    assert 0 < first.report["epsilon"] < second.report["epsilon"] <= 8.0 * (1 + 1e-6)
    assert third.report == {**second.report}
    assert set(first.report) == {"epsilon", "delta", "releases"}, "losses stay in the room"
    assert decode_reply(encode_reply(third)).withheld == third.withheld


def test_the_state_after_the_budget_still_changes(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room = participant(make_rooms, tmp_path)
    exchanges(room, [1, 2, 3])
    at_three = decode((tmp_path / "run" / "round-000003.state").read_bytes(), "state")
    at_two = decode((tmp_path / "run" / "round-000002.state").read_bytes(), "state")
    weights = [state["state"]["model"]["classifier.bias"] for state in (at_two, at_three)]  # type: ignore[index,call-overload]
    assert not np.array_equal(*weights)


def test_a_repeated_request_draws_no_noise_and_costs_nothing(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = participant(make_rooms, tmp_path)
    first, again = exchanges(room, [1, 1])
    assert again.upload == first.upload
    assert again.report == first.report
    assert room.noise.asked == 2  # type: ignore[attr-defined]  # sums and numbers, once each
    assert len(Ledger(tmp_path / "privacy.json").releases()) == 1


def test_another_request_of_the_same_round_is_another_release(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """A server that lost its checkpoint may ask anew; what was told stays told."""
    room = participant(make_rooms, tmp_path)
    first = room.exchange(Round(1, 9, Key(0)), TRAIN)
    other = room.exchange(Round(1, 9, Key(0)), replace(TRAIN, download=None))
    assert other.upload != first.upload
    assert other.report["releases"] == 2
    assert room.exchange(Round(1, 9, Key(0)), TRAIN).withheld


def test_two_at_once_in_one_folder_have_one_budget(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """As a room that learns with two servers: each reads the ledger when the other has written."""
    once = replace(WINDOWS, releases=1)
    rooms = [participant(make_rooms, tmp_path, once) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        requests = [replace(TRAIN, run=name) for name in ("one", "two")]
        first = Round(1, 9, Key(0))
        replies = list(pool.map(lambda room, asked: room.exchange(first, asked), rooms, requests))
    assert sorted(reply.upload is not None for reply in replies) == [False, True]
    assert len(Ledger(tmp_path / "privacy.json").releases()) == 1


def test_what_earlier_runs_told_is_spent_in_the_next(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room = participant(make_rooms, tmp_path)
    exchanges(room, [1, 2])
    reply = room.exchange(Round(1, 9, Key(0)), replace(TRAIN, run="another"))
    assert reply.upload is None
    assert reply.withheld


def test_windows_that_were_protected_say_nothing_of_recordings(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """A recording is many windows: no ε of recordings follows from a release that protects each of
    its windows. The other way round it does. A ledger that does not tell units is of windows."""
    for told in (
        {"releases": [{"multiplier": 50.0, "unit": "window"}]},
        {"multipliers": [50.0]},
    ):
        (tmp_path / "privacy.json").write_text(json.dumps(told))
        (reply,) = exchanges(
            participant(make_rooms, tmp_path, replace(WINDOWS, unit="recording")), [1]
        )
        assert reply.upload is None
        assert "no ε of recordings follows" in reply.withheld
        assert not reply.report, "no ε is told where nobody knows it"
        assert json.loads((tmp_path / "privacy.json").read_text()) == told
        shutil.rmtree(tmp_path / "run")
    (tmp_path / "privacy.json").write_text(
        json.dumps({"releases": [{"multiplier": 50.0, "unit": "recording"}]})
    )
    (reply,) = exchanges(participant(make_rooms, tmp_path), [1])
    assert reply.upload is not None
    assert reply.report["releases"] == 2


def test_a_damaged_ledger_is_no_fresh_budget(make_rooms: MakeRooms, tmp_path: Path) -> None:
    (tmp_path / "privacy.json").write_text("{}")
    with pytest.raises(RunError, match="put it back"):
        exchanges(participant(make_rooms, tmp_path), [1])
    for spoilt in ({"multiplier": 1, "unit": "window"}, {"multiplier": 1.0, "unit": "day"}):
        (tmp_path / "privacy.json").write_text(json.dumps({"releases": [spoilt]}))
        with pytest.raises(RunError, match="put it back"):
            exchanges(participant(make_rooms, tmp_path), [1])


@pytest.mark.parametrize("multiplier", [1e-200, 1e-160, 1e-7, 1e200])
def test_a_ledger_with_a_multiplier_that_no_plan_asks_for_is_refused_by_name(
    make_rooms: MakeRooms, tmp_path: Path, multiplier: float
) -> None:
    """Its square or the inverse of that is no number, so nobody could say what it cost."""
    told = {"releases": [{"multiplier": multiplier, "unit": "window"}]}
    (tmp_path / "privacy.json").write_text(json.dumps(told))
    told_as = f"{multiplier:g}"
    with pytest.raises(RunError, match=f"privacy.json: .* multiplier {re.escape(told_as)} is none"):
        exchanges(participant(make_rooms, tmp_path), [1])


def test_the_server_takes_a_noised_set_of_any_form(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Also with counts that the noise made large, and with none at all."""
    for number, scale in enumerate((0.0, 1.0, 50.0)):
        room = participant(make_rooms, tmp_path / str(number), padding="counts")
        room = replace(room, noise=Counted(scale=scale))
        (reply,) = exchanges(room, [1])
        assert reply.upload is not None
        forms = room.algorithm.uploads(room.room.card, Round(1, 9, Key(0)))
        upload = take(reply.upload, room.room.card, forms)
        norms = np.linalg.norm(upload["prototypes"], axis=1)  # type: ignore[arg-type]
        assert (norms <= 1.0 + 1e-6).all()


def test_rounds_in_between_send_nothing_and_give_no_reason(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = participant(make_rooms, tmp_path, replace(WINDOWS, every=2))
    replies = exchanges(room, [1, 2, 3])
    assert [reply.upload is None for reply in replies] == [False, True, False]
    assert not replies[1].withheld
    assert replies[1].report["releases"] == 1


def test_a_run_records_what_every_room_has_spent(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan = Plan(
        rounds=3,
        algorithm="fedproto",
        training={"batch_size": 4},
        privacy={"epsilon": 5.0, "unit": "window", "releases": 2},
    )
    done = run(plan, rooms=make_rooms(), workers=0, out=tmp_path / "run")
    spent = privacy_spent(done.records)
    assert set(spent) == set(done.summary["rooms"])
    assert done.summary["privacy"] == spent
    for own in spent.values():
        assert own["epsilon"] == pytest.approx(5.0, abs=1e-5)
        assert own["releases"] == 2
    assert {entry["what"] for entry in not_taken(done.records)} == {"withheld"}
    assert {entry["round"] for entry in not_taken(done.records)} == {3}
    assert "loss" not in done.records[0]["rooms"][next(iter(spent))]
    write_run_page(tmp_path / "page.html", [done], title="private")
    page = (tmp_path / "page.html").read_text()
    assert "It is no guarantee for recordings" in page
    assert "is withheld: its privacy budget is spent" in page


@pytest.mark.parametrize("upload", [b"no frame", encode({"prototypes": np.float32([np.inf])})])
def test_a_record_tells_what_the_ledger_holds_also_of_an_upload_that_was_rejected(
    make_rooms: MakeRooms, tmp_path: Path, upload: bytes
) -> None:
    """It left the room, whatever the server made of it; nothing else of that reply is used."""
    plan = Plan(rounds=2, algorithm="fedproto", privacy={"epsilon": 5.0, "unit": "window"})
    rooms, folder = make_rooms(), tmp_path / "run"

    class Spoiling(InProcess):
        def exchange(self, round: Round, requests: Any) -> Any:
            replies = super().exchange(round, requests)
            return {
                room: replace(reply, upload=upload) if reply.upload else reply  # type: ignore[type-var,union-attr]
                for room, reply in replies.items()
            }

    with Spoiling(plan.build(), rooms, folder=folder, workers=0) as engine:
        done = run(plan, out=folder, engine=engine)
    for number, record in enumerate(done.records, start=1):
        assert set(record["rejected"]) == set(record["rooms"])
        for room, told in record["rooms"].items():
            ledger = Ledger(folder / "rooms" / room / "privacy.json").releases()
            assert len(ledger) == 2
            assert told["releases"] == number
            assert told["delta"] == 1e-5
            assert told["participated"] is False
    for own in done.summary["privacy"].values():
        assert own["epsilon"] == pytest.approx(5.0, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"algorithm": "fedavg"}, "covers prototypes alone, and with FedAvg it sends"),
        ({"algorithm": "fedjoin"}, "with FedJoin it sends all weights"),
        ({"algorithm": "fedapa-self"}, "nothing travels; use one of fedapa, fedproto"),
        ({"algorithm": "fedpcl"}, "with FedPCL"),
        ({"privacy": {"clip": 2.0}}, "set privacy.epsilon"),
        ({"rounds": "open"}, "set privacy.releases"),
        ({"privacy": {"epsilon": 1.0, "delta": 0.1}}, "privacy.delta"),
        ({"privacy": {"epsilon": 1.0, "units": "day"}}, "privacy.units: unknown key"),
        ({"privacy": {"epsilon": 1e300}}, "privacy.epsilon: input should be less than or equal"),
        ({"privacy": {"epsilon": 1e-9}}, "privacy.epsilon: input should be greater than or equal"),
        ({"privacy": {"epsilon": float("nan")}}, "privacy.epsilon: input should be a finite"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-12}}, "privacy.delta: input should be greater"),
        ({"privacy": {"epsilon": 1.0, "clip": 1e300}}, "privacy.clip: input should be less than"),
        ({"privacy": {"epsilon": 1.0, "clip": 1e-9}}, "privacy.clip: input should be greater"),
        ({"privacy": 1}, r"privacy: is a section: set its keys, .* \(got 1\)"),
    ],
)
def test_what_privacy_does_not_cover_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Plan(**{"privacy": {"epsilon": 1.0}, "algorithm": "fedapa", **change})


def test_a_plan_without_privacy_says_nothing_of_it() -> None:
    """So that plans, digests and runs from before are what they were."""
    assert "privacy" not in Plan(algorithm="fedapa").document()
    private = Plan(algorithm="fedapa", privacy={"epsilon": 1.0})
    assert Plan(**private.document()) == private
    assert private.identity() != Plan(algorithm="fedapa").identity()


def test_recordings_are_protected_only_where_they_are_known(make_rooms: MakeRooms) -> None:
    room = replace(make_rooms()[0], origins=None)
    assert len(room.units("window")) == len(room.split.train)
    with pytest.raises(DataError, match="which windows are of one recording"):
        room.units("recording")

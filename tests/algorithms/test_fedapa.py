"""FedAPA: what travels, what the server makes of it, and its known limits."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa.algorithms.algorithm import Dimensions, Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.errors import PlanError, RosterError
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.plan import Plan
from fedapa.learning.fit import Training
from fedapa.payload import array_bytes, encode
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, go_on, models, plan_of, records

ROUND = Round(2, 10, Key(0))


def cards(number: int, classes: int = 2, width: int = 2) -> list[RoomCard]:
    return [RoomCard(f"room {index}", "tiny", 8, classes, width, {}) for index in range(number)]


def upload(rows: list[list[float]], present: list[bool], counts: list[int] | None = None) -> Any:
    found: dict[str, Any] = {
        "prototypes": np.array(rows, np.float32).reshape(-1, 2),
        "present": np.array(present),
    }
    if counts is not None:
        found["counts"] = np.array(counts)
    return found


def test_a_round_of_the_server_by_hand() -> None:
    """Class 0: (1, 0) and (0, 1) mix to (0.8808, 0.1192) for room 0 at τ = 0.5. Class 1: only
    room 0 holds it, as (2, 2); it is padded for room 1, in its mixture and in its set."""
    algorithm = FedAPA()
    server = algorithm.open(cards(2), Key(0))
    assert algorithm.download(server, "room 0", ROUND) == {}, "round 1 has no prototypes yet"
    uploads = {
        "room 0": upload([[1, 0], [2, 2]], [True, True]),
        "room 1": upload([[0, 1]], [True, False]),
    }
    server = algorithm.merge(server, uploads, ROUND)
    near = np.exp(2) / (np.exp(2) + 1)
    down = algorithm.download(server, "room 0", ROUND)
    np.testing.assert_allclose(down["mixture"], [[near, 1 - near], [2, 2]], rtol=1e-6)
    np.testing.assert_allclose(down["clients"], [[[0, 1], [2, 2]]])
    assert down["known"].tolist() == [True, True]
    other = algorithm.download(server, "room 1", ROUND)
    np.testing.assert_allclose(other["mixture"], [[1 - near, near], [2, 2]], rtol=1e-6)
    np.testing.assert_allclose(other["clients"], [[[1, 0], [2, 2]]])


def test_a_checkpoint_that_keeps_padded_sets_is_read() -> None:
    """Earlier versions kept every room's padded set; what rooms get does not change."""
    algorithm = FedAPA()
    uploads = {
        "room 0": upload([[1, 0], [2, 2]], [True, True]),
        "room 1": upload([[0, 1]], [True, False]),
    }
    server = algorithm.merge(algorithm.open(cards(2), Key(0)), uploads, ROUND)
    earlier = {name: value for name, value in server.items() if name != "padding"}
    earlier["padded"] = np.array([[[1, 0], [2, 2]], [[0, 1], [2, 2]]], np.float32)
    for room in ("room 0", "room 1"):
        given, expected = (algorithm.download(state, room, ROUND) for state in (earlier, server))
        assert encode(given) == encode(expected)
    merged = algorithm.merge(earlier, uploads, ROUND)
    assert "padded" not in merged
    assert encode(merged) == encode(algorithm.merge(server, uploads, ROUND))


def test_q_is_built_from_unpadded_sets() -> None:
    """Room 2 lacks class 0; if it were padded before mixing, room 0 would take a third of it."""
    algorithm = FedAPA(aggregation_temperature=1e9)
    uploads = {
        "room 0": upload([[1, 0], [1, 0]], [True, True]),
        "room 1": upload([[3, 0], [1, 0]], [True, True]),
        "room 2": upload([[1, 0]], [False, True]),
    }
    server = algorithm.merge(algorithm.open(cards(3), Key(0)), uploads, ROUND)
    down = algorithm.download(server, "room 0", ROUND)
    np.testing.assert_allclose(down["mixture"][0], [2, 0], rtol=1e-5)
    assert algorithm.download(server, "room 2", ROUND)["mixture"][0].tolist() == [2, 0]


def test_padding_by_counts_weights_the_text_s_way() -> None:
    """(1, 0) from 1 window and (3, 0) from 3: (1 + 9)/4 = 2.5."""
    algorithm = FedAPA(padding="counts")
    uploads = {
        "room 0": upload([[1, 0]], [True, False], [1, 0]),
        "room 1": upload([[3, 0]], [True, False], [3, 0]),
        "room 2": upload([[1, 1]], [False, True], [0, 5]),
    }
    server = algorithm.merge(algorithm.open(cards(3), Key(0)), uploads, ROUND)
    assert algorithm.download(server, "room 2", ROUND)["mixture"][0].tolist() == [2.5, 0]


def test_a_class_nobody_holds_is_unknown() -> None:
    algorithm = FedAPA()
    uploads = {f"room {index}": upload([[1, 0]], [True, False]) for index in range(2)}
    server = algorithm.merge(algorithm.open(cards(2), Key(0)), uploads, ROUND)
    sent = algorithm.download(server, "room 0", ROUND)
    assert sent["known"].tolist() == [True, False]
    assert server["known"].tolist() == [True, False], "kept: no download looks at all sets"


def test_an_absent_room_keeps_its_last_set_with_an_age() -> None:
    algorithm = FedAPA()
    server = algorithm.open(cards(3), Key(0))
    both = {f"room {index}": upload([[1, index]], [True, False]) for index in range(2)}
    server = algorithm.merge(server, both, ROUND)
    server = algorithm.merge(server, {"room 0": upload([[5, 5]], [True, False])}, ROUND)
    assert server["age"].tolist() == [0, 1, -1]
    down = algorithm.download(server, "room 0", ROUND)
    assert down["clients"].tolist() == [[[1, 1], [0, 0]]], "room 2 has never been heard"


def test_a_room_never_gets_its_own_set_back_and_bytes_are_the_papers() -> None:
    """N = 6, C = 21, D = 256: up 1 set, down 1 + 5 sets: 7 · 21 · 256 · 4 = 150,528 bytes."""
    algorithm = FedAPA()
    server = algorithm.open(cards(6, 21, 256), Key(0))
    stream = Key(0).numpy()
    uploads = {
        f"room {index}": {
            "prototypes": stream.normal(size=(21, 256)).astype(np.float32),
            "present": np.ones(21, bool),
        }
        for index in range(6)
    }
    server = algorithm.merge(server, uploads, ROUND)
    down = algorithm.download(server, "room 3", ROUND)
    masks = 2 * 21
    assert array_bytes(uploads["room 3"]) + array_bytes(down) == 150_528 + masks
    assert len(encode(uploads["room 3"])) + len(encode(down)) < 1.01 * 150_528
    own = uploads["room 3"]["prototypes"]
    assert not any(np.array_equal(own, other) for other in down["clients"])


def heard(number: int, peers: Any, classes: int = 2, width: int = 2) -> tuple[FedAPA, Any]:
    """A server that has heard so many rooms, each with a set of its own."""
    algorithm = FedAPA(peers=peers)
    stream = Key(0).numpy()
    uploads = {
        f"room {index}": {
            "prototypes": stream.normal(size=(classes, width)).astype(np.float32),
            "present": np.ones(classes, bool),
        }
        for index in range(number)
    }
    server = algorithm.open(cards(number, classes, width), Key(0))
    return algorithm, algorithm.merge(server, uploads, ROUND)


def test_a_sample_of_peers_is_drawn_anew_each_round_evenly_and_never_oneself() -> None:
    """2 of 4 peers have 6 pairs; in 1,200 rounds each comes 200 times, give or take 5 σ = 65."""
    algorithm, server = heard(5, 2)
    times: Counter[tuple[int, ...]] = Counter()
    for number in range(1, 1201):
        down = algorithm.download(server, "room 1", Round(number, 1200, Key(0) / "round" / number))
        rows = [
            np.flatnonzero((server["prototypes"] == one).all((1, 2))) for one in down["clients"]
        ]
        times[tuple(int(row) for (row,) in rows)] += 1
        assert down["drawn_of"] == 4
    assert sorted(times) == list(itertools.combinations((0, 2, 3, 4), 2))
    assert all(abs(seen - 200) < 65 for seen in times.values())


def test_a_sample_depends_on_seed_round_and_room_alone() -> None:
    algorithm, server = heard(9, 3)

    def drawn(room: str, round: Round) -> bytes:
        return encode(algorithm.download(server, room, round))

    usual = drawn("room 1", ROUND)
    assert drawn("room 1", ROUND) == usual
    others = {drawn("room 2", ROUND), drawn("room 1", Round(2, 10, Key(1)))}
    others |= {drawn("room 1", Round(2, 10, Key(0) / "round" / 3))}
    assert len(others - {usual}) == 3


def test_as_many_peers_as_there_are_is_all_of_them() -> None:
    _, server = heard(5, "all")
    expected = encode(FedAPA().download(server, "room 1", ROUND))
    for number in (4, 5, 100):
        assert encode(FedAPA(peers=number).download(server, "room 1", ROUND)) == expected
    assert encode(FedAPA(peers=3).download(server, "room 1", ROUND)) != expected


def test_a_download_with_a_sample_does_not_grow_with_the_rooms() -> None:
    """k + 1 sets of 21 × 256 and one number, whether 10 rooms take part or 300."""
    sizes = set()
    for number in (10, 300):
        algorithm, server = heard(number, 4, 21, 256)
        down = algorithm.download(server, "room 3", ROUND)
        assert array_bytes(down) == 5 * 21 * 256 * 4 + 21
        sizes.add(len(encode(down)) // 100)
    assert len(sizes) == 1


def test_enough_peers_train_as_all_do_and_fewer_do_not(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    rooms = make_rooms()
    found = {}
    for peers in ("all", 2, 1):
        settings = {"peers": peers, "warm_rounds": 0}
        carry_out(plan_of("fedapa", settings=settings), rooms, tmp_path / str(peers))
        found[peers] = models(tmp_path / str(peers))
    assert found["all"] == found[2] != found[1]


def test_a_run_with_a_sample_of_peers_goes_on_bit_equal(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    rooms, plan = make_rooms(), plan_of("fedapa", settings={"peers": 1, "warm_rounds": 0})
    whole = carry_out(plan, rooms, tmp_path / "whole")
    part = carry_out(plan, rooms, tmp_path / "part", stop_after=2)
    rest = go_on(plan, rooms, tmp_path / "part", part[-1].state)
    assert records(part + rest) == records(whole)
    assert models(tmp_path / "part") == models(tmp_path / "whole")


@pytest.mark.parametrize("peers", [0, -1, 2.5, "some"])
def test_peers_that_mean_nothing_are_refused(peers: Any) -> None:
    with pytest.raises(PlanError, match="peers"):
        plan_of("fedapa", settings={"peers": peers})


def test_absent_classes_do_not_travel_up(make_rooms: MakeRooms) -> None:
    room = make_rooms(((0, 1), (2, 3)))[0]
    algorithm = FedAPA()
    _, sent, _ = algorithm.train(room, algorithm.join(room, Key(0)), ROUND)
    assert sent["prototypes"].shape == (2, 16)
    assert sent["present"].tolist() == [True, True, False, False]
    assert "counts" not in sent


def test_prototypes_are_those_of_the_trained_net_in_eval_mode(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    algorithm = FedAPA()
    state, sent, _ = algorithm.train(room, algorithm.join(room, Key(0)), ROUND)
    embeddings, labels = room.embeddings(algorithm.model(room, state))
    for index in range(3):
        expected = embeddings[labels == index].mean(dim=0)
        np.testing.assert_allclose(sent["prototypes"][index], expected, rtol=1e-5, atol=1e-6)


def test_minimum_samples_keeps_thin_classes_at_home(make_rooms: MakeRooms) -> None:
    room = make_rooms(((0, 1),))[0]
    held = int((room.labels[room.split.train] == 0).sum())
    algorithm = FedAPA(minimum_samples=held + 1)
    _, sent, _ = algorithm.train(room, algorithm.join(room, Key(0)), ROUND)
    assert not sent["present"][0]


def test_no_weight_is_local(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """λ_max = 0 leaves cross-entropy alone: bit-equal models."""
    rooms = make_rooms()
    carry_out(plan_of("local"), rooms, tmp_path / "local")
    carry_out(plan_of("fedapa", settings={"maximum": 0.0}), rooms, tmp_path / "fedapa")
    assert models(tmp_path / "local") == models(tmp_path / "fedapa")


def test_infinite_aggregation_temperature_is_the_global_mean(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    settings = {"aggregation_temperature": float("inf"), "warm_rounds": 0}
    steps = carry_out(plan_of("fedapa", settings=settings), make_rooms(), tmp_path)
    server: Any = steps[-1].state["server"]
    present, prototypes = server["present"], server["prototypes"]
    for index in range(prototypes.shape[1]):
        mean = prototypes[present[:, index], index].mean(axis=0)
        for mixture in server["mixture"][:, index]:
            np.testing.assert_allclose(mixture, mean, rtol=1e-5, atol=1e-6)


def test_the_losses_start_in_round_two_and_follow_the_warm_up(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """T_warm = 4: λ_2 = (1 − cos(π/2))/2 = 0.5, and loss = loss_ce + λ (loss_g + loss_c)."""
    plan = plan_of("fedapa", settings={"warm_rounds": 4})
    steps = carry_out(plan, make_rooms(), tmp_path)
    first, second = steps[1].record, steps[2].record
    assert first is not None and second is not None
    for entry in first["rooms"].values():
        assert "loss_g" not in entry
    for entry in second["rooms"].values():
        assert entry["lambda"] == pytest.approx(0.5)
        assert entry["loss"] == pytest.approx(
            entry["loss_ce"] + 0.5 * (entry["loss_g"] + entry["loss_c"]), rel=1e-5
        )


def test_prototype_losses_pull_rooms_together(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """After some rounds the prototypes of one class lie closer between rooms than Local's."""

    def nearness(weight: float) -> float:
        plan = plan_of("fedapa", rounds=8, settings={"warm_rounds": 2, "maximum": weight})
        rooms = make_rooms(((0, 1, 2), (0, 1, 2), (0, 1, 2)), windows_per_class=12)
        server: Any = carry_out(plan, rooms, tmp_path / str(weight))[-1].state["server"]
        unit = server["prototypes"] / np.linalg.norm(server["prototypes"], axis=2, keepdims=True)
        same = np.einsum("icd,jcd->cij", unit, unit).mean()
        different = np.einsum("icd,jed->ceij", unit, unit).mean()
        return float(same - different)

    assert nearness(1.0) > nearness(0.0)


def test_recorded_weights_and_entropy(make_rooms: MakeRooms, tmp_path: Path) -> None:
    steps = carry_out(plan_of("fedapa"), make_rooms(), tmp_path)
    record = steps[-1].record
    assert record is not None
    weights = np.asarray(record["server"]["weights"])
    assert weights.shape == (3, 3)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    for entry in record["rooms"].values():
        assert 0 <= entry["entropy"] <= np.log(3)


def test_unequal_widths_are_refused_by_name() -> None:
    odd = [*cards(2), RoomCard("cellar", "tiny", 8, 2, 3, {})]
    with pytest.raises(RosterError, match="cellar has 2 classes and width 3"):
        FedAPA().open(odd, Key(0))


def test_peers_every_second_round_halves_their_bytes(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Sets come in rounds 2 and 4; in round 3 a room has those of round 2, but a new mixture."""
    seen: dict[int, bool] = {}

    class Watched(FedAPA):
        def receive(self, room: Room, state: Any, download: Any, round: Round) -> Any:
            received = super().receive(room, state, download, round)
            seen[round.number] = "clients" in download
            if round.number == 3:
                assert np.array_equal(received["clients"], state["clients"])
                assert received["drawn_of"] == state["drawn_of"]
                assert not np.array_equal(received["mixture"], state["mixture"])
            return received

    algorithm = Watched(peers=1, peers_every=2, training=Training(batch_size=4))
    plan = Plan(algorithm={"name": "fedapa", "peers": 1, "peers_every": 2}, rounds=4)
    with InProcess(algorithm, make_rooms(), folder=tmp_path, workers=0) as engine:
        state = rounds.begin(algorithm, engine, plan)
        steps = list(rounds.run(algorithm, engine, plan, state))
    assert seen == {1: False, 2: True, 3: False, 4: True, 5: False}
    down = [step.record["rooms"]["room 0"]["bytes_down"] for step in steps if step.record]
    assert down[0] == down[2] > down[1] == down[3]
    sizes = Dimensions(rooms=6, classes=21, width=256, parameters=1, batch_norm=0, classifier=1)
    assert algorithm.sends(sizes) == ("(k/j + 2)·|C|·D", 13440)  # 2.5 · 21 · 256

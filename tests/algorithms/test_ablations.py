"""The ablations: each is the setting that it says, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from fedapa.algorithms import find
from fedapa.algorithms.fedapa import (
    AveragePrototypes,
    AverageWithClients,
    FedAPA,
    MixtureOnly,
    SelfPrototypes,
)
from fedapa.algorithms.fedpcl import FedPCLSelf
from fedapa.algorithms.fedproto import FedProtoSelf
from fedapa.algorithms.local import Local
from fedapa.algorithms.wifederated import LocalMoreEpochs
from fedapa.errors import PlanError
from fedapa.federation.plan import Plan
from fedapa.payload import array_bytes, encode
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, cards, prototypes, round_number
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, models, plan_of

UPLOADS = {
    "room 0": prototypes([[1, 0], [2, 2]], [True, True]),
    "room 1": prototypes([[0, 1]], [True, False]),
}


def test_the_average_is_one_plain_mean_for_all_by_hand() -> None:
    """(1, 0) and (0, 1) make (½, ½) for both rooms, where APA at τ = 0.5 makes (0.88, 0.12)."""
    for kind in (AveragePrototypes, AverageWithClients):
        algorithm = kind()
        server = algorithm.merge(algorithm.open(cards(2), Key(0)), UPLOADS, round_number(1))
        for room in ("room 0", "room 1"):
            down = algorithm.download(server, room, round_number(2))
            assert down["mixture"].tolist() == [[0.5, 0.5], [2, 2]]
            assert ("clients" in down) == (kind is AverageWithClients)


def test_the_average_is_apa_at_infinite_temperature(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    plain = Game(FedAPA(training=QUICKLY, mixture="average"), rooms).play(2)
    limit = Game(FedAPA(training=QUICKLY, aggregation_temperature=np.inf), rooms).play(2)
    np.testing.assert_allclose(
        plain.server["mixture"], limit.server["mixture"], rtol=1e-3, atol=1e-5
    )


def test_without_client_prototypes_only_the_mixture_travels() -> None:
    full, part = FedAPA(), MixtureOnly()
    servers = [
        each.merge(each.open(cards(2), Key(0)), UPLOADS, round_number(1)) for each in (full, part)
    ]
    whole = full.download(servers[0], "room 0", round_number(2))
    alone = part.download(servers[1], "room 0", round_number(2))
    assert encode({"m": whole["mixture"]}) == encode({"m": alone["mixture"]})
    assert set(alone) == {"mixture", "known"}


def test_without_client_prototypes_their_loss_is_nothing(make_rooms: MakeRooms) -> None:
    game = Game(MixtureOnly(training=QUICKLY, warm_rounds=0), make_rooms()).play(2)
    report = game.reports["room 0"]
    assert report["loss_c"] == 0
    assert report["loss"] == pytest.approx(report["loss_ce"] + report["loss_g"], rel=1e-5)


def test_self_prototypes_exchange_nothing(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Room 0 learns the same with two peers and alone; and not as Local does."""
    rooms = make_rooms()
    settings = {"warm_rounds": 0}
    carry_out(plan_of("fedapa-self", settings=settings), rooms, tmp_path / "three")
    carry_out(plan_of("fedapa-self", settings=settings), rooms[:1], tmp_path / "alone")
    carry_out(plan_of("local"), rooms[:1], tmp_path / "local")
    name = "room 0.safetensors"
    assert models(tmp_path / "three")[name] == models(tmp_path / "alone")[name]
    assert models(tmp_path / "alone")[name] != models(tmp_path / "local")[name]
    algorithm = SelfPrototypes(training=QUICKLY)
    _, sent, _ = algorithm.train(rooms[0], algorithm.join(rooms[0], Key(0)), round_number(1))
    assert array_bytes(sent) == 0


def test_self_prototypes_are_both_losses_on_the_own_set(make_rooms: MakeRooms) -> None:
    game = Game(SelfPrototypes(training=QUICKLY, warm_rounds=0), make_rooms()).play(2)
    report = game.reports["room 1"]
    assert report["loss_g"] == pytest.approx(report["loss_c"], rel=1e-6)
    assert report["loss"] == pytest.approx(report["loss_ce"] + 2 * report["loss_g"], rel=1e-5)


@pytest.mark.parametrize(("name", "control"), [("fedproto", FedProtoSelf), ("fedpcl", FedPCLSelf)])
def test_a_control_with_own_prototypes_is_its_algorithm_alone(
    name: str, control: type[FedProtoSelf | FedPCLSelf], make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """A room among three is where the algorithm ends if it is the only room, to the last bit."""
    rooms = make_rooms()
    among = carry_out(plan_of(control.name), rooms, tmp_path / "among")[-1].record
    alone = carry_out(plan_of(name), rooms[:1], tmp_path / "alone")[-1].record
    carry_out(plan_of(name), rooms, tmp_path / "together")
    file = "room 0.safetensors"
    assert models(tmp_path / "among")[file] == models(tmp_path / "alone")[file]
    assert models(tmp_path / "among")[file] != models(tmp_path / "together")[file]
    assert among is not None
    assert alone is not None
    exchanged = {"age", "bytes_up", "bytes_down"}
    entry, other = (
        {key: value for key, value in each["rooms"]["room 0"].items() if key not in exchanged}
        for each in (among, alone)
    )
    assert entry == other, "its figures too, those of the nearest prototype among them"
    algorithm = control(training=QUICKLY)
    _, sent, _ = algorithm.train(rooms[0], algorithm.join(rooms[0], Key(0)), round_number(1))
    assert array_bytes(sent) == 0


@pytest.mark.parametrize("weight", [0.1, 0.5, 1.0])
def test_a_fixed_weight_is_the_same_in_every_round(
    weight: float, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    plan = plan_of("fedapa-fixed", settings={"maximum": weight})
    for step in carry_out(plan, make_rooms(), tmp_path)[1:]:
        assert step.record is not None
        assert {entry["lambda"] for entry in step.record["rooms"].values()} == {weight}


def test_local_with_equal_epochs_trains_as_local_and_deploys_more(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    more, plain = (Game(kind(training=QUICKLY), rooms).play(2) for kind in (LocalMoreEpochs, Local))
    assert encode(more.states["room 0"]) == encode(plain.states["room 0"])
    more.number = plain.number = 4
    name = "classifier.weight"
    assert not np.array_equal(more.deployed(rooms[0])[name], plain.deployed(rooms[0])[name])


def test_what_makes_a_variant_cannot_be_changed() -> None:
    with pytest.raises(PlanError, match=r"algorithm 'fedapa-self': mixture: input should be 'own'"):
        Plan(algorithm={"name": "fedapa-self", "mixture": "adaptive"})
    assert Plan(algorithm={"name": "fedapa-self", "temperature": 0.1}).build().temperature == 0.1


def test_a_variant_takes_over_its_algorithms_settings_and_no_others() -> None:
    """A preset's shorter warm-up holds for the ablations too, or they would not compare."""
    preset = {"algorithm": {"name": "fedapa", "warm_rounds": 8, "peers": "others"}}
    plan = Plan.of(preset, {"algorithm": "fedapa-mixture"})
    assert plan.algorithm["warm_rounds"] == 8
    assert plan.algorithm["peers"] == "none", "what makes the variant stays"
    assert Plan.of(preset, {"algorithm": "fedapa-fixed"}).algorithm["warm_rounds"] == 0
    pcl = Plan.of({"algorithm": {"name": "fedapa", "temperature": 2.0}}, {"algorithm": "fedpcl"})
    assert pcl.algorithm["temperature"] == 0.07
    shared = {"algorithm": {"name": "fedavg", "sharing": "head"}}
    assert Plan.of(shared, {"algorithm": "moon"}).algorithm["sharing"] == "architecture"


def test_a_variant_survives_its_own_plan() -> None:
    plan = Plan(algorithm="fedapa-average")
    assert Plan(**plan.document()).build() == plan.build() == find("fedapa-average")()

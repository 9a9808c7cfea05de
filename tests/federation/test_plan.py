"""Plans: layers, defaults spelled out, and one sentence for every mistake."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedapa import Plan
from fedapa.errors import DataError, PlanError, RunError
from fedapa.experiments.presets import PRESETS, preset
from fedapa.federation.defence import NAMED, Defence
from fedapa.federation.plan import LATER, differences
from fedapa.federation.prepare import prepare_rooms
from fedapa.federation.run_files import read_plan
from fedapa.toml import read_toml
from tests.conftest import MakeStore


def test_a_resolved_plan_repeats_itself(tmp_path: Path) -> None:
    plan = Plan(rounds=7, algorithm="fedapa", data="rooms.h5", classes=[0, 1, 5])
    path = tmp_path / "plan.toml"
    path.write_text(plan.toml())
    again = Plan.of(read_toml(path))
    assert again == plan
    assert again.document() == plan.document()


def test_an_infinite_temperature_is_kept() -> None:
    import tomllib

    plan = Plan(algorithm={"name": "fedapa", "aggregation_temperature": float("inf")})
    assert Plan(**tomllib.loads(plan.toml())) == plan
    assert plan.document()["algorithm"]["aggregation_temperature"] == float("inf")


def test_a_plan_may_leave_the_name_to_a_flag() -> None:
    nameless = {"algorithm": {"temperature": 0.1}}
    assert Plan.of(nameless, {"algorithm": "fedapa"}).algorithm["name"] == "fedapa"
    assert Plan.of({"algorithm": "fedapa"}, nameless).algorithm["temperature"] == 0.1


def test_every_default_is_spelled_out() -> None:
    document = Plan(algorithm="fedapa").document()
    assert document["training"]["learning_rate"] == 0.01
    assert document["algorithm"] == {
        "name": "fedapa",
        "temperature": 0.5,
        "aggregation_temperature": 0.5,
        "warm_rounds": 50,
        "minimum": 0.0,
        "maximum": 1.0,
        "padding": "uniform",
        "include_self": True,
        "peers": "all",
        "peers_every": 1,
        "mixture": "adaptive",
        "minimum_samples": 1,
    }


def test_later_layers_override_section_by_section() -> None:
    plan = Plan.of(
        {"rounds": 5, "data": {"split": "blocked", "window": 10}},
        {"data": {"window": 20}},
        {"rounds": 6},
    )
    assert (plan.rounds, plan.data.split, plan.data.window) == (6, "blocked", 20)


def test_another_rule_than_that_of_a_combination_takes_its_share_away() -> None:
    plan = Plan.of({"defence": "guard-trimmed"}, {"defence": {"rule": "median"}})
    assert plan.defence == Defence(**{**NAMED["guard-trimmed"], "rule": "median", "trim": 0.3})
    narrow = Plan.of({"defence": "guard-trimmed"}, {"defence": {"clip": 3.0}})
    assert narrow.defence == Defence(**{**NAMED["guard-trimmed"], "clip": 3.0})


def test_settings_of_one_algorithm_do_not_reach_another() -> None:
    quick = {"algorithm": {"name": "fedapa", "warm_rounds": 8}}
    assert Plan.of(quick, {"algorithm": "local"}).algorithm == {"name": "local"}
    assert Plan.of(quick, {"algorithm": "fedapa"}).algorithm["warm_rounds"] == 8
    assert Plan.of(quick, {"algorithm": {"temperature": 0.1}}).algorithm["warm_rounds"] == 8


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_plans(name: str) -> None:
    assert Plan.of(preset(name)).algorithm["name"] == "fedapa"


def test_the_paper_preset_has_the_papers_hyperparameters() -> None:
    plan = Plan.of(preset("paper"))
    training = plan.training
    assert (training.learning_rate, training.momentum, training.weight_decay) == (0.01, 0.5, 1e-5)
    assert (training.batch_size, training.epochs, plan.participation) == (16, 1, 1.0)
    assert (plan.algorithm["temperature"], plan.algorithm["warm_rounds"]) == (0.5, 50)
    assert (plan.model.width, plan.model.architecture) == (256, "large")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"rouns": 3}, "rouns: unknown key; did you mean 'rounds'?"),
        ({"data": {"splitt": "random"}}, "data.splitt: unknown key; did you mean 'split'?"),
        ({"training": {"lerning_rate": 1}}, "did you mean 'learning_rate'?"),
        ({"model": {"widht": 3}}, "model.widht: unknown key; did you mean 'width'?"),
        ({"algorithm": {"name": "fedapa", "temprature": 1}}, "did you mean 'temperature'?"),
        (
            {"algorithm": {"name": "local", "temperature": 1}},
            "algorithm 'local': temperature: unknown key; there are none",
        ),
        ({"algorithm": {"name": "local", "training": {"epochs": 5}}}, "stand in [training]"),
        ({"algorithm": {"name": "fedavg", "attraction": 1}}, "unknown key; known: sharing"),
        ({"algorithm": "fedappa"}, "algorithm 'fedappa' is unknown; did you mean 'fedapa'?"),
        ({"algorithm": {"temperature": 1}}, "no name given"),
        ({"rounds": 0}, "rounds: input should be greater than or equal to 1 (got 0)"),
        ({"rounds": "opn"}, 'rounds: expected a number of 1 or more, or "open", which has no last'),
        ({"participation": 1.5}, "participation: input should be less than or equal to 1"),
        ({"training": {"momentum": 1.0}}, "training.momentum: input should be less than 1"),
        ({"algorithm": {"name": "fedapa", "temperature": 0}}, "temperature: input should be great"),
        ({"data": {"split": "rendom"}}, "data.split: input should be 'random', 'blocked', 'rec"),
        ({"model": {"architecture": "huge"}}, "'huge' is no architecture"),
        ({"model": {"architecture": {"cafe": "by-size"}}}, "'by-size' is no architecture"),
        ({"training": {"learning_rate": float("inf")}}, "should be a finite number"),
        ({"training": {"learning_rate": float("nan")}}, "should be a finite number"),
        ({"algorithm": {"name": "fedapa", "temperature": float("nan")}}, "temperature"),
        ({"classes": [0, 0, 1]}, "classes name one twice"),
        ({"device": "tpu"}, "device: input should be 'cpu' or 'cuda'"),
        ({"classes": [-1, 0]}, "classes name -1: no number of people"),
        ({"classes": range(10_001)}, "classes: "),
        ({"seed": 10**400}, "seed: input should be less than 9223372036854775808 (got 1000"),
        ({"rounds": 10**400}, "rounds: input should be less than"),
        ({"rounds": 10**5000}, "(got a number too long to be written)"),
        ({"classes": [0, 10**5000]}, "a number too long to be written"),
        ({"algorithm": {"name": 10**5000}}, "algorithm 'a number too long to be written' is unkn"),
        ({"model": {"architecture": "a\udcff"}}, "'a\ufffd' is no architecture"),
        ({"participation": 10**400}, "participation: input should be a valid number (got 1000"),
        ({"data": {"partition_rooms": 1e8}}, "partition_rooms: input should be less than or eq"),
        ({"data": {"window": 2**63}}, "data.window: input should be less than"),
        ({"model": {"width": 10**12}}, "model.width: input should be less than or equal to 65536"),
        ({"data": {"file": "a\0b"}}, "data.file: holds a NUL or bytes that are no UTF-8"),
        ({"data": {"file": "a\udcff"}}, "data.file: holds a NUL or bytes that are no UTF-8"),
        ({"selection": "a" * 10**6}, "(got 'aaa"),
        ({"a" * 10**6: 1}, "a …: unknown key"),
    ],
)
def test_a_mistake_is_one_sentence(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PlanError) as caught:
        Plan(**values)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "section",
    [
        *("data", "model", "training", "algorithm", "joins"),
        *("network", "privacy", "defence", "attack"),
    ],
)
def test_a_value_in_place_of_a_section_is_told_with_an_example(section: str) -> None:
    with pytest.raises(PlanError, match=rf"{section}: is a section: .* {section}.* \(got 1\)"):
        Plan(**{section: 1})


def test_an_unknown_preset_offers_the_nearest() -> None:
    with pytest.raises(PlanError, match="did you mean 'quick'"):
        preset("quik")


def test_differences_name_the_keys() -> None:
    old, new = Plan(rounds=3).document(), Plan(rounds=4, data={"split": "random"}).document()
    assert differences(old, new) == ["data.split: auto → random", "rounds: 3 → 4"]


def test_rooms_are_chosen_by_the_plan(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 4, 1: 4}, "hall": {0: 4, 1: 4}, "loft": {0: 4, 1: 4}})
    data = {"file": str(path), "window": 16, "split": "random"}

    def names(**chosen: object) -> list[str]:
        return [room.name for room in prepare_rooms(Plan(data={**data, **chosen}))]

    assert names(only=["loft", "cafe"]) == ["cafe", "loft"]
    assert names(without=["loft"]) == ["cafe", "hall"]
    assert names(only=["loft", "cafe"], without=["cafe"]) == ["loft"]
    with pytest.raises(DataError, match="there is no room 'haal'; did you mean 'hall'"):
        names(without=["haal"])
    with pytest.raises(DataError, match="no room is left of cafe, hall, loft"):
        names(only=["cafe"], without=["cafe"])


def test_a_plan_that_chooses_no_rooms_says_nothing_of_it() -> None:
    """Its bytes, and so its identity, are what they were."""
    assert "only" not in Plan().toml()
    assert "without" not in Plan().toml()


def test_settings_that_take_labels_away_must_mean_something(make_store: MakeStore) -> None:
    with pytest.raises(PlanError, match="unlabelled: no label is taken away"):
        Plan(data={"unlabelled": "keep"})
    with pytest.raises(PlanError, match="few_labels_in: no label is taken away"):
        Plan(data={"few_labels_in": ["cafe"]})
    data = {"file": str(make_store()), "train_recordings": 1, "few_labels_in": ["caffe"]}
    with pytest.raises(PlanError, match=r"there is no room 'caffe'.*did you mean 'cafe'"):
        prepare_rooms(Plan(data={**data, "window": 16, "view": "amplitude"}))


def test_few_labels_in_one_room_leave_the_others_alone(make_store: MakeStore) -> None:
    shape = {"file": str(make_store()), "window": 16, "view": "amplitude", "split": "recording"}
    few = {"train_recordings": 1, "few_labels_in": ["cafe"], "unlabelled": "keep"}
    plain = {room.name: room for room in prepare_rooms(Plan(data=shape))}
    poor = {room.name: room for room in prepare_rooms(Plan(data={**shape, **few}))}
    assert (poor["hall"].split.train == plain["hall"].split.train).all()
    assert len(poor["cafe"].split.train) < len(plain["cafe"].split.train)
    assert len(poor["cafe"].split.unlabelled) > 0
    assert (poor["cafe"].split.test == plain["cafe"].split.test).all()


def test_a_room_may_answer_what_it_recorded_and_what_its_owner_names(
    make_store: MakeStore,
) -> None:
    shape = {"file": str(make_store()), "window": 16, "view": "amplitude", "split": "recording"}
    for asked, expected in (("all", None), ("room", (0, 2)), ((1,), (0, 1, 2))):
        hall = prepare_rooms(Plan(data=shape, answerable=asked))[1]
        assert hall.answerable == expected
    with pytest.raises(PlanError, match="answerable: nobody knows 9"):
        prepare_rooms(Plan(data=shape, answerable=(9,)))


def test_a_key_that_came_later_leaves_a_run_what_it_was(tmp_path: Path) -> None:
    """Its plan need not name it, and by default its identity does not."""
    plan = Plan(algorithm="fedala")
    assert "scored" not in plan.identity()
    assert "statistics" not in plan.identity()
    assert 'scored = "validation"' in Plan.of({"data": {"scored": "validation"}}).identity()
    document = plan.document()
    for section, key in (place.split(".") for place in LATER):
        del document[section][key]
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(document))
    assert read_plan(tmp_path) == plan
    del document["data"]["test"]
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(document))
    with pytest.raises(RunError, match=r"does not give data\.test as a run of this version does"):
        read_plan(tmp_path)

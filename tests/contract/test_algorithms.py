"""The contract: what must hold for every algorithm in fedapa.algorithms, found by listing them.

Controls and other variants are held to it too, but for their settings: those are their
algorithm's. Pooled training, which is no federation, is tested in tests/algorithms/test_pooled.py.
"""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors.numpy import load, save

from fedapa.algorithms import find, is_variant, names
from fedapa.algorithms.algorithm import Algorithm, Round, settings_of
from fedapa.errors import RosterError
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.plan import Plan
from fedapa.learning.fit import Training
from fedapa.payload import Tree, decode, encode, leaves
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.windows.origins import Origins
from tests.conftest import MakeRooms

ALGORITHMS = tuple(name for name in names() if not find(name).pools)
FILES = tuple(name for name in ALGORITHMS if not is_variant(find(name)))
every = pytest.mark.parametrize("name", ALGORITHMS)
every_file = pytest.mark.parametrize("name", FILES)
UNSAVED = ("forest",)
"""What is no net: there are no model files of it, and rooms say so."""


SMALLER: dict[str, dict[str, Any]] = {
    "fedala": {"longest_start": 12},
    "forest": {"trees": 5},
    "local-more-epochs": {"fine_tuning_epochs": 2},
    "moon": {"projection": 16},
    "wifederated": {"fine_tuning_epochs": 2},
}
"""Settings that only cost time here."""


def plan_of(name: str, **values: Any) -> Plan:
    values = {"rounds": 3, "training": {"learning_rate": 0.05, "batch_size": 4}, **values}
    settings = {**SMALLER.get(name, {}), **values.pop("settings", {})}
    return Plan(algorithm={"name": name, **settings}, **values)


def carry_out(
    plan: Plan, rooms: list[Room], folder: Path, stop_after: int | None = None
) -> list[rounds.Step]:
    """All exchanges in this process, states passed through the codec as a checkpoint would."""
    algorithm = plan.build()
    with InProcess(algorithm, rooms, folder=folder, workers=0) as engine:
        state: Tree = rounds.begin(algorithm, engine, plan)
        steps = []
        for step in rounds.run(algorithm, engine, plan, decode(encode(state))):
            steps.append(step)
            if len(steps) == stop_after:
                break
        return steps


def go_on(plan: Plan, rooms: list[Room], folder: Path, state: Tree) -> list[rounds.Step]:
    algorithm = plan.build()
    with InProcess(algorithm, rooms, folder=folder, workers=0) as engine:
        return list(rounds.run(algorithm, engine, plan, decode(encode(state))))


def models(folder: Path) -> dict[str, bytes]:
    """What rooms end with: their model files; where they have none, the arrays of their states."""
    files = sorted((folder / "models").glob("*"))
    return {path.name: path.read_bytes() for path in files} or last_states(folder)


def last_states(folder: Path) -> dict[str, bytes]:
    """The arrays of every room's newest state, as a safetensors file like a model's."""
    kept = {path.parent: path for path in sorted(folder.glob("rooms/*/*/round-*.state"))}
    states = {path.parts[-3]: decode(path.read_bytes())["state"] for path in kept.values()}
    return {
        f"{room}.state": save(
            {path: value for path, value in leaves(state) if isinstance(value, np.ndarray)}
        )
        for room, state in states.items()
    }


def records(steps: list[rounds.Step]) -> list[str]:
    return [json.dumps(step.record, sort_keys=True) for step in steps if step.record is not None]


def frozen(tree: Any) -> Any:
    """The same tree with arrays that refuse to be written."""
    if isinstance(tree, dict):
        return {key: frozen(value) for key, value in tree.items()}
    if isinstance(tree, np.ndarray):
        locked = tree.copy()
        locked.flags.writeable = False
        return locked
    return tree


def round_number(number: int, total: int = 3) -> Round:
    return Round(number, total, Key(0) / "round" / number)


@every
def test_it_introduces_itself(name: str) -> None:
    kind = find(name)
    assert kind.name == name
    assert kind.title and kind.travels and kind.citation
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


@every
def test_it_runs_learns_and_scores(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    steps = carry_out(plan_of(name), rooms, tmp_path)
    assert [step.exchange for step in steps] == [1, 2, 3, 4]
    assert steps[0].record is None
    for step in steps[1:]:
        assert step.record is not None
        assert sorted(step.record["rooms"]) == [room.name for room in rooms]
        for entry in step.record["rooms"].values():
            assert 0 <= entry["accuracy"] <= 1
            assert np.isfinite(entry["loss"])
            assert entry["bytes_up"] > 0
    ending = "state" if name in UNSAVED else "safetensors"
    assert sorted(models(tmp_path)) == [f"{room.name}.{ending}" for room in rooms]
    said = [f"room '{room.name}'" in " ".join(steps[-1].notes) for room in rooms]
    assert said == [name in UNSAVED] * len(rooms), "whoever has no model file says so"


@every
def test_inputs_are_not_changed(name: str, make_rooms: MakeRooms) -> None:
    """Every state and payload is handed over locked; a method that writes into it fails."""
    algorithm = plan_of(name).build()
    rooms = make_rooms()
    server = frozen(dict(algorithm.open([room.card for room in rooms], Key(0))))
    states = {room.name: frozen(dict(algorithm.join(room, Key(0)))) for room in rooms}
    for number in (1, 2):
        uploads = {}
        for room in rooms:
            download = frozen(
                decode(encode(algorithm.download(server, room.name, round_number(number))))
            )
            kept = copy.deepcopy((server, states[room.name], download))
            state = frozen(
                dict(algorithm.receive(room, states[room.name], download, round_number(number)))
            )
            algorithm.deploy(room, state, round_number(number))
            new, upload, _ = algorithm.train(room, state, round_number(number))
            uploads[room.name] = frozen(decode(encode(upload)))
            assert encode(kept[0]) == encode(server)
            assert encode(kept[1]) == encode(states[room.name])
            assert encode(kept[2]) == encode(download)
            states[room.name] = frozen(decode(encode(new)))
        before = encode(server)
        merged = algorithm.merge(server, uploads, round_number(number))
        algorithm.explain(merged)
        assert encode(server) == before
        server = frozen(decode(encode(merged)))


@every
def test_the_order_of_uploads_does_not_matter(name: str, make_rooms: MakeRooms) -> None:
    check_order_of_uploads(plan_of(name).build(), make_rooms())


def check_order_of_uploads(algorithm: Algorithm, rooms: list[Room]) -> None:
    server = algorithm.open([room.card for room in rooms], Key(0))
    uploads = {
        room.name: algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))[1]
        for room in rooms
    }
    turned = dict(reversed(list(uploads.items())))
    assert encode(algorithm.merge(server, uploads, round_number(1))) == encode(
        algorithm.merge(server, turned, round_number(1))
    )


@every
def test_a_resumed_run_is_bit_equal(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    check_resuming(plan_of(name), make_rooms(), tmp_path)


def check_resuming(plan: Plan, rooms: list[Room], folder: Path) -> None:
    whole = carry_out(plan, rooms, folder / "whole")
    part = carry_out(plan, rooms, folder / "part", stop_after=2)
    rest = go_on(plan, rooms, folder / "part", part[-1].state)
    assert records(part + rest) == records(whole)
    assert models(folder / "part") == models(folder / "whole")
    assert encode(rest[-1].state) == encode(whole[-1].state)


@every
def test_what_the_number_of_rounds_decides_is_said(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """A run may be made longer unless its algorithm says that it plans ahead."""
    short = carry_out(plan_of(name, rounds=3), make_rooms(), tmp_path / "short")
    long = carry_out(plan_of(name, rounds=13), make_rooms(), tmp_path / "long", stop_after=4)
    same = [
        json.dumps(one.record) == json.dumps(two.record)
        for one, two in zip(short, long, strict=True)
    ]
    assert find(name).plans_ahead == (not all(same))


@every
def test_a_repeated_request_is_not_trained_twice(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """The server dies after the rooms of exchange 2 replied: it asks again and gets the same."""
    rooms, plan = make_rooms(), plan_of(name)
    whole = carry_out(plan, rooms, tmp_path / "whole")
    carry_out(plan, rooms, tmp_path / "twice", stop_after=2)
    first = carry_out(plan, rooms, tmp_path / "other", stop_after=1)
    again = go_on(plan, rooms, tmp_path / "twice", first[-1].state)
    assert records(again) == records(whole[1:])
    assert models(tmp_path / "twice") == models(tmp_path / "whole")


@every
def test_absent_rooms_are_handled(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Half of the rooms a round: the others are scored with what they have and send nothing."""
    rooms = make_rooms()
    steps = carry_out(plan_of(name, participation=0.4, rounds=4), rooms, tmp_path)
    for step in steps[1:]:
        assert step.record is not None
        taking_part = [entry["participated"] for entry in step.record["rooms"].values()]
        assert sum(taking_part) == 1
        for entry in step.record["rooms"].values():
            assert "accuracy" in entry
            if not entry["participated"]:
                assert entry["bytes_up"] == 0


@every
def test_missing_classes_are_handled(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Rooms that share no class at all, and one class that only one of them holds."""
    rooms = make_rooms(((0, 1), (2, 3), (3, 4)))
    steps = carry_out(plan_of(name), rooms, tmp_path)
    for _, value in leaves(steps[-1].state):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert np.isfinite(value).all()


@every
def test_results_do_not_depend_on_the_names_order_of_rooms_given(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    rooms, plan = make_rooms(), plan_of(name)
    carry_out(plan, rooms, tmp_path / "one")
    carry_out(plan, list(reversed(rooms)), tmp_path / "two")
    assert models(tmp_path / "one") == models(tmp_path / "two")


@every
def test_different_nets_run_or_are_refused_by_name(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """All different: prototypes still travel, averages of weights have nothing to average."""
    rooms = make_rooms(architecture=("tiny", "middle", "large"))
    averages = "sharing" in settings_of(find(name)) and find(name).averages_weights
    if not averages or getattr(plan_of(name).build(), "shares_more", False):
        assert carry_out(plan_of(name), rooms, tmp_path)[-1].record is not None
        return
    with pytest.raises(RosterError, match=r"room 0 .* use another sharing"):
        carry_out(plan_of(name), rooms, tmp_path)


@every
def test_nets_of_two_kinds_run(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms(architecture=("tiny", "middle", "tiny"))
    assert carry_out(plan_of(name), rooms, tmp_path)[-1].record is not None


def distance(one: Path, other: Path) -> float:
    """‖w − w′‖/‖w‖ of the finished nets, the worst over rooms."""
    far = []
    for name, frame in models(one).items():
        here, there = load(frame), load(models(other)[name])
        names = [key for key, value in here.items() if value.dtype.kind == "f"]
        off = sum(float(np.square(here[key] - there[key], dtype=np.float64).sum()) for key in names)
        size = sum(float(np.square(here[key], dtype=np.float64).sum()) for key in names)
        far.append((off / size) ** 0.5)
    return max(far)


@every
def test_messages_in_fewer_bits_change_little(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """After two rounds nets are within 10⁻³ (float16) and 2 % (int8) of those with float32
    messages; what travels is less, or no floats do. Bytes are those of the frames."""
    rooms = make_rooms()
    usual = carry_out(plan_of(name, rounds=2), rooms, tmp_path / "float32")[-1].record
    for precision, tolerance in (("float16", 1e-3), ("int8", 2e-2)):
        folder = tmp_path / precision
        record = carry_out(plan_of(name, rounds=2, precision=precision), rooms, folder)[-1].record
        assert usual is not None and record is not None
        assert distance(tmp_path / "float32", folder) < tolerance
        for room, entry in record["rooms"].items():
            for way in ("bytes_up", "bytes_down"):
                before = usual["rooms"][room][way]
                silent = before == len(encode({}))
                assert entry[way] == before if silent else entry[way] < before


@every_file
@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_resumed_run_in_fewer_bits_is_bit_equal(
    name: str, precision: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Also where the rooms of the next exchange have answered already."""
    rooms, plan = make_rooms(), plan_of(name, rounds=2, precision=precision)
    whole = carry_out(plan, rooms, tmp_path / "whole")
    part = carry_out(plan, rooms, tmp_path / "part", stop_after=2)
    rest = go_on(plan, rooms, tmp_path / "part", part[0].state)
    assert records(part[:1] + rest) == records(whole)
    assert models(tmp_path / "part") == models(tmp_path / "whole")


SHARING = [name for name in FILES if "sharing" in settings_of(find(name))]


@pytest.mark.parametrize("sharing", ["architecture", "matching", "head", "all"])
@pytest.mark.parametrize("name", SHARING)
def test_every_way_of_sharing_runs_or_is_refused_with_a_remedy(
    name: str, sharing: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Three different nets; what is shared is all that travels."""
    rooms = make_rooms(architecture=("tiny", "middle", "large"))
    plan = plan_of(name, rounds=2, settings={"sharing": sharing})
    if sharing == "architecture" and getattr(plan.build(), "shares_more", False):
        server = carry_out(plan, rooms, tmp_path)[-1].state["server"]
        told = plan.build().download(server, rooms[0].name, round_number(3))
        assert "mixture" in told, "no weights in common, but prototypes"
        return
    if sharing in ("architecture", "all") or (name, sharing) == ("fedrep", "head"):
        with pytest.raises(RosterError, match=r"room [01].*; use "):
            carry_out(plan, rooms, tmp_path)
        return
    steps = carry_out(plan, rooms, tmp_path)
    algorithm = plan.build()
    server = steps[-1].state["server"]
    for room in rooms:
        sent = algorithm.download(server, room.name, round_number(3))["weights"]
        heads = {part for part in sent if part.startswith("classifier.")}
        assert (set(sent) == heads) if sharing == "head" else (len(sent) > 0)


BASE: dict[str, dict[str, Any]] = {
    "fedapa": {"warm_rounds": 4},
    # So small a spread is never reached: the first phase lasts as long as it may.
    "fedala": {"settled": 1e-12},
    "fedjoin": {"labelled_rounds": 1, "unlabelled": "always"},
}
"""Settings under which the others have room to show."""
BITING = {
    ("fedala", "settled"): 1e-12,
    ("fedala", "mixing_share"): 0.3,
    ("fedjoin", "labelled_rounds"): 1,
    ("fedjoin", "weights_every"): 2,
    # A class that only another net has is unseen already.
    ("fedjoin", "unlabelled"): "ignore",
}
"""Values that are felt within three rounds, where doubling the default is not or is no share."""


def other_values(name: str, kind: type[Algorithm]) -> list[tuple[str, Any]]:
    """For each setting a value that is not its default, taken from its type."""
    changed: list[tuple[str, Any]] = []
    hints = {f.name: f.type for f in dataclasses.fields(kind)}
    for setting, default in settings_of(kind).items():
        annotation = hints[setting]
        options = [o for part in get_args(annotation) for o in get_args(part) or (part,)]
        if (name, setting) in BITING:
            changed.append((setting, BITING[name, setting]))
        elif isinstance(default, bool):
            changed.append((setting, not default))
        elif isinstance(default, str):
            changed.append((setting, next(o for o in options if o != default)))
        elif isinstance(default, int):
            changed.append((setting, default + 3))
        else:
            changed.append((setting, 2 * default if default else 0.5))
    return changed


FELT_ELSEWHERE = {("fedjoin", "shrinkage")}
"""By newcomers alone, of whom there are none here: tests/algorithms/test_fedjoin.py."""
SETTINGS = [
    (name, *pair)
    for name in FILES
    for pair in other_values(name, find(name))
    if (name, pair[0]) not in FELT_ELSEWHERE
]


@pytest.mark.parametrize(("name", "setting", "value"), SETTINGS)
def test_each_setting_changes_the_update(
    name: str, setting: str, value: Any, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Trained or deployed weights or what is exchanged must differ; an option that does nothing is
    a defect."""
    rooms = make_rooms(((0, 1, 2), (0, 1), (1, 2, 3)), architecture=("middle", "middle", "tiny"))
    # Class 1 of room 0 shrinks to two windows, so that a minimum of samples bites.
    shrunk = rooms[0]
    keep = np.concatenate(
        [
            shrunk.split.train[shrunk.labels[shrunk.split.train] != 1],
            shrunk.split.train[shrunk.labels[shrunk.split.train] == 1][:2],
        ]
    )
    rest = np.union1d(np.setdiff1d(shrunk.split.train, keep), shrunk.split.validation)
    rooms[0] = dataclasses.replace(
        shrunk,
        split=dataclasses.replace(shrunk.split, train=np.sort(keep), unlabelled=rest),
        origins=Origins(shrunk.labels, np.arange(len(shrunk.labels)), spans=1, step=1),
    )
    base = {key: given for key, given in BASE.get(name, {}).items() if key != setting}
    usual = carry_out(plan_of(name, settings=base), rooms, tmp_path / "usual")
    changed = carry_out(
        plan_of(name, settings={**base, setting: value}), rooms, tmp_path / "changed"
    )
    assert (encode(usual[-1].state), models(tmp_path / "usual")) != (
        encode(changed[-1].state),
        models(tmp_path / "changed"),
    )


@every_file
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("learning_rate", 0.1),
        ("momentum", 0.9),
        ("weight_decay", 0.1),
        ("batch_size", 8),
        ("epochs", 2),
        ("keep_momentum", True),
    ],
)
def test_each_training_setting_changes_the_update_unless_rooms_fit_once(
    name: str, setting: str, value: Any, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    rooms = make_rooms()
    base = {"learning_rate": 0.05, "batch_size": 4}
    carry_out(plan_of(name, rounds=2, training=base), rooms, tmp_path / "usual")
    carry_out(
        plan_of(name, rounds=2, training={**base, setting: value}), rooms, tmp_path / "changed"
    )
    same = models(tmp_path / "usual") == models(tmp_path / "changed")
    assert same == find(name).fits_once


@pytest.mark.parametrize("name", [name for name in FILES if find(name).fits_once])
def test_what_fits_once_is_the_same_whenever_a_room_comes(name: str, make_rooms: MakeRooms) -> None:
    """A room that joins in round 3 fits there what it would have fitted in round 1."""
    algorithm, (room, *_) = plan_of(name).build(), make_rooms()
    first = algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))
    late = algorithm.train(room, algorithm.join(room, Key(0)), round_number(3))
    again = algorithm.train(room, first[0], round_number(2))
    assert encode(first[0]) == encode(late[0]) == encode(again[0])
    assert first[2] == late[2] == again[2]


@every
def test_packets_are_served_or_refused_by_name(name: str, make_rooms: MakeRooms) -> None:
    """What needs features has a remedy for rooms of packets."""
    algorithm, (room, *_) = plan_of(name).build(), make_rooms()
    packets = dataclasses.replace(room.card, window_shape=(12, 10))
    if not find(name).needs_features:
        algorithm.open([packets], Key(0))
        return
    with pytest.raises(RosterError, match=r"counts from numbers.*'room 0'.*12 × 10; use data.view"):
        algorithm.open([packets], Key(0))


@every
def test_an_unknown_setting_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(find(name)).validate_python({"training": Training(), "no_such_setting": 1})


@every
def test_the_global_stream_is_left_alone(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.randn(4)
    torch.manual_seed(5)
    carry_out(plan_of(name, rounds=1), make_rooms(), tmp_path)
    assert torch.equal(torch.randn(4), expected)

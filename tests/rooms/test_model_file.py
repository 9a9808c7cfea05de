"""Model files: everything that counting needs, run without torch, refused when damaged."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from fedapa import Plan, Recipe, Room, Windower, class_prototypes, load_model, read_capture, run
from fedapa.adaptation import Adaptation, begin, follow_all
from fedapa.answers import Answer, probabilities_of
from fedapa.errors import DataError
from fedapa.models.model import Model, nearest_prototype
from fedapa.models.onnx_bytes import wanted_weights
from fedapa.rooms import model_file
from fedapa.rooms.model_file import prototype_distances, save_model
from fedapa.stores.simulated import write_simulated
from fedapa.stores.simulated_captures import write_simulated_captures
from fedapa.stores.simulated_rooms import preset_of
from fedapa.stores.store import Store
from tests.conftest import MakeRooms, MakeStore

ARCHITECTURES = ("tiny", "middle", "large", "mlp", "counter")


def saved(path: Path, room: Room, model: Model) -> Path:
    embeddings, labels = room.embeddings(model)
    prototypes, members = class_prototypes(embeddings, labels, len(room.classes))
    save_model(path, room, model, prototypes.numpy(), members.numpy())
    return path


def room_with_net(make_rooms: MakeRooms, architecture: str, unit: bool) -> tuple[Room, Model]:
    shape = {"mlp": (30,), "counter": (200,)}.get(architecture, (33, 20))
    room = make_rooms(((0, 1, 2), (0, 2)), architecture=architecture, shape=shape)[1]
    room = replace(room, normalise_embedding=unit)
    model = room.build().train()
    with torch.no_grad():
        model(room.tensors(room.split.train)[0])  # BatchNorm has seen something
    return room, model.eval()


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_counting_without_torch_equals_torch(
    make_rooms: MakeRooms, tmp_path: Path, architecture: str, unit: bool
) -> None:
    """Raw windows go in; logits and embedding agree to float32's rounding."""
    room, model = room_with_net(make_rooms, architecture, unit)
    loaded = load_model(saved(tmp_path / "a.safetensors", room, model))
    windows = room.windows[room.split.test]
    with torch.no_grad():
        logits, embedding = model(room.tensors(room.split.test)[0])
        expected = torch.softmax(logits, dim=1).numpy()
    np.testing.assert_allclose(loaded.probabilities(windows), expected, atol=2e-6)
    np.testing.assert_allclose(loaded.embed(windows), embedding.numpy(), rtol=1e-5, atol=1e-5)
    guess, _ = room.predict(model)
    assert loaded.count(windows).tolist() == [room.classes[index] for index in guess]


def test_links_are_channels_without_torch_too(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room = make_rooms(((0, 1, 2), (0, 2)), architecture="middle", shape=(33, 20))[1]
    room = replace(room, recipe=replace(room.recipe, links="all", link_count=4))
    model = room.build().eval()
    assert model.state_dict()["encoder.block1.conv.weight"].shape[1] == 4
    loaded = load_model(saved(tmp_path / "a.safetensors", room, model))
    with torch.no_grad():
        expected = model.probabilities(room.tensors(room.split.test)[0]).numpy()
    np.testing.assert_allclose(
        loaded.probabilities(room.windows[room.split.test]), expected, atol=2e-6
    )


def test_distances_are_from_the_nearest_prototype_that_is_there() -> None:
    """(3, 4) is 5 from (0, 0) and 1 from (3, 5); (0, 1), which is absent, would be 4.2 away."""
    prototypes = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 5.0]])
    present = np.array([True, False, True])
    found = prototype_distances([[3.0, 4.0], [0.0, 1.0]], prototypes, present)
    np.testing.assert_allclose(found, [1.0, 1.0])


@pytest.mark.parametrize("answer", ["head", "median", "expected"])
def test_a_model_file_answers_as_its_room_wants(
    make_rooms: MakeRooms, tmp_path: Path, answer: Answer
) -> None:
    """Probabilities are those of the temperature; the answer is made of them."""
    room, model = room_with_net(make_rooms, "mlp", False)
    room = replace(room, answer=answer)
    path = tmp_path / "a.safetensors"
    embeddings, labels = (part.numpy() for part in room.embeddings(model))
    prototypes, members = class_prototypes(embeddings, labels, len(room.classes))
    save_model(path, room, model, prototypes, members, 0.02)
    loaded = load_model(path)
    scores, _ = room.scores(model, "train")
    expected = probabilities_of(scores, 0.02)
    windows = room.windows[room.split.train]
    np.testing.assert_allclose(loaded.probabilities(windows), expected, atol=1e-3)
    people = np.asarray(room.classes)
    by_hand = {
        "head": people[expected.argmax(axis=1)],
        "median": people[(expected.cumsum(axis=1) >= 0.5).argmax(axis=1)],
        "expected": expected @ people,
    }
    np.testing.assert_allclose(loaded.count(windows), by_hand[answer], atol=0.01)


def test_a_model_file_knows_its_room(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room, model = room_with_net(make_rooms, "middle", False)
    loaded = load_model(saved(tmp_path / "a.safetensors", room, model))
    assert (loaded.room, loaded.classes, loaded.synthetic) == ("room 1", (0, 1, 2), False)
    assert loaded.recipe == room.recipe
    assert loaded.recipe.source == "arrays"
    assert loaded.present.tolist() == [True, False, True]
    embeddings, labels = (part.numpy() for part in room.embeddings(model))
    for index in (0, 2):
        np.testing.assert_allclose(
            loaded.prototypes[index], embeddings[labels == index].mean(axis=0), rtol=1e-5
        )
    assert not loaded.prototypes[1].any()


def test_a_counter_that_follows_nothing_counts_as_its_model_file(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """What was trained is all in the file: W·z + b, divided by T, are its scores."""
    room, model = room_with_net(make_rooms, "tiny", True)
    loaded = load_model(saved(tmp_path / "a.safetensors", room, model))
    windows, trained = room.windows[:4], loaded.trained
    told, _ = follow_all(Adaptation(), trained, begin(trained), windows, loaded.embed)
    np.testing.assert_allclose(told, loaded.probabilities(windows), atol=1e-6)
    assert trained.empty == (loaded.classes.index(0) if 0 in loaded.classes else None)


def test_equal_models_have_equal_bytes(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room, model = room_with_net(make_rooms, "middle", True)
    one, other = (saved(tmp_path / name, room, model).read_bytes() for name in ("a", "b"))
    assert one == other


def test_the_nearest_prototype_is_served_too(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room, model = room_with_net(make_rooms, "tiny", False)
    means, members = class_prototypes(*room.embeddings(model), 3)
    nearest = nearest_prototype(model, means, members > 0)
    loaded = load_model(saved(tmp_path / "a.safetensors", room, nearest))
    found = loaded.probabilities(room.windows)
    assert np.isfinite(found).all()
    assert (found[:, 1] == 0).all()


def test_a_window_has_one_answer_alone_and_among_others(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room, model = room_with_net(make_rooms, "large", False)
    loaded = load_model(saved(tmp_path / "a.safetensors", room, model))
    together = loaded.probabilities(room.windows[:5])
    alone = np.concatenate([loaded.probabilities(room.windows[n : n + 1]) for n in range(5)])
    assert together.tobytes() == alone.tobytes()
    assert loaded.probabilities(room.windows[:0]).shape == (0, 3)


_SCRIPT = """
import sys
import numpy as np
from fedapa import Recipe, Windower, load_model
from fedapa.windows.clean import Amplitudes
model = load_model(sys.argv[1])
windower = Windower(model.recipe)
packets = np.random.default_rng(0).random((200, 6, 1)).astype(np.float32)
windows = windower.feed(Amplitudes(packets, np.arange(200) / 100, np.zeros(6, np.int16)))
print(model.count(windows).shape, model.embed(windows).shape, model.present.tolist())
print([name for name in ("torch", "numba", "matplotlib", "sklearn") if name in sys.modules])
"""


def test_a_run_leaves_models_that_count_without_torch(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """From a store to a file to counts; the recipe in the file makes the windows of the run."""
    plan = Plan(
        rounds=1,
        data={"file": str(make_store()), "window": 16, "decimate": 2, "view": "amplitude"},
        model={"architecture": "tiny", "width": 8},
    )
    run(plan, out=tmp_path / "out", workers=0)
    path = tmp_path / "out" / "models" / "cafe.safetensors"
    loaded = load_model(path)
    assert loaded.reach > 0
    assert (loaded.recipe.window, loaded.recipe.decimate, loaded.window_shape) == (16, 2, (8, 6))
    assert loaded.recipe.normaliser is not None
    assert loaded.present.all()
    command = [sys.executable, "-c", _SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(11,) (11, 8) [True, True, True]", "[]"]
    assert isinstance(Windower(loaded.recipe).recipe, Recipe)


def test_a_model_of_simulated_rooms_counts_their_captures(tmp_path: Path) -> None:
    """A store and captures of the same simulated room: one receiver, the same windows."""
    smoke = preset_of("smoke")
    place = replace(smoke.places[0], counts=(0, 1), days=1, recordings=1, windows=8)
    preset = replace(smoke, places=(place,))
    write_simulated(preset, seed=0, out=tmp_path / "rooms.h5")
    write_simulated_captures(preset, seed=0, folder=tmp_path / "captures")
    plan = Plan(
        rounds=1,
        algorithm="local",
        data={"file": str(tmp_path / "rooms.h5"), "window": preset.window, "split": "random"},
        model={"architecture": "tiny", "width": 8},
    )
    run(plan, out=tmp_path / "out", workers=0)
    room = place.scene.room.name
    model = load_model(next((tmp_path / "out" / "models").iterdir()))
    with Store(tmp_path / "rooms.h5") as store:
        recording = store.recordings(room)[0]
        stored = store.read(recording, 0, preset.window)[:, :, 0]
    capture = read_capture(tmp_path / "captures" / room / "0" / "P=0-0.pcap")
    windows = Windower(model.recipe).feed(capture)
    assert len(windows) == len(model.count(windows)) == 8
    np.testing.assert_allclose(windows.values[0], stored, atol=stored.max() / 65535)


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (np.zeros((2, 5, 20)), r"windows of shape \(2, 5, 20\); the model of room 'room 1' counts"),
        (np.zeros((33, 20)), "windows of shape"),
        (np.full((1, 33, 20), np.nan), "window 0 holds NaN or infinity"),
    ],
)
def test_windows_that_do_not_fit_are_refused(
    make_rooms: MakeRooms, tmp_path: Path, windows: np.ndarray, words: str
) -> None:
    room, model = room_with_net(make_rooms, "tiny", False)
    loaded = load_model(saved(tmp_path / "a.safetensors", room, model))
    with pytest.raises(DataError, match=words):
        loaded.count(windows)


def changed(path: Path, about: dict[str, Any], arrays: dict[str, Any]) -> None:
    """The same file with something else in it; None leaves an array or a word out."""
    from safetensors import safe_open

    tensors = load_file(path)
    with safe_open(path, "numpy") as file:
        words = json.loads(file.metadata()["fedapa"])
    words = {key: value for key, value in {**words, **about}.items() if value is not None}
    tensors = {key: value for key, value in {**tensors, **arrays}.items() if value is not None}
    if "digest" not in about:  # whoever changes it on purpose can sign it, too
        words["digest"] = model_file._digest(tensors)
    save_file(tensors, path, metadata={"fedapa": json.dumps(words)})


@pytest.mark.parametrize(
    ("about", "arrays", "words"),
    [
        ({"format": 1}, {}, "model format 1, this fedapa reads 4"),
        ({"digest": "0"}, {}, "its numbers are not those that were saved"),
        ({"classes": None}, {}, "'classes' is missing"),
        ({"classes": [0, "a", 2]}, {}, "classes is not what a model has"),
        ({"classes": [0, 0, 2]}, {}, "classes is not what a model has"),
        ({"classes": [0, 1]}, {}, "prototypes is not what a model has"),
        ({"window_shape": [0, 6]}, {}, "window_shape is not what"),
        ({"window_shape": ["a"]}, {}, "window_shape is not what"),
        ({"recipe": {"version": 9}}, {}, "recipe version 9"),
        ({"recipe": {"version": 1, "view": "moton"}}, {}, "view 'moton' is unknown"),
        ({"synthetic": "no"}, {}, "synthetic is not what"),
        ({"reach": "far"}, {}, "reach is not what"),
        ({"temperature": 1e-320}, {}, "temperature is not what"),
        ({"temperature": 1e300}, {}, "temperature is not what"),
        ({}, {"graph": None}, "'graph' is missing"),
        ({}, {"graph": np.arange(40, dtype=np.uint8)}, "its graph is none of fedapa's"),
        ({}, {"classifier.weight": None}, "its graph wants other weights"),
        ({}, {"classifier.weight": np.ones((2, 2), np.float32)}, "its graph cannot be run"),
        ({}, {"normaliser.mean": np.ones(3, np.float32)}, "normaliser.mean is not what"),
        ({}, {"prototypes": np.ones((3, 5), np.float32)}, "its graph gives"),
        ({}, {"classifier.bias": np.full(3, np.nan, np.float32)}, "classifier.bias holds NaN"),
        ({}, {"prototypes": np.full((3, 16), np.inf, np.float32)}, "prototypes holds NaN or inf"),
        ({}, {"normaliser.deviation": np.zeros(20, np.float32)}, "deviation is not what"),
        ({}, {"classifier.bias": np.zeros(3, np.float16)}, "type F16; expected F32, I64, U8"),
        ({"recipe": {"version": 1}}, {}, "makes windows of 0 × 20, its net counts 33 × 20"),
        ({"recipe": {"version": 1, "window": 34}}, {}, "makes windows of 34 × 20"),
        (
            {"recipe": {"version": 1, "window": 66, "decimate": 2, "subcarriers": [1, 2, 3]}},
            {},
            "makes windows of 33 × 3, its net counts 33 × 20",
        ),
        ({"recipe": {"version": 1, "source": "features"}}, {}, "makes windows of 20, its net"),
    ],
)
def test_a_damaged_model_is_one_sentence(
    make_rooms: MakeRooms,
    tmp_path: Path,
    about: dict[str, Any],
    arrays: dict[str, Any],
    words: str,
) -> None:
    room, model = room_with_net(make_rooms, "tiny", False)
    path = saved(tmp_path / "a.safetensors", room, model)
    changed(path, about, arrays)
    with pytest.raises(DataError, match=words):
        load_model(path)


def test_weights_without_finite_answers_are_told_when_they_answer(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Each is finite; 1e38 times a window is not."""
    room, model = room_with_net(make_rooms, "tiny", False)
    path = saved(tmp_path / "a.safetensors", room, model)
    shape = load_file(path)["classifier.weight"].shape
    changed(path, {}, {"classifier.weight": np.full(shape, 3e38, np.float32)})
    with pytest.raises(DataError, match="room 'room 1' answers with NaN or infinity; train it"):
        load_model(path).count(room.windows[room.split.test])


def test_a_graph_with_a_name_that_is_no_text_is_refused_in_silence(
    make_rooms: MakeRooms, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """onnxruntime would print, and try the same again."""
    room, model = room_with_net(make_rooms, "tiny", False)
    path = saved(tmp_path / "a.safetensors", room, model)
    graph = load_file(path)["graph"].tobytes()
    spoilt = graph.replace(b"logits", b"logi\xff\xff")
    assert spoilt != graph
    changed(path, {}, {"graph": np.frombuffer(spoilt, np.uint8)})
    with pytest.raises(DataError):
        load_model(path)
    assert capfd.readouterr() == ("", "")


def test_a_graph_may_not_name_a_file(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room, model = room_with_net(make_rooms, "tiny", False)
    path = saved(tmp_path / "a.safetensors", room, model)
    graph = load_file(path)["graph"].tobytes().replace(b"given", b"/etc/", 1)
    changed(path, {}, {"graph": np.frombuffer(graph, np.uint8)})
    with pytest.raises(DataError, match="an array of it is elsewhere"):
        load_model(path)


def test_a_graph_names_nothing_in_nested_places(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Tensors may stand in attributes, in graphs within them, and in functions; ours nowhere.

    As many places named "given" as there are weights, and yet one of them is a file's.
    """
    room, model = room_with_net(make_rooms, "tiny", False)
    path = saved(tmp_path / "a.safetensors", room, model)
    whole = load_file(path)["graph"].tobytes()
    place = message(13, message(1, b"location") + message(2, b"given"))
    tensor = message(8, b"secret") + place
    output = message(2, b"x") + message(4, b"Constant")
    constant = output + message(5, message(1, b"value") + message(5, tensor))
    branch = output + message(5, message(1, b"body") + message(6, message(5, tensor)))
    for added in (
        message(7, message(1, constant)),  # a second graph: both are merged
        message(7, message(1, branch)),
        message(25, message(7, constant)),  # a function
        message(20, message(1, message(5, tensor))),  # how to train it
        message(14, b"more"),
    ):
        changed(path, {}, {"graph": np.frombuffer(whole + added, np.uint8)})
        with pytest.raises(DataError, match="its graph is none of fedapa's"):
            load_model(path)
    for content in (constant, branch):
        with pytest.raises(ValueError, match=r"field [56] is none of ours"):
            wanted_weights(with_node(whole, content))
    # An array under another name would be looked for in a file called "given".
    renamed = whole.replace(b"classifier.bias", b"classifier.bios")
    changed(path, {}, {"graph": np.frombuffer(renamed, np.uint8)})
    with pytest.raises(DataError, match="its graph wants other weights"):
        load_model(path)


def message(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def with_node(model: bytes, node: bytes) -> bytes:
    """A model whose one graph has a further node."""
    head = bytes([1 << 3, 8]) + message(2, b"fedapa")  # version and maker
    tail = message(8, message(1, b"") + bytes([2 << 3, 17]))  # operators
    assert model.startswith(head) and model.endswith(tail)
    graph = model[len(head) : -len(tail)]
    for size in range(1, 5):  # bytes of the length, which come after one of the key
        inside = graph[1 + size :]
        if message(7, inside) == graph:
            assert wanted_weights(head + message(7, inside) + tail) == wanted_weights(model)
            return head + message(7, inside + message(1, node)) + tail
    raise AssertionError("no graph in the model")


def test_what_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_model(tmp_path / "nowhere")
    kind = "Q" * 100_000
    head = json.dumps({"a": {"dtype": kind, "shape": [1], "data_offsets": [0, 4]}}).encode()
    named = len(head).to_bytes(8, "little") + head + bytes(4)
    for content in (b"", b"hello" * 100, named):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(DataError, match="not a model of fedapa") as complaint:
            load_model(tmp_path / "a")
        assert len(str(complaint.value)) < 300 + len(str(tmp_path))
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "b")
    with pytest.raises(DataError, match="not a model of fedapa"):
        load_model(tmp_path / "b")

"""Export: an ONNX file that equals torch, and a card that says what it is."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from fedapa import Plan, class_prototypes, load_model, read_capture, run
from fedapa.errors import DataError, PlanError
from fedapa.rooms.model_file import save_model
from fedapa.rooms.task import ACTIVITY, Task
from fedapa.service.export import _page, export_onnx
from fedapa.windows.stream import Windower
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeRooms
from tests.service.conftest import Served

SHAPES = {"mlp": (30,), "counter": (200,)}


@pytest.mark.parametrize("architecture", ["tiny", "middle", "large", "mlp", "counter"])
def test_the_file_alone_equals_torch(
    make_rooms: MakeRooms, tmp_path: Path, architecture: str
) -> None:
    """Normaliser, net and temperature: logits and probabilities within 1e-4 of torch's."""
    shape = SHAPES.get(architecture, (33, 20))
    room = make_rooms(((0, 1, 2), (0, 2)), architecture=architecture, shape=shape)[1]
    model = room.build().train()
    with torch.no_grad():
        model(room.tensors(room.split.train)[0])  # BatchNorm has seen something
    model.eval()
    embeddings, labels = room.embeddings(model)
    prototypes, members = class_prototypes(embeddings, labels, len(room.classes))
    path = tmp_path / "a.safetensors"
    save_model(path, room, model, prototypes.numpy(), members.numpy(), temperature=0.5)
    made = export_onnx(path, tmp_path / "out" / "a.onnx")
    session = onnxruntime.InferenceSession(str(made.file), providers=["CPUExecutionProvider"])
    windows = np.asarray(room.windows[room.split.test], np.float32)
    logits, probabilities = session.run(["logits", "probabilities"], {"windows": windows})
    with torch.no_grad():
        expected, _ = model(room.tensors(room.split.test)[0])
    np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4, rtol=1e-4)
    softmax = torch.softmax(expected / 0.5, dim=1).numpy()
    np.testing.assert_allclose(probabilities, softmax, atol=1e-4)


def test_the_file_counts_a_capture_as_the_model_file_does(served: Served, tmp_path: Path) -> None:
    model = load_model(served.model)
    windows = Windower(model.recipe).feed(read_capture(served.captures[0])).values
    made = export_onnx(served.run, tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(made.file), providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], {"windows": windows})
    np.testing.assert_allclose(found, model.probabilities(windows), atol=1e-5)


def test_a_net_of_two_tasks_is_refused(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room = make_rooms(((0, 1), (0, 1)), architecture="tiny")[0]
    task = Task(ACTIVITY, ("sitting", "walking"), np.arange(len(room.labels)) % 2)
    both = dataclasses.replace(room, further=(task,))
    model = both.build().eval()
    prototypes, members = class_prototypes(*both.embeddings(model), both.outputs)
    path = tmp_path / "a.safetensors"
    save_model(path, both, model, prototypes.numpy(), members.numpy(), further_temperatures=[1.0])
    with pytest.raises(DataError, match="also tells activities"):
        export_onnx(path, tmp_path / "a.onnx")


def test_a_card_says_what_the_model_is(served: Served, tmp_path: Path) -> None:
    made = export_onnx(served.run, tmp_path / "a.onnx", room=served.room)
    session = onnxruntime.InferenceSession(str(made.file), providers=["CPUExecutionProvider"])
    card = json.loads(session.get_modelmeta().custom_metadata_map["fedapa.card"])
    assert card == made.card
    assert card["data"] == "SIMULATED"
    assert (card["room"], card["rooms"], card["days"]) == (served.room, [served.room], ["0"])
    assert (card["split"], card["algorithm"], card["seed"]) == ("recording", "local", 0)
    assert card["receiver"]["device"] == "simulated"
    assert card["recipe"]["view"] == "statistics"
    assert set(card["metrics"]) == {"local", "class frequencies", "commonest class"}
    assert card["model_sha256"] == hashlib.sha256(served.model.read_bytes()).hexdigest()
    page = made.page.read_text()
    assert page.startswith(f"# Model of room '{served.room}' (SIMULATED data)\n\nCounts 0 to 1 ")
    assert hashlib.sha256(made.file.read_bytes()).hexdigest() in page
    assert "| class frequencies |" in page


def test_words_of_others_are_no_lines_of_a_card(served: Served, tmp_path: Path) -> None:
    made = export_onnx(served.run, tmp_path / "a.onnx", room=served.room)
    page = _page({**made.card, "days": ["0\n# Model\x1b[2J"]}, "a.onnx", "")
    assert page.count("\n# ") == 0
    assert "days: 0 # Model [2J\n" in page


def test_metrics_of_other_runs_stand_beside(served: Served, tmp_path: Path) -> None:
    data = {"file": str(served.store), "seconds": 1, "view": "statistics"}
    for name, split in (("forest", "recording"), ("blocked", "blocked")):
        plan = Plan(rounds=1, algorithm="forest", data={**data, "split": split})
        run(plan, out=tmp_path / name, workers=0)
    made = export_onnx(served.run, tmp_path / "a.onnx", beside=[tmp_path / "forest"])
    assert "accuracy" in made.card["metrics"]["forest"]
    with pytest.raises(PlanError, match="on other data or another split"):
        export_onnx(served.run, tmp_path / "a.onnx", beside=[tmp_path / "blocked"])


def test_equal_models_are_equal_files(served: Served, tmp_path: Path) -> None:
    one, other = (export_onnx(served.run, tmp_path / name).file for name in ("a.onnx", "b.onnx"))
    assert one.read_bytes() == other.read_bytes()


def test_export_is_a_command(served: Served, tmp_path: Path) -> None:
    words = ("--room", served.room, "--format", "onnx", "--out", tmp_path / "a.onnx")
    shown = fedapa("export", served.run, *words).stdout
    assert "a.onnx (SIMULATED data)" in shown
    assert (tmp_path / "a.md").is_file()
    told = one_sentence(fedapa("export", served.run, "--room", "nowhere", code=2))
    assert "has no room 'nowhere'" in told
    with pytest.raises(PlanError, match=r"name a file that ends in \.onnx"):
        export_onnx(served.run, tmp_path / "folder")  # or the card would replace a model.md


def test_a_model_file_alone_has_a_shorter_card(
    make_rooms: MakeRooms, served: Served, tmp_path: Path
) -> None:
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes(served.model.read_bytes())
    made = export_onnx(alone, tmp_path / "a.onnx")
    assert "metrics" not in made.card
    with pytest.raises(PlanError, match="is in no run's folder"):
        export_onnx(alone, tmp_path / "a.onnx", beside=[served.run])

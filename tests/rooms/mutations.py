"""Mutated model files: a model that counts, or a DataError.

Many are sealed again, as a hostile owner would: their header is whole and the digest of their
arrays is right, so that what is inside is looked at.
"""

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import numpy as safetensors_numpy

from fedapa import Plan, load_model, run
from fedapa.errors import FedapaError
from fedapa.rooms import model_file
from tests.conftest import write_takes
from tests.fuzz import Make, Subject, mutate, mutate_tree, odd_value


class Models(Subject):
    """Nets of a run: a small one for packets, and one for statistics."""

    kind = "models"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "mutated.safetensors"
        write_takes(folder / "rooms.h5", {"cafe": {0: 2, 1: 2}, "hall": {0: 2, 1: 2}})
        data = {"file": str(folder / "rooms.h5"), "window": 32}
        self.seeds = []
        for view in ("amplitude", "statistics"):
            plan = Plan(
                rounds=1,
                algorithm="local",
                data={**data, "view": view, "split": "recording"},
                model={"architecture": "tiny" if view == "amplitude" else "mlp", "width": 4},
                training={"batch_size": 4},
            )
            run(plan, out=folder / view, workers=0)
            path = folder / view / "models" / "cafe.safetensors"
            self.seeds.append(path.read_bytes())
        self._parts = [_parts(data) for data in self.seeds]

    def mutated(self, rng: random.Random) -> bytes:
        if rng.random() < 0.35:
            return mutate(rng.choice(self.seeds), rng, self.seeds)
        about, arrays = rng.choice(self._parts)
        about, arrays = dict(about), dict(arrays)
        for _ in range(rng.choice((1, 1, 2))):
            if rng.random() < 0.5:
                changed = mutate_tree(about, rng, odd_value)
                about = changed if isinstance(changed, dict) else about
            else:
                _change_array(arrays, rng)
        about["digest"] = model_file._digest(arrays)
        return safetensors_numpy.save(arrays, metadata={"fedapa": _json(about)})

    def attempt(self, data: bytes, rng: random.Random) -> str:
        self._path.write_bytes(data)
        try:
            model = load_model(self._path)
        except FedapaError as error:
            assert str(self._path) in str(error), error
            return "refused"
        windows = np.random.default_rng(0).normal(size=(2, *model.window_shape)).astype(np.float32)
        try:
            probabilities, counted = model.probabilities(windows), model.count(windows)
        except FedapaError:  # finite weights that give no finite answer
            return "refused"
        assert probabilities.shape == (2, len(model.classes))
        assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
        assert counted.shape == (2,)
        return "read"


def _parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    (length,) = struct.unpack_from("<Q", data)
    about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["fedapa"])
    return about, safetensors_numpy.load(data)


def _json(about: dict[str, Any]) -> str:
    try:
        return json.dumps(about).encode(errors="replace").decode()
    except ValueError:  # a number with more digits than Python writes
        return "{}"


def _change_array(arrays: dict[str, Any], rng: random.Random) -> None:
    name = rng.choice(sorted(arrays))
    value = arrays[name]
    kind = rng.randrange(7)
    if name == "graph" or (kind < 2 and "graph" in arrays):
        graph = arrays["graph"].tobytes()
        arrays["graph"] = np.frombuffer(mutate(graph, rng, [graph]) or b"\0", np.uint8)
    elif kind == 2:
        del arrays[name]
    elif kind == 3:
        arrays[f"{name}.new"] = value
    elif kind == 4:
        shape = rng.choice(((0,), (1,), (2, 2), (4, 4), (1, 4), value.shape[::-1]))
        arrays[name] = np.zeros(shape, value.dtype)
    elif kind == 5:
        with np.errstate(all="ignore"):
            arrays[name] = value.astype(rng.choice(("f4", "f8", "i8", "u1", "i4", "?", "f2")))
    else:
        changed = np.array(value)
        if changed.size:
            odd = rng.choice((np.nan, np.inf, 1e30, -1e30, 0.0, -1.0))
            with np.errstate(all="ignore"):
                changed.flat[rng.randrange(changed.size)] = (
                    odd if changed.dtype.kind == "f" else rng.choice((0, 1, 255))
                )
        arrays[name] = changed


def subjects() -> dict[str, Make]:
    return {"models": Models}

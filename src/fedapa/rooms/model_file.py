"""A room's finished net on disk: safetensors with its normaliser, its classes and its origin."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import numpy as safetensors_numpy

from fedapa.files import write_bytes
from fedapa.models.model import Model
from fedapa.payload import Array
from fedapa.rooms.room import Room

__all__ = ["save_model"]


def save_model(path: Path, room: Room, model: Model) -> None:
    """Write a net as one safetensors file that needs nothing else to be used.

    Tensors: the net's own names, and ``normaliser.mean`` and ``normaliser.deviation``
    [subcarriers]. The metadata has the single key ``fedapa`` (with more, equal models would have
    unequal bytes): JSON with room, architecture, classes, window shape, and whether it learned
    from simulated windows.
    """
    tensors: dict[str, Array] = {
        name: value.detach().cpu().numpy() for name, value in model.state_dict().items()
    }
    tensors["normaliser.mean"] = room.normaliser.mean
    tensors["normaliser.deviation"] = room.normaliser.deviation
    about: dict[str, Any] = {
        "format": 1,
        "room": room.name,
        "architecture": room.architecture,
        "width": room.width,
        "normalise_embedding": room.normalise_embedding,
        "classes": list(room.classes),
        "window_shape": list(room.windows.shape[1:]),
        "train_windows": len(room.split.train),
        "synthetic": room.synthetic,
    }
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    content = safetensors_numpy.save(
        contiguous, metadata={"fedapa": json.dumps(about, sort_keys=True)}
    )
    write_bytes(path, content)

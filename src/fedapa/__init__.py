"""FedAPA: rooms learn to count people from Wi-Fi CSI together, without sharing raw data.

The names below are stable. Importing the package loads neither torch nor matplotlib: a name that
needs them loads them when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedapa.csi.capture import Capture
    from fedapa.csi.reading import read_capture
    from fedapa.errors import CaptureError, FedapaError
    from fedapa.federation.plan import Plan
    from fedapa.federation.run import run
    from fedapa.learning.losses import prototype_contrast
    from fedapa.learning.prototypes import (
        aggregate_prototypes,
        class_prototypes,
        pad_prototypes,
    )
    from fedapa.learning.schedule import warm_up
    from fedapa.models.convnet import LargeConvNet4, MiddleConvNet4, TinyConvNet4
    from fedapa.rooms.model_file import load_model
    from fedapa.rooms.room import Room
    from fedapa.windows.recipe import Recipe
    from fedapa.windows.stream import Windower

__version__ = "0.1.0"

__all__ = [
    "Capture",
    "CaptureError",
    "FedapaError",
    "LargeConvNet4",
    "MiddleConvNet4",
    "Plan",
    "Recipe",
    "Room",
    "TinyConvNet4",
    "Windower",
    "aggregate_prototypes",
    "class_prototypes",
    "load_model",
    "pad_prototypes",
    "prototype_contrast",
    "read_capture",
    "run",
    "warm_up",
]

_HOME = {
    "Capture": "fedapa.csi.capture",
    "CaptureError": "fedapa.errors",
    "FedapaError": "fedapa.errors",
    "LargeConvNet4": "fedapa.models.convnet",
    "MiddleConvNet4": "fedapa.models.convnet",
    "Plan": "fedapa.federation.plan",
    "Recipe": "fedapa.windows.recipe",
    "Room": "fedapa.rooms.room",
    "TinyConvNet4": "fedapa.models.convnet",
    "Windower": "fedapa.windows.stream",
    "aggregate_prototypes": "fedapa.learning.prototypes",
    "class_prototypes": "fedapa.learning.prototypes",
    "load_model": "fedapa.rooms.model_file",
    "pad_prototypes": "fedapa.learning.prototypes",
    "prototype_contrast": "fedapa.learning.losses",
    "read_capture": "fedapa.csi.reading",
    "run": "fedapa.federation.run",
    "warm_up": "fedapa.learning.schedule",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedapa' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])

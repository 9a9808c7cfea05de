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
    from fedapa.rooms.room import Room

__version__ = "0.1.0"

__all__ = [
    "Capture",
    "CaptureError",
    "FedapaError",
    "LargeConvNet4",
    "MiddleConvNet4",
    "Plan",
    "Room",
    "TinyConvNet4",
    "aggregate_prototypes",
    "class_prototypes",
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
    "Room": "fedapa.rooms.room",
    "TinyConvNet4": "fedapa.models.convnet",
    "aggregate_prototypes": "fedapa.learning.prototypes",
    "class_prototypes": "fedapa.learning.prototypes",
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

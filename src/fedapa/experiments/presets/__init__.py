"""Presets: plans by name.

smoke takes seconds; quick is a counter, in minutes; tables, protocol and paper have the paper's
nets on the paper's input, in hours and days.
"""

import tomllib
from importlib import resources
from typing import Any

from fedapa.errors import PlanError, nearest

__all__ = ["PRESETS", "preset"]

PRESETS = ("smoke", "quick", "tables", "protocol", "paper")


def preset(name: str) -> dict[str, Any]:
    """The values of a preset, to be overridden by a plan or by flags."""
    if name not in PRESETS:
        raise PlanError(f"preset '{name}' is unknown; {nearest(str(name), PRESETS)}")
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text())

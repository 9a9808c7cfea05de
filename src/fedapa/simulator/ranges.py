"""What the numbers of the simulator's parameters may be; outside of it nothing is computed."""

from collections.abc import Mapping
from typing import TypeAlias

from fedapa.errors import PlanError

__all__ = ["Ranges", "check_pair", "check_ranges"]

Ranges: TypeAlias = Mapping[str, tuple[float, float]]
"""Least and greatest value of each number, by the name of its field."""


def check_ranges(settings: object, ranges: Ranges, where: str) -> None:
    """Raise unless every number, or every number of a tuple, lies in its range."""
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        numbers = value if isinstance(value, tuple) else (value,)
        # Written so that NaN, which compares with nothing, is refused too.
        if not all(low <= number <= high for number in numbers):
            raise PlanError(f"{where}{name} = {_text(value)}; choose {low:g} to {high:g}")


def check_pair(settings: object, name: str, where: str) -> None:
    """Raise unless the two numbers of a field are (least, greatest)."""
    least, greatest = value = getattr(settings, name)
    if least > greatest:
        raise PlanError(f"{where}{name} = {_text(value)}; write the least first, then the greatest")


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)

"""One file per algorithm, found by its name: ``find("fedapa")`` looks for fedapa.py here."""

import importlib
import pkgutil

from fedapa.algorithms.algorithm import Algorithm
from fedapa.errors import PlanError, nearest

__all__ = ["find", "names"]

_CONTRACT = "algorithm"


def names() -> tuple[str, ...]:
    """Every algorithm there is a module for, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != _CONTRACT))


def find(name: str) -> type[Algorithm]:
    """The algorithm class that the module ``name`` defines."""
    if name not in names():
        raise PlanError(f"algorithm '{name}' is unknown; {nearest(name, names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, Algorithm)
            and value.__module__ == module.__name__
        ):
            return value
    raise PlanError(f"algorithms/{name}.py defines no Algorithm")

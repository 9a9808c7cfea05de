"""One file per algorithm, found by its name: ``find("fedapa")`` is the class in fedapa.py.

Settings of an algorithm that comparisons call by a name of their own stand in ablations.py.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import cast

from fedapa.algorithms.algorithm import Algorithm
from fedapa.errors import PlanError, nearest

__all__ = ["base_of", "find", "names", "summary_of"]


def names() -> tuple[str, ...]:
    """Every algorithm and every named variant, sorted."""
    return tuple(sorted(_found()))


def find(name: str) -> type[Algorithm]:
    """The algorithm, or the variant, of that name."""
    if name not in _found():
        raise PlanError(f"algorithm '{name}' is unknown; {nearest(name, names())}")
    return _found()[name]


def summary_of(kind: type[Algorithm]) -> str:
    """What it is, in a line: from the first line of its file, or of a variant's class."""
    module = inspect.getmodule(kind)
    own_file = module is not None and module.__name__.endswith(f".{kind.name}")
    text = inspect.getdoc(module if own_file else kind) or ""
    return text.splitlines()[0].partition(": ")[2].rstrip(".")


def base_of(kind: type[Algorithm]) -> type[Algorithm]:
    """The algorithm that a variant is of; any other algorithm itself."""
    module = inspect.getmodule(kind)
    is_variant = module is not None and module.__name__ == f"{__name__}.ablations"
    return cast(type[Algorithm], kind.__base__) if is_variant else kind


@functools.cache
def _found() -> Mapping[str, type[Algorithm]]:
    found: dict[str, type[Algorithm]] = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Algorithm)
                and value.__module__ == module.__name__
                and "name" in vars(value)
            ):
                found[value.name] = value
    return found

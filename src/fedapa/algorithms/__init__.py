"""One file per algorithm, found by its name: ``find("fedapa")`` is the class in fedapa.py.

Its control, and settings of it that comparisons call by a name of their own, stand in its file.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping

from fedapa.algorithms.algorithm import Algorithm
from fedapa.errors import PlanError, nearest

__all__ = ["base_of", "find", "is_variant", "names", "summary_of"]


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
    text = inspect.getdoc(kind if is_variant(kind) else inspect.getmodule(kind)) or ""
    return text.splitlines()[0].partition(": ")[2].rstrip(".")


def is_variant(kind: type[Algorithm]) -> bool:
    """Whether it stands in the file of another: a control, or a setting with a name of its own."""
    return kind.__module__.rpartition(".")[2] != kind.name


def base_of(kind: type[Algorithm]) -> type[Algorithm]:
    """The algorithm that a variant is of; any other algorithm itself."""
    if not is_variant(kind):
        return kind
    return next(base for base in kind.__mro__[1:] if "name" in vars(base))


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

"""One file per algorithm, found by its name: ``find("fedapa")`` is the class in fedapa.py.

Its control, and settings of it that comparisons call by a name of their own, stand in its file.
Everything that such a file needs is importable from here (CONTRIBUTING.md has a whole one). Another
package brings an algorithm by an entry point of the group ``fedapa.algorithms``: its name, and the
module that holds it.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from types import ModuleType

from fedapa.algorithms.algorithm import (
    Algorithm,
    Dimensions,
    Form,
    Group,
    Payload,
    Range,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
    planned_rounds,
    settings_of,
)
from fedapa.errors import PlanError, RosterError, nearest
from fedapa.learning.fit import (
    NotNegative,
    NotNegativeInteger,
    Objective,
    Part,
    Positive,
    PositiveInteger,
    Share,
    Temperature,
    Training,
    cross_entropy,
)
from fedapa.learning.losses import over_tasks
from fedapa.learning.tree import NamedArrays, load_weights, weighted_mean, weights_of
from fedapa.models.model import Counter, Model
from fedapa.payload import Array
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = [
    "Algorithm",
    "Array",
    "Counter",
    "Dimensions",
    "Form",
    "Group",
    "Key",
    "Model",
    "NamedArrays",
    "NotNegative",
    "NotNegativeInteger",
    "Objective",
    "Part",
    "Payload",
    "Positive",
    "PositiveInteger",
    "Range",
    "Report",
    "Room",
    "RoomCard",
    "RoomState",
    "Roster",
    "RosterError",
    "Round",
    "ServerState",
    "Share",
    "Temperature",
    "Training",
    "base_of",
    "cross_entropy",
    "find",
    "is_variant",
    "load_weights",
    "names",
    "one_task_only",
    "over_tasks",
    "planned_rounds",
    "settings_of",
    "summary_of",
    "weighted_mean",
    "weights_of",
]

GROUP = "fedapa.algorithms"
"""Where other packages name theirs."""


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
    return next((base for base in kind.__mro__[1:] if "name" in vars(base)), kind)


def one_task_only(algorithm: Algorithm) -> str:
    """Why an algorithm cannot learn two tasks, and what can."""
    able = ", ".join(name for name in names() if find(name).several_tasks)
    return (
        f"{algorithm.title} learns one task: choose data.tasks = 'label' or 'activity', a net for "
        f"each, or an algorithm that learns both with one net: {able}"
    )


@functools.cache
def _found() -> Mapping[str, type[Algorithm]]:
    by_name: dict[str, type[Algorithm]] = {}
    for module in _modules():
        for kind in _algorithms_in(module):
            if by_name.setdefault(kind.name, kind) is not kind:
                raise PlanError(
                    f"algorithm '{kind.name}' is in {by_name[kind.name].__module__} and in "
                    f"{module.__name__}; rename or uninstall one"
                )
    return by_name


def _algorithms_in(module: ModuleType) -> list[type[Algorithm]]:
    """The classes with a name that the module defines itself."""
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    return [
        kind
        for kind in classes
        if issubclass(kind, Algorithm)
        and "name" in vars(kind)
        and kind.__module__ == module.__name__
    ]


def _modules() -> Iterator[ModuleType]:
    """The files here, and those of other packages; whoever takes a name that is here is refused."""
    for here in pkgutil.iter_modules(__path__):
        yield importlib.import_module(f"{__name__}.{here.name}")
    for entry in entry_points(group=GROUP):
        try:
            yield importlib.import_module(entry.module)
        except ImportError as error:
            raise PlanError(
                f"algorithm '{entry.name}': its module {entry.module} cannot be imported "
                f"({error}); mend or uninstall the package that brings it"
            ) from error

"""Settings of the simulator: what each may be, and the sentence where one is not that.

A setting is a field of a frozen dataclass, and its type says its range: pydantic checks what a
rooms file says and what a script puts together alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails

from fedapa.errors import PlanError, nearest

__all__ = [
    "KNOWN_KEYS_ONLY",
    "Number",
    "Pair",
    "Point",
    "Spot",
    "Whole",
    "ascending",
    "check_settings",
    "list_of",
    "made_from",
    "within",
]

_T = TypeVar("_T")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}  # each takes milliseconds to make
_LONGEST = 60  # letters of a wrong value that are repeated to its author

KNOWN_KEYS_ONLY = ConfigDict(extra="forbid")
"""The pydantic configuration of every dataclass of settings."""


def list_of(length: int) -> BeforeValidator:
    """A list of so many values."""

    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != length:
            raise ValueError(f"write a list of {length}")
        return value

    return BeforeValidator(check)


def within(low: float, high: float) -> AfterValidator:
    """A number, or every number of a tuple, from ``low`` to ``high``; NaN is not."""

    def check(value: Any) -> Any:
        numbers = value if isinstance(value, tuple) else (value,)
        if not all(low <= number <= high for number in numbers):
            raise ValueError(f"choose {low:g} to {high:g}")
        return value

    return AfterValidator(check)


def ascending(value: tuple[float, float]) -> tuple[float, float]:
    """For ``AfterValidator``: the least and the greatest value of something."""
    least, greatest = value
    if least > greatest:
        raise ValueError("write the least first, then the greatest")
    return value


Number = Annotated[float, Strict()]
"""A number, but no text and no yes or no."""
Whole = Annotated[int, Strict()]
"""A whole number."""
Pair = Annotated[tuple[Number, Number], list_of(2), AfterValidator(ascending)]
"""The least and the greatest value of something."""
Spot = Annotated[tuple[Number, Number], list_of(2)]
"""m, (x, y) on the floor."""
Point = Annotated[tuple[Number, Number, Number], list_of(3)]
"""m, (x, y, z) in the room."""


def made_from(
    kind: type[_T],
    values: Mapping[str, Any],
    where: str,
    *,
    key: Callable[[Sequence[str]], str] = ".".join,
) -> _T:
    """Settings of a kind from plain values.

    ``where`` begins the sentence of whatever is wrong with them; ``key`` tells what the file calls
    the value at a path of field names.
    """
    try:
        made: _T = _adapter(kind).validate_python(values)
    except ValidationError as error:
        raise PlanError(where + _sentence(error.errors()[0], kind, key)) from None
    return made


def check_settings(settings: Any, where: str) -> None:
    """Raise unless each value of a dataclass of settings may be what it is."""
    made_from(type(settings), asdict(settings), where)


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _sentence(error: ErrorDetails, kind: type, key: Callable[[Sequence[str]], str]) -> str:
    """One validation error as a sentence: place, got, remedy."""
    path = [word for word in error["loc"] if isinstance(word, str)]
    numbers = "".join(f"[{word}]" for word in error["loc"] if isinstance(word, int))
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        above = key(path[:-1])
        known = [field.name for field in fields(_kind_at(kind, path[:-1]))]
        return f"{above}{': ' if above else ''}unknown key '{path[-1]}'; {nearest(path[-1], known)}"
    if error["type"] == "missing":
        return f"{key(path)} is missing; write it too"
    value = error["input"]
    shown = repr(list(value) if isinstance(value, tuple) else value)
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}…"
    return f"{key(path)}{numbers} = {shown}; {_remedy(error)}"


def _remedy(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"choose {error['ctx']['expected']}"
    if error["type"] == "float_type" and type(error["input"]) is int:
        return "a number has at most 300 digits"
    expected = {
        "dataclass_type": "write a table of keys and values",
        "float_type": "write a number",
        "int_type": "write a whole number",
        "string_type": "write a text in quotes",
        "tuple_type": "write a list",
    }
    message = error["msg"].removeprefix("Value error, ")
    return expected.get(error["type"], message[0].lower() + message[1:])


def _kind_at(kind: type, path: Sequence[str]) -> type:
    """The dataclass of settings that lies at a path of fields."""
    for name in path:
        hint = get_type_hints(kind)[name]
        for below in get_args(hint) or (hint,):  # a table that may be left out is ``… | None``
            if isinstance(below, type) and is_dataclass(below):
                kind = below
    return kind

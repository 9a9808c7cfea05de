"""TOML that anybody may have written: parsed within bounds, and every complaint one sentence.

Python's parser keeps every beginning of a dotted key: one key of 50,000 parts takes 10 GB. Plans
and files of rooms have keys of two or three parts and a few hundred lines.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from fedapa.errors import PlanError

__all__ = ["parse_toml", "read_toml"]

_MOST_BYTES = 1 << 18
_MOST_DOTS = 32
"""In one line, apart from those of decimal numbers: a key stands on one line."""
_DECIMAL = re.compile(r"\d\.\d")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8-sig")  # editors on Windows put a mark in front
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: not TOML: {error}") from error
    if len(content) > _MOST_BYTES:
        raise PlanError(
            f"{path}: not TOML of ours: longer than {_MOST_BYTES} bytes; is it another file?"
        )
    return parse_toml(text, str(path))


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """The values in a TOML text; ``place`` is what to call it in a complaint."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS and _DECIMAL.sub("", line).count(".") > _MOST_DOTS:
            raise PlanError(
                f"{place}: not TOML of ours: line {number} has more than {_MOST_DOTS} dots; our "
                "keys have at most three parts"
            )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise PlanError(f"{place}: not TOML of ours: its values are nested too deep") from None
    except ValueError as error:  # also numbers of more than 4,300 digits
        raise PlanError(f"{place}: not TOML: {error}") from error

"""What a command prints: text and tables, JSON for scripts, one sentence when it cannot."""

import json
import sys
from typing import Any, NoReturn

__all__ = ["fail", "print_json", "print_out"]


def print_out(what: Any) -> None:
    """Print a sentence or a rich table to stdout."""
    from rich.console import Console

    # A pipe has no width of its own; tables must not be folded to 80 columns there.
    width = None if sys.stdout.isatty() else 160
    # Names of rooms and files are printed as they are: "[x]" is no colour.
    console = Console(width=width, markup=False, highlight=False)
    console.print(what, soft_wrap=isinstance(what, str))


def print_json(value: Any) -> None:
    """Print one JSON value with sorted keys."""
    sys.stdout.write(json.dumps(value, indent=1, sort_keys=True) + "\n")


def fail(sentence: str) -> NoReturn:
    """End with one sentence on stderr and exit code 2."""
    sys.stderr.write(f"fedapa: {sentence}\n")
    raise SystemExit(2)

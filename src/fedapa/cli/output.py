"""What a command prints: text and tables, JSON for scripts, one sentence when it cannot."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["end_unread", "fail", "flush", "print_json", "print_out", "take_any_stream"]

_NOBODY_READS = 141
"""The exit code of whatever writes into a pipe that is closed, as shells know it: 128 + SIGPIPE."""


def take_any_stream() -> None:
    """Print whatever there is to print, wherever it goes.

    An ASCII terminal gets escapes for what it cannot show, and so do names of files that are no
    text; a stream that is closed takes everything.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Print what is held back."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def end_unread() -> NoReturn:
    """Nobody reads what is printed any more: end without a word, as other commands do."""
    # Python flushes once more when it ends, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise SystemExit(_NOBODY_READS)


def print_out(what: Any) -> None:
    """Print a sentence or a rich table to stdout."""
    from rich.console import Console

    # A pipe has no width of its own; tables must not be folded to 80 columns there.
    width = None if sys.stdout.isatty() else 200
    # Names of rooms and files are printed as they are: "[x]" is no colour.
    console = Console(width=width, markup=False, highlight=False)
    if isinstance(what, str):
        console.print(_shown(what), soft_wrap=True)
    else:
        console.print(what, soft_wrap=False)


def _shown(sentence: str) -> str:
    """A sentence for a terminal, which obeys what is not printable.

    Names in it may come from a stranger's file, and whole sentences from another machine.
    """
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1]
        for letter in sentence
    )


def print_json(value: Any) -> None:
    """Print one JSON value with sorted keys."""
    sys.stdout.write(json.dumps(value, indent=1, sort_keys=True) + "\n")


def fail(sentence: str) -> NoReturn:
    """End with one sentence on stderr and exit code 2."""
    sys.stderr.write(f"fedapa: {_shown(sentence)}\n")
    raise SystemExit(2)

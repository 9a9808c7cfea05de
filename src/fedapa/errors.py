"""Every exception of fedapa.

A user's mistake raises one of these with a sentence that names the place, what was found, what
was expected and the remedy; the command line prints that sentence and exits with code 2::

    FedapaError
    ├── CaptureError       a capture file is not what its format promises
    ├── DataError          a store, a room or its windows cannot be used
    ├── PlanError          a plan, a setting or a flag is wrong
    ├── PayloadError       bytes that should be a payload are not
    ├── RosterError        this algorithm cannot run on these rooms
    ├── RunError           a run cannot start, go on or be resumed
    │   ├── DivergedError  training left the numbers that a net can have
    │   └── PausedError    too few rooms answered; it goes on when they are back
    └── SourceError        packets cannot be had from where they should come
"""

import difflib
import errno
from collections.abc import Iterable

__all__ = [
    "CaptureError",
    "DataError",
    "DivergedError",
    "FedapaError",
    "PausedError",
    "PayloadError",
    "PlanError",
    "RosterError",
    "RunError",
    "SourceError",
    "files_trouble",
    "nearest",
    "one_line",
]


class FedapaError(Exception):
    """The root: catch this to catch all that fedapa raises on purpose."""


class CaptureError(FedapaError):
    """A capture file is not what its format promises."""


class DataError(FedapaError):
    """A store, a room or its windows cannot be used."""


class PlanError(FedapaError):
    """A plan, a setting or a flag is wrong."""


class PayloadError(FedapaError):
    """Bytes that should be a payload are not."""


class RosterError(FedapaError):
    """This algorithm cannot run on these rooms."""


class RunError(FedapaError):
    """A run cannot start, go on or be resumed."""


class DivergedError(RunError):
    """Training left the numbers that a net can have: a loss, weights or answers became NaN."""


class PausedError(RunError):
    """Too few rooms answered a round; the run goes on when they are back."""


class SourceError(FedapaError):
    """Packets cannot be had from where they should come."""


def nearest(word: str, known: Iterable[str]) -> str:
    """What to offer for a mistyped ``word``: the closest known one, or all of them."""
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(choices)}"


def files_trouble(error: BaseException) -> str:
    """What to say where too many open files are the cause of an error; mostly nothing.

    Whoever met the error only knows what it could not open, and would blame that.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno == errno.EMFILE:
            return (
                "this process has as many files open as it may; allow more by 'ulimit -n 65536' "
                "before it is started, or by LimitNOFILE=65536 in its systemd unit"
            )
        if isinstance(cause, OSError) and cause.errno == errno.ENFILE:
            return (
                "this machine has as many files open as it may; see which program has them by "
                "'lsof', or allow more by 'sysctl fs.file-max=2097152'"
            )
        cause = cause.__cause__ or cause.__context__
    return ""


def one_line(said: str) -> str:
    """What somebody else said, as part of a sentence of ours: no line of its own, no colours.

    A terminal obeys what is not printable, and a line of a log must not look like two.
    """
    return "".join(letter if letter.isprintable() else " " for letter in said)

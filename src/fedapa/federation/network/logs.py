"""Logs of programs that run for years: each has an end, and the part before the last one is kept.

Most are written by programs of others, which keep the file open: it cannot be renamed under them.
"""

import contextlib
import os
import shutil
from pathlib import Path

__all__ = ["LONGEST_LOG", "earlier_log", "keep_short"]

LONGEST_LOG = 10 * 2**20
"""Bytes. A SuperNode writes about half a kilobyte in a round: some 20,000 rounds."""


def earlier_log(log: Path) -> Path:
    """Where what a log held before is."""
    return log.with_name(f"{log.stem}-before{log.suffix}")


def keep_short(log: Path) -> None:
    """Empty a log that has become too long, whoever writes it; what it held stays beside it.

    Its writer must append: then it goes on at the new end. Lines that are written at the very
    moment may be lost.
    """
    with contextlib.suppress(OSError):  # there is none, or it is somebody else's
        if log.stat().st_size <= LONGEST_LOG:
            return
        try:
            shutil.copyfile(log, earlier_log(log))
        except OSError:  # a full disk: half a copy helps nobody, and the log is what fills it
            earlier_log(log).unlink(missing_ok=True)
        os.truncate(log, 0)

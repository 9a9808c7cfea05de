"""Files that are whole or absent: everything is written aside, flushed, and renamed into place."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["aside", "cache_folder", "folder_aside", "readable", "write_bytes", "write_text"]


def readable(name: str) -> str:
    """A file's name as text to store or to draw; a name may hold bytes that are no UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; renamed to it when the block ends well, else removed.

    A crash, a full disk or an exception leaves what stood at ``path`` before as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        # A full disk says so while bytes are written, where Python knows no name.
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` to fill; renamed to it when the block ends well, else removed.

    ``folder`` itself may exist while it is empty.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
    partial.mkdir()
    try:
        yield partial
        if folder.exists():
            folder.rmdir()
        partial.replace(folder)
        _sync_folder(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    # The rename itself lives in the folder; where folders cannot be opened it is not synced.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the content of ``path`` in one step."""
    with aside(path) as partial:
        partial.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Replace the text in ``path`` in one step."""
    write_bytes(path, content.encode())


def cache_folder() -> Path:
    """Where derived files are kept: $FEDAPA_CACHE, else fedapa under the user's cache folder."""
    if chosen := os.environ.get("FEDAPA_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedapa"

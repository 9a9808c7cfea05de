"""Files that are whole or absent: everything is written aside, flushed, and renamed into place."""

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import filelock

from fedapa.errors import DataError

if sys.platform != "win32":  # there, what a killed process left stays
    import fcntl

__all__ = [
    "Together",
    "Write",
    "aside",
    "cache_folder",
    "folder_aside",
    "is_held",
    "locked",
    "readable",
    "together",
    "write_bytes",
    "write_text",
]


class Write(Protocol):
    """What replaces a file: ``write_bytes``, or ``Together`` for several."""

    def __call__(self, path: Path, *content: bytes | memoryview, over: Path | None = None) -> None:
        """As ``Together``."""


def readable(name: str) -> str:
    """A file's name as text to store or to draw; a name may hold bytes that are no UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; renamed to it when the block ends well, else removed.

    A crash, a full disk or an exception leaves what stood at ``path`` before as it was; what a
    killed process left of an earlier try is removed. A link is followed, not replaced. A device or
    a pipe cannot be replaced by a file: what is yielded then is ``path`` itself.
    """
    if _is_special(path):
        try:
            with _naming(path, path):
                yield path
        except BrokenPipeError as error:
            raise DataError(f"{path}: whoever read from it has stopped") from error
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; expected a file", str(path))
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    with _partial(target, Path.touch) as partial, _naming(path, partial):
        try:
            yield partial
            with partial.open("rb+") as written:
                os.fsync(written.fileno())
            partial.replace(target)
            _sync_folder(target.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` to fill; renamed to it when the block ends well, else removed.

    ``folder`` itself may exist while it is empty.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _partial(folder, Path.mkdir) as partial, _naming(folder, partial):
        try:
            yield partial
            if folder.exists():
                folder.rmdir()
            partial.replace(folder)
            _sync_folder(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Nobody else is between reading and replacing ``path``; where somebody is, that is said.

    Or, with ``wait``, waited for.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(target.with_name(f".{target.name}.lock"), timeout=-1 if wait else 0)
    try:
        with lock:
            try:
                yield
            finally:
                # While it is ours: who waits for a lock that is gone makes a new one.
                with contextlib.suppress(OSError):
                    Path(lock.lock_file).unlink()
    except filelock.Timeout as error:
        raise DataError(
            f"{path}: another process is writing it; try again when that is done"
        ) from error


def is_held(lock: Path) -> bool:
    """Whether a process has that lock; where it cannot be known, one has.

    To ask is to share it for a moment: who takes such a lock waits that long.
    """
    if sys.platform == "win32":
        return True
    try:
        handle = os.open(lock, os.O_RDONLY)
    except OSError as error:
        return error.errno != errno.ENOENT
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # somebody has it, or the file system knows no locks
        return True
    finally:
        os.close(handle)
    return False


def _is_special(path: Path) -> bool:
    """Whether something stands there that is neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextlib.contextmanager
def _partial(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A new file or folder beside ``target``, and those of processes that are no more removed.

    A lock on it says that its writer lives; it ends with this process, however that ends.
    """
    _remove_dead(target)
    while True:
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        make(partial)
        with _locked_by_us(partial) as ours:
            # Another process may have taken it for a dead one before the lock was ours.
            if ours and partial.exists():
                yield partial
                return


@contextlib.contextmanager
def _locked_by_us(partial: Path) -> Iterator[bool]:
    """Whether nobody else has a lock on ``partial``; then we have, for as long as the block."""
    if sys.platform == "win32":
        yield True
        return
    ours = True
    try:
        handle = os.open(partial, os.O_RDONLY)
    except FileNotFoundError:  # taken for a dead process's, and removed, before the lock was ours
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ours = False
        except OSError:  # a file system without locks: there nobody removes anything
            pass
        yield ours
    finally:
        os.close(handle)


@contextlib.contextmanager
def _naming(path: Path, partial: Path) -> Iterator[None]:
    """Errors name the file that was asked for: a full disk names none, others our own."""
    try:
        yield
    except OSError as error:
        name = str(partial) if error.filename is None else str(error.filename)
        if error.errno is None or not name.startswith(str(partial)):
            raise
        place = str(path) + name.removeprefix(str(partial))
        raise type(error)(error.errno, error.strerror, place) from error


def _remove_dead(target: Path) -> None:
    """Remove what was written aside for ``target`` by processes that are no more."""
    if sys.platform == "win32":
        return
    names: list[str] = []
    with contextlib.suppress(OSError):  # one may write into a folder that one may not list
        names = os.listdir(target.parent)  # noqa: PTH208 (paths cost more than the look)
    for name in names:
        # No glob: the name may hold what patterns mean something by.
        if not name.endswith(".partial") or not re.fullmatch(
            re.escape(f".{target.name}.") + r"[0-9a-f]{8}\.partial", name
        ):
            continue
        entry = target.parent / name
        with contextlib.suppress(OSError):
            handle = os.open(entry, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its writer lives
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
            finally:
                os.close(handle)


def _sync_folder(folder: Path) -> None:
    # The rename itself lives in the folder; where folders cannot be opened it is not synced.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Together:
    """Files that are written one by one and reach the disk together; made by ``together``."""

    def __init__(self, *, ahead: bool = False) -> None:
        self._ahead = ahead
        self._written: list[_Written] = []

    def __call__(self, path: Path, *content: bytes | memoryview, over: Path | None = None) -> None:
        """As ``write_bytes``; the file is in its place when the block ends, at the latest.

        Args:
            path: where to.
            content: parts that stand one after the other.
            over: a file beside it that nobody needs any more: its place on the disk is used, and
                what stood there is gone.
        """
        if sys.platform != "win32" and _mode_of(path) == stat.S_IFLNK:
            path = Path(os.path.realpath(path))  # a link is followed, not replaced
        if sys.platform == "win32" or _mode_of(path) not in (None, stat.S_IFREG):
            with aside(path) as beside, beside.open("wb") as file:
                file.writelines(content)
            return
        folder = str(path.parent)
        if not os.path.isdir(folder):  # noqa: PTH112 (pathlib takes as long as the system)
            path.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead(path)
        handle, partial = _taken_over(path, over) or _new_partial(path)
        with _naming(path, Path(partial)):
            try:
                size = sum(_write_all(handle, part) for part in content)
                if over is not None:
                    os.ftruncate(handle, size)
            except BaseException:
                _Written(path, partial, handle).give_up()
                raise
        ahead = _background().submit(_sync, handle) if self._ahead else None
        self._written.append(_Written(path, partial, handle, ahead))
        if len(self._written) == _AT_ONCE:
            self.finish()

    def finish(self) -> None:
        """Put everything in its place, synced; what fails leaves what stood there before."""
        written, self._written = self._written, []
        left = list(written)
        try:
            for one in written:
                with _naming(one.path, Path(one.partial)):
                    _sync(one.handle) if one.ahead is None else one.ahead.result()
            for one in written:
                with _naming(one.path, Path(one.partial)):
                    os.replace(one.partial, one.path)  # noqa: PTH105 (as above)
                left.remove(one)
                os.close(one.handle)  # and with it the lock
            for folder in dict.fromkeys(one.path.parent for one in written):
                _sync_folder(folder)
        except BaseException:
            for one in left:
                one.give_up()
            raise


_AT_ONCE = 64
"""Files that ``together`` keeps open at most."""


@dataclass(frozen=True)
class _Written:
    """A file that is written aside."""

    path: Path
    partial: str
    handle: int
    ahead: "Future[None] | None" = None
    """What syncs it meanwhile."""

    def give_up(self) -> None:
        """Leave nothing of it."""
        if self.ahead is not None:
            self.ahead.exception()  # as long as it is synced it must not be closed
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.partial)  # noqa: PTH108 (pathlib takes as long as the system)
        with contextlib.suppress(OSError):
            os.close(self.handle)


_sync = getattr(os, "fdatasync", os.fsync)
"""Content and length; the name is synced with its folder, other facts of a file mean nothing."""


@functools.cache
def _background() -> ThreadPoolExecutor:
    """What syncs files while this process goes on: a disk is slow, and takes no processor."""
    return ThreadPoolExecutor(1, thread_name_prefix="fedapa-sync")


@contextlib.contextmanager
def together(*, ahead: bool = False) -> Iterator[Together]:
    """Within the block files are written by what it yields, and are all on disk when it ends.

    Each is whole or absent as with ``write_bytes``. A file system that keeps a journal writes it
    once for many of them, not twice for each. What was written when the block fails is kept. With
    ``ahead`` a thread syncs what is written while the block goes on.
    """
    write = Together(ahead=ahead)
    try:
        yield write
    finally:
        write.finish()


def write_bytes(path: Path, *content: bytes | memoryview, over: Path | None = None) -> None:
    """Replace the content of ``path`` in one step; several parts stand one after the other.

    As ``aside``, with half of its calls: every room writes its state in every round. ``over`` is
    as in ``Together``.
    """
    with together() as write:
        write(path, *content, over=over)


def _mode_of(path: Path) -> int | None:
    """What kind of thing stands there, a link itself; none if nothing does."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return None


def _taken_over(target: Path, over: Path | None) -> tuple[int, str] | None:
    """A file whose place is to be used, under a name aside of ``target``; none where it cannot be.

    Another name of the same file would lose its content, so there may be none.
    """
    if over is None:
        return None
    partial = _aside_of(target)
    try:
        handle = os.open(over, os.O_WRONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        about = os.fstat(handle)
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(over, partial)  # noqa: PTH104 (pathlib takes as long as the system)
            return handle, partial
    except OSError:
        pass
    os.close(handle)
    return None


def _aside_of(target: Path) -> str:
    return f"{target.parent}/.{target.name}.{secrets.token_hex(4)}.partial"


def _new_partial(target: Path) -> tuple[int, str]:
    """A new file beside ``target`` that is ours, open to write, and its path."""
    while True:
        partial = _aside_of(target)
        with _naming(target, Path(partial)):
            handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        ours = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # of who takes it for a dead process's, and removes it
            ours = False
        except OSError:  # a file system without locks: there nobody removes anything
            pass
        # It may have been removed before the lock was ours, too.
        if ours and os.path.exists(partial):  # noqa: PTH110 (pathlib takes as long as the system)
            return handle, partial
        os.close(handle)


def _write_all(handle: int, content: bytes | memoryview) -> int:
    """How many bytes that was."""
    left = memoryview(content)
    size = len(left)
    while left:
        left = left[os.write(handle, left) :]
    return size


def write_text(path: Path, content: str) -> None:
    """Replace the text in ``path`` in one step."""
    write_bytes(path, content.encode())


def cache_folder() -> Path:
    """Where derived files are kept: $FEDAPA_CACHE, else fedapa under the user's cache folder."""
    if chosen := os.environ.get("FEDAPA_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedapa"

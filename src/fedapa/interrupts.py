"""Ctrl-C: always heard, and answered where nothing is half done.

Python raises ``KeyboardInterrupt`` wherever it happens to be. In a weakref's callback or in a
``__del__`` it is printed and forgotten, and every object of h5py has such a callback; in the middle
of an HDF5 call it would leave a broken file. So while HDF5 works an interrupt is only noted, and it
is raised where it can be: between two calls, and when the block ends.
"""

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

__all__ = ["held_back", "uninterrupted"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextlib.contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Note Ctrl-C instead of raising it; what is yielded raises it if there was one.

    At the end of the block it is raised in any case. Signals reach the main thread only, and some
    processes ignore them: there nothing changes.
    """
    noted = False

    def note(*_: object) -> None:
        nonlocal noted
        noted = True

    def check() -> None:
        nonlocal noted
        if noted:
            noted = False
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or before in (signal.SIG_IGN, None):
        yield check
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
    if noted:
        # The handler that was there knows whom to tell: another such block, or Python.
        signal.raise_signal(signal.SIGINT)


def uninterrupted(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function during which Ctrl-C waits; what it leaves behind is freed before it is raised."""

    @functools.wraps(work)
    def whole(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with held_back():
            return work(*args, **kwargs)

    return whole

"""Ctrl-C is never lost, and never in the middle of what must be whole."""

import signal
import threading
import weakref

import pytest

from fedapa.interrupts import held_back, uninterrupted


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_waits_until_asked() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held_back() as check:
        check()
        press()
        done.append("work")
        check()
        done.append("too late")
    assert done == ["work"]


def test_it_is_raised_at_the_end_at_the_latest() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        press()
        done.append("work")
    assert done == ["work"]


def test_a_failure_is_not_hidden_by_it() -> None:
    with pytest.raises(ValueError, match="damaged"), held_back():
        press()
        raise ValueError("damaged")


def test_blocks_within_blocks_tell_the_outer_one() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held_back() as check:
        with held_back():
            press()
        done.append("the outer one decides when")
        check()
    assert done == ["the outer one decides when"]


def test_a_weak_reference_does_not_swallow_it() -> None:
    """Python prints and forgets what is raised there; h5py has one for every object."""

    class Handle:
        pass

    @uninterrupted
    def use() -> None:
        handle = Handle()
        references.append(weakref.ref(handle, lambda _: press()))

    references: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        use()


def test_elsewhere_than_in_the_main_thread_nothing_changes() -> None:
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(uninterrupted(lambda: 3)()))
    thread.start()
    thread.join()
    assert answers == [3]

"""How far long work has come, on a terminal and in a pipe."""

import os
import pty
import subprocess
import sys

import pytest

from fedapa.cli import progress as display
from fedapa.processes import Progress


def rounds(done: int, note: str = "") -> Progress:
    return Progress("fedapa", done, 144, "rounds", note)


def test_a_line_says_what_is_counted() -> None:
    assert display.progress_line(rounds(17)) == "fedapa: 17 of 144 rounds"
    noted = rounds(17, "accuracy 71.3 %")
    assert display.progress_line(noted) == "fedapa: 17 of 144 rounds, accuracy 71.3 %"
    endless = Progress("serving", 17, None, "rounds")
    assert display.progress_line(endless) == "serving: 17 rounds"


def test_a_pipe_gets_a_line_every_few_seconds_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A round a second: the first line after 5 s; after 120 s the next is 14 s later."""
    clock = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: clock[0])
    with display.shown_progress() as show:
        for second in range(1, 145):
            clock[0] = float(second)
            show(rounds(second))
    told = [int(line.split()[1]) for line in capsys.readouterr().err.splitlines()]
    assert told[:4] == [5, 10, 15, 20]
    assert told[-3:] == [120, 134, 144]


def test_work_that_fails_leaves_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), display.shown_progress() as show:
        show(rounds(1))
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar() -> None:
    script = (
        "from fedapa.cli.progress import shown_progress; from fedapa.processes import Progress\n"
        "with shown_progress() as show: show(Progress('fedapa', 17, 144, 'rounds', '[x]'))"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    subprocess.run([sys.executable, "-c", script], stderr=theirs, check=True, env=environment)
    os.close(theirs)
    text = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "17 of 144 rounds" in text
    assert "[x]" in text

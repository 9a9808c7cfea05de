"""Logs of programs that run for years."""

import errno
import shutil
from pathlib import Path

import pytest

from fedapa.federation.network import logs
from fedapa.federation.network.logs import keep_short


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST_LOG", 100)


def test_a_log_stays_short_under_a_program_that_keeps_it_open(tmp_path: Path) -> None:
    log = tmp_path / "superlink.log"
    with log.open("ab", buffering=0) as program:
        for number in range(100):
            program.write(f"line {number}\n".encode())
            keep_short(log)
        program.write(b"the last line\n")
    before = (tmp_path / "superlink-before.log").read_text()
    assert before.endswith("\n")
    assert (before + log.read_text()).endswith("line 98\nline 99\nthe last line\n"), "in order"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 300


def test_a_full_disk_does_not_keep_a_log_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path, copy: Path) -> None:
        copy.write_text("half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    log = tmp_path / "run.log"
    log.write_text("x" * 101)
    keep_short(log)
    assert [path.name for path in tmp_path.iterdir()] == ["run.log"]
    assert log.read_text() == ""


def test_no_log_is_nothing_to_do(tmp_path: Path) -> None:
    keep_short(tmp_path / "worker.log")
    assert not list(tmp_path.iterdir())

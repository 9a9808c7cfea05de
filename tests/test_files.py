"""Files are whole or as they were."""

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedapa import files
from fedapa.errors import DataError
from fedapa.files import (
    aside,
    folder_aside,
    is_held,
    locked,
    together,
    write_bytes,
    write_text,
)


def test_content_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_text(path, "one")
    write_bytes(path, b"two")
    assert path.read_text() == "two"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_failure_half_way_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "good")
    with pytest.raises(OSError, match="disk full"), aside(path) as partial:
        partial.write_text("half of the n")
        raise OSError("disk full")
    assert path.read_text() == "good"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, aside(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")  # as write() does: without a name
    assert caught.value.filename == str(tmp_path / "file")


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_text(pipe, "a page")
    reader.join(10)
    assert read == [b"a page"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_device_stays_a_device() -> None:
    write_text(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(Path("/dev/full"), "nothing")
    assert caught.value.filename == "/dev/full"


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    write_text(tmp_path / "real" / "file", "old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "file")
    write_text(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is a folder; expected a file"):
        write_text(tmp_path, "text")


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed = (
        "import os, pathlib, fedapa.files as files\n"
        f"with files.aside(pathlib.Path({str(tmp_path / 'file')!r})) as partial:\n"
        f"    with files.folder_aside(pathlib.Path({str(tmp_path / 'folder')!r})) as folder:\n"
        "        partial.write_text('half')\n"
        "        (folder / 'half').write_text('half')\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", killed], check=False)
    assert len(list(tmp_path.glob(".*.partial"))) == 2
    write_text(tmp_path / "file", "whole")
    with folder_aside(tmp_path / "folder") as folder:
        (folder / "whole").touch()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def test_what_another_is_still_writing_stays(tmp_path: Path) -> None:
    with aside(tmp_path / "file") as slow:
        slow.write_text("slow")
        write_text(tmp_path / "file", "quick")
    assert (tmp_path / "file").read_text() == "slow"


def test_a_lock_that_a_process_has_is_held(tmp_path: Path) -> None:
    lock = tmp_path / ".a.lock"
    assert not is_held(lock)
    with locked(tmp_path / "a"):
        assert is_held(lock)
    lock.touch()  # as a killed process leaves it
    assert not is_held(lock)


def test_a_file_that_somebody_writes_is_locked(tmp_path: Path) -> None:
    with locked(tmp_path / "rooms.h5"):
        with (
            pytest.raises(DataError, match=r"rooms\.h5: another process is writing it; try again"),
            locked(tmp_path / "rooms.h5"),
        ):
            pass
        with locked(tmp_path / "other.h5"):
            pass
    with locked(tmp_path / "rooms.h5"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_file_in_the_folder(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with pytest.raises(OSError, match="No space") as caught, folder_aside(target) as folder:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "file"))
    assert caught.value.filename == str(tmp_path / "folder" / "file")
    assert list(tmp_path.iterdir()) == []


def test_several_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        for _ in range(150):
            write_text(tmp_path / "one", str(writer))

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(4)))
    assert (tmp_path / "one").read_text() in "0123"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("ahead", [False, True])
def test_files_that_are_written_together_are_there_when_the_block_ends(
    tmp_path: Path, ahead: bool
) -> None:
    names = [f"{number:03d}" for number in range(2 * files._AT_ONCE + 3)]
    write_text(tmp_path / "a" / names[-1], "old")
    with together(ahead=ahead) as write:
        for name in names:
            write(tmp_path / "a" / name, name.encode(), b" and more")
        assert (tmp_path / "a" / names[-1]).read_text() == "old"
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names
    assert all((tmp_path / "a" / name).read_text() == f"{name} and more" for name in names)


@pytest.mark.parametrize("ahead", [False, True])
def test_what_was_written_together_stays_when_the_block_fails(tmp_path: Path, ahead: bool) -> None:
    with pytest.raises(ValueError, match="later"), together(ahead=ahead) as write:
        write(tmp_path / "one", b"whole")
        raise ValueError("later")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_text() == "whole"


@pytest.mark.parametrize("ahead", [False, True])
def test_files_that_cannot_be_synced_are_as_they_were(
    tmp_path: Path, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "one", "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_sync", full)
    with pytest.raises(OSError, match="No space left") as caught, together(ahead=ahead) as write:
        write(tmp_path / "one", b"new")
        write(tmp_path / "two", b"new")
    assert caught.value.filename == str(tmp_path / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_text() == "old"


def test_a_file_takes_the_place_of_one_that_nobody_needs(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_text(old, "much longer than the other")
    place = old.stat().st_ino
    write_bytes(new, b"short", over=old)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert new.read_text() == "short"
    assert new.stat().st_ino == place
    write_bytes(new, b"no such file", over=old)
    assert new.read_text() == "no such file"


@pytest.mark.parametrize("kind", ["hard link", "link", "folder"])
def test_a_place_that_is_somebody_else_s_too_is_left(tmp_path: Path, kind: str) -> None:
    kept, old = tmp_path / "kept", tmp_path / "old"
    kept.write_text("a copy that takes no space")
    if kind == "hard link":
        os.link(kept, old)
    elif kind == "link":
        old.symlink_to(kept)
    else:
        old.mkdir()
    write_bytes(tmp_path / "new", b"new", over=old)
    assert kept.read_text() == "a copy that takes no space"
    assert old.exists()
    assert (tmp_path / "new").read_text() == "new"


def test_a_disk_that_is_full_takes_no_more_than_what_nobody_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last, old = tmp_path / "2", tmp_path / "1"
    write_text(old, "older")
    write_text(last, "last")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_write_all", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(tmp_path / "3", b"new", over=old)
    assert caught.value.filename == str(tmp_path / "3")
    assert [path.name for path in tmp_path.iterdir()] == ["2"]
    assert last.read_text() == "last"

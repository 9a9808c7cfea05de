"""Files are whole or as they were."""

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedapa.errors import DataError
from fedapa.files import aside, folder_aside, is_held, locked, write_bytes, write_text


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

"""Files are whole or as they were."""

import errno
from pathlib import Path

import pytest

from fedapa.files import aside, write_bytes, write_text


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

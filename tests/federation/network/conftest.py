"""The data of the rooms that real processes serve."""

from pathlib import Path

import pytest

from tests.conftest import write_takes
from tests.federation.test_flower import THREE


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all rooms; it does not change."""
    path = tmp_path_factory.mktemp("data") / "rooms.h5"
    write_takes(path, THREE)
    return path

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data():
    """The real captures beside the checkout; none of them is part of the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("FEDAPA_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real captures at {folder}; set FEDAPA_SHARED_DATA to where they are")
    return folder

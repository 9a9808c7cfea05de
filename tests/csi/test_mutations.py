import pytest

from tests.csi.capture_bytes import SEEDS
from tests.fuzz import run


@pytest.mark.parametrize("form", sorted(SEEDS))
def test_mutated_files_give_a_capture_or_an_error(form, tmp_path):
    counts = run(f"captures:{form}", 1500, folder=tmp_path).counts
    assert counts["read"] > 100
    assert counts["refused"] > 100

import pytest

from tests.csi.capture_bytes import SEEDS
from tests.csi.mutations import run


@pytest.mark.parametrize("form", sorted(SEEDS))
def test_mutated_files_give_a_capture_or_an_error(form, tmp_path):
    counts = run(form, 1500, seed=0, folder=tmp_path).counts
    assert counts["capture"] > 100
    assert counts["error"] > 100

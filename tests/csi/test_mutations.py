import pytest

from tests.csi.capture_bytes import SEEDS
from tests.csi.mutations import run


@pytest.mark.parametrize("form", sorted(SEEDS))
def test_mutated_files_give_a_capture_or_an_error(form, tmp_path):
    outcomes = run(form, 1500, seed=0, folder=tmp_path)
    assert outcomes["capture"] > 100
    assert outcomes["error"] > 100

"""The first layer's loops in every width: 16 lanes (AVX-512), 8 (AVX2) and 4 (NEON, SSE).

A processor runs the narrower loops too. numba is told to compile for a lesser one, in a process of
its own, and every test of the fast path against the plain one is run there.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

TESTS = Path(__file__).with_name("test_fast.py")
WORK = """
import re
import sys
import pytest
from fedapa.models import kernels
assert kernels.LANES == int(sys.argv[1]), kernels.LANES
code = pytest.main(["-q", "-o", "addopts=", "-p", "no:cacheprovider", sys.argv[2]])
(assembly,) = kernels.active_sums.inspect_asm().values()
registers = set(re.findall(r"vfmadd\\d+ps\\s[^\\n]*%([xyz])mm", assembly))
assert registers == {{4: "x", 8: "y", 16: "z"}[kernels.LANES]}, registers
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("lanes", "processor", "features"),
    [
        (16, "skylake-avx512", ("avx512f", "avx512vl", "avx2", "avx", "fma")),
        (8, "haswell", ("avx2", "avx", "fma")),
        (4, "x86-64", ("avx", "fma")),
    ],
)
def test_every_width_is_the_plain_path(
    lanes: int, processor: str, features: tuple[str, ...], tmp_path: Path
) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("other processors have 4 lanes, which test_fast.py runs")
    host = binding.get_host_cpu_features()
    if not all(host.get(feature) for feature in features):
        pytest.skip(f"this processor cannot run {lanes} lanes")
    told = {
        "NUMBA_CPU_NAME": processor,
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in features),
        "NUMBA_CACHE_DIR": str(tmp_path),  # compiled here and now: cached code cannot be looked at
    }
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(lanes), str(TESTS)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **told},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout

"""What the machine can do at most, and how much memory a process has taken."""

import time
from pathlib import Path

import torch

__all__ = ["gemm_gflops", "peak_megabytes"]


def gemm_gflops(size: int = 2048, repeats: int = 7) -> float:
    """GFLOP/s of the best of some square float32 matrix products, on all threads."""
    one, other = torch.ones(size, size), torch.ones(size, size)
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        one @ other
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best / 1e9


def peak_megabytes(process: int | None = None) -> float | None:
    """The most memory a process (by default this one) has had; none where Linux is not."""
    path = Path("/proc") / (str(process) if process else "self") / "status"
    if not path.is_file():
        return None
    for line in path.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    return None

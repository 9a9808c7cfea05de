"""What the machine can do at most, and how much memory processes have taken."""

import time
from pathlib import Path

import torch

__all__ = ["family", "gemm_gflops", "megabytes", "peak_megabytes", "shared_megabytes"]


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


def family(process: int) -> list[int]:
    """A process and all that it and its children started."""
    found = [process]
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [each for child in path.read_text().split() for each in family(int(child))]
        except OSError:
            continue  # it has just ended
    return found


def megabytes(processes: list[int]) -> dict[str, float]:
    """Of all of them: pages counted in every process that has them (Rss), and once (Pss)."""
    total = {"Rss": 0.0, "Pss": 0.0}
    for process in processes:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            kind, _, rest = line.partition(":")
            if kind in total:
                total[kind] += int(rest.split()[0]) / 1024
    return total


def shared_megabytes(processes: list[int]) -> float:
    """Of all of them, shared pages once."""
    return megabytes(processes)["Pss"]

"""One of the programs that take turns: ``python -m benchmarks._program WHO WORK FOLDER``.

``ours``, ``eager`` (torch's allocator as it comes), ``eager_same_allocator`` (with the setting of
our workers), ``products`` and ``flower``. All use one thread per process.
"""

import sys
from pathlib import Path

import torch

from benchmarks import _eager, _ours, _products
from benchmarks._turns import turns_of
from benchmarks._work import WORKS
from fedapa.processes import keep_memory

WORKERS = 2
"""Processes that train, ours and Flower's; the bars are for two cores."""


def main(who: str, name: str, folder: Path) -> None:
    """Do a round whenever told, until nobody tells any more."""
    torch.set_num_threads(1)
    wait = turns_of()
    work = WORKS[name]
    if who == "ours":
        _ours.run_rounds(work, folder, workers=WORKERS, wait=wait)
        return
    if who == "flower":
        from benchmarks import _flower_app

        _flower_app.simulate(name, folder, workers=WORKERS, wait=wait)
        return
    if who in ("eager_same_allocator", "products"):
        keep_memory()
    loop = _products.product_rounds(work) if who == "products" else None
    loop = loop or _eager.fedapa_rounds(work, folder)
    while True:
        wait()
        next(loop)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

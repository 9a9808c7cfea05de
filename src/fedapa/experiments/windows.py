"""``fedapa reproduce windows``: what windows smaller than the paper's cost.

Expected shape: accuracy (and MAE) of Local with windows of all, a quarter and an eighth of the
packets of a full window, 1000 × 242 on the six simulated rooms, and the same with every fourth
subcarrier. Each shorter window is the start of a full one: as many windows, the same recordings,
the same splits, where no recording ends with part of a window (the page says so if one does).
Smaller ones see less motion and fewer paths; how much that matters is what is asked, because
``tables`` has windows of 500 × 56.
"""

from collections.abc import Sequence
from itertools import product

from fedapa.algorithms.local import Local
from fedapa.errors import PlanError
from fedapa.experiments.experiment import Case, Experiment, Nets
from fedapa.federation.plan import Plan
from fedapa.stores.simulated_rooms import preset_of
from fedapa.stores.store import Store

__all__ = ["WINDOWS"]

_FULL = "full"
_FEW = 8
"""Fewer subcarriers are not thinned out."""


def _rooms_of(plan: Plan) -> tuple[dict[str, str], int, int]:
    """The rooms to use, and packets and subcarriers of a full window in them."""
    if plan.data.file is not None:
        with Store(plan.data.file) as store:
            window = plan.data.window or store.window or 1000
            rooms = plan.data.rooms_of(store)
            fewest = min(one.shape[1] for room in rooms for one in store.recordings(room))
        return {"file": plan.data.file}, window, fewest
    # The quick rooms were recorded with a quarter of the subcarriers: they have no full windows.
    simulated = "six-rooms" if plan.data.simulated == "quick" else plan.data.simulated
    preset = preset_of(simulated)
    fewest = min(int(place.scene.radio.live.sum()) for place in preset.places)
    return {"simulated": simulated}, preset.window, fewest


def _cases(plan: Plan) -> Sequence[Case]:
    rooms, full, subcarriers = _rooms_of(plan)
    if full < 8:
        raise PlanError(f"windows of {full} packets have no eighth; give longer ones")
    cases = []
    for step, packets in product(
        (1, 4) if subcarriers >= _FEW else (1,), (full, full // 4, full // 8)
    ):
        kept = "all subcarriers" if step == 1 else f"every {step}th subcarrier"
        name = f"window-{packets}" + (f"-subcarriers-{step}" if step > 1 else "")
        title = f"{packets} packets" + (f", {kept}" if step > 1 else "")
        if (packets, step) == (full, 1):
            name, title = _FULL, f"{title} (full)"
        cut = {**rooms, "window": packets, "stride": full, "subcarrier_step": step}
        change = {"algorithm": Local.name, "data": cut, "model": {"architecture": "middle"}}
        cases.append(Case(name, change, title, kept, packets))
    return cases


WINDOWS = Experiment(
    "windows",
    "Windows: what smaller ones cost",
    _cases,
    (Nets("middle", "Local, MiddleConvNet4 in all rooms", "middle"),),
    parameter="packets per window",
    notes=("Each smaller window is part of a full one; a caption names the shape of full ones.",),
    fixed=True,
    reference=_FULL,
)

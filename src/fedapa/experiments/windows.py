"""``fedapa reproduce windows``: what windows smaller than the paper's cost.

Expected shape: accuracy (and MAE) of Local with windows of all, a quarter and an eighth of the
packets of a full window, 1000 × 242 on the six simulated rooms, and the same with every fourth
tone. Each shorter window is the start of a full one: as many windows, the same takes, the same
splits, where no take ends with part of a window (the page says so if one does). Smaller ones see
less motion and fewer paths; how much that matters is what is asked, because ``quick`` has windows
of 125 × 56.
"""

from collections.abc import Sequence

from fedapa.algorithms.local import Local
from fedapa.errors import PlanError
from fedapa.experiments.experiment import Case, Experiment, Nets
from fedapa.federation.plan import Plan
from fedapa.stores.simulated import preset_of
from fedapa.stores.store import Store

__all__ = ["WINDOWS"]


_FULL = "full"
_FEW_TONES = 8
"""Fewer are not thinned out."""


def _rooms_of(plan: Plan) -> tuple[dict[str, str], int, int]:
    """The rooms to use, and packets and tones of a full window in them."""
    if plan.data.file is not None:
        with Store(plan.data.file) as store:
            window = plan.data.window or store.window or 1000
            takes = [take for room in store.rooms for take in store.recordings(room)]
            tones = min(take.shape[1] for take in takes)
        return {"file": plan.data.file}, window, tones
    # The quick rooms were recorded for small windows: they have no full ones.
    simulated = "six-rooms" if plan.data.simulated == "quick" else plan.data.simulated
    preset = preset_of(simulated)
    tones = min(int(place.scene.radio.live.sum()) for place in preset.places)
    return {"simulated": simulated}, preset.window, tones


def _cases(plan: Plan) -> Sequence[Case]:
    rooms, full, tones = _rooms_of(plan)
    if full < 8:
        raise PlanError(f"windows of {full} packets have no eighth; give longer ones")
    return [
        Case(
            _FULL
            if (packets, step) == (full, 1)
            else f"window-{packets}" + (f"-tones-{step}" if step > 1 else ""),
            {
                "algorithm": Local.name,
                "data": {**rooms, "window": packets, "stride": full, "tone_step": step},
                "model": {"architecture": "middle"},
            },
            title=f"{packets} packets{thinned}"
            + (" (full)" if (packets, step) == (full, 1) else ""),
            group=thinned.strip(", ") or "all tones",
            value=packets,
        )
        for step, thinned in ((1, ""), (4, ", every 4th tone"))
        if step == 1 or tones >= _FEW_TONES
        for packets in (full, full // 4, full // 8)
    ]


WINDOWS = Experiment(
    "windows",
    "Windows: what smaller ones cost",
    _cases,
    (Nets("middle", "Local, MiddleConvNet4 in all rooms", "middle"),),
    parameter="packets a window",
    notes=("Each smaller window is part of a full one; a caption names the shape of full ones.",),
    fixed=True,
    reference=_FULL,
)

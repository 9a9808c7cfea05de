"""``fedapa reproduce windows``: what windows shorter than the paper's cost.

Expected shape: accuracy (and MAE) of Local with windows of all, a quarter and an eighth of the
packets of a full window, 1000 × 242 on the six simulated rooms. Each shorter window is the start
of a full one: as many windows, the same takes, the same splits, where no take ends with part of a
window (the page says so if one does). Shorter ones see less motion; how much that matters is what
is asked, because ``quick`` has windows of 125 packets.
"""

from collections.abc import Sequence

from fedapa.errors import PlanError
from fedapa.experiments.experiment import Case, Experiment, Nets
from fedapa.federation.plan import Plan
from fedapa.rooms.simulated import preset_of
from fedapa.windows.store import Store

__all__ = ["WINDOWS"]


def _rooms_of(plan: Plan) -> tuple[dict[str, str], int]:
    """The rooms to use, and packets of a full window in them."""
    if plan.data.file is not None:
        with Store(plan.data.file) as store:
            window = plan.data.window or store.window or 1000
        return {"file": plan.data.file}, window
    # The quick rooms were recorded for small windows: they have no full ones.
    simulated = "six-rooms" if plan.data.simulated == "quick" else plan.data.simulated
    return {"simulated": simulated}, preset_of(simulated).window


def _cases(plan: Plan) -> Sequence[Case]:
    rooms, full = _rooms_of(plan)
    if full < 8:
        raise PlanError(f"windows of {full} packets have no eighth; give longer ones")
    return [
        Case(
            f"window-{packets}",
            {
                "algorithm": "local",
                "data": {**rooms, "window": packets, "stride": full},
                "model": {"architecture": "middle"},
            },
            title=f"{packets} packets" + (" (full)" if packets == full else ""),
            group="sweep",
            value=packets,
        )
        for packets in (full, full // 4, full // 8)
    ]


WINDOWS = Experiment(
    "windows",
    "Windows: what shorter ones cost",
    _cases,
    (Nets("middle", "Local, MiddleConvNet4 in all rooms", "middle"),),
    parameter="packets a window",
    notes=(
        "Each shorter window is the start of a full one; a caption names the shape of full ones.",
    ),
    fixed=True,
)

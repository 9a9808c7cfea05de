"""The physics of the presets is frozen: constants that no hash covers cannot move unseen."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from fedapa.simulator.room import MATERIALS
from fedapa.stores.simulated import Task
from fedapa.stores.simulated_rooms import preset_of
from fedapa.windows.clean import clean

FROZEN: dict[tuple[str, str], tuple[float, ...]] = {
    ("smoke", "living room"): (462.0, 730.8, 652.1, 475.6, 761.9, 659.1, 666.6, 926.2, 725.8),
    ("smoke", "classroom"): (960.0, 1330.9, 454.5, 937.5, 1329.3, 485.1, 924.4, 1253.5, 362.2),
    ("smoke", "bus"): (675.1, 703.0, 608.1, 698.4, 691.5, 640.4, 685.4, 756.1, 675.1),
    ("smoke", "conference room"): (
        540.1,
        1571.5,
        826.4,
        404.8,
        1136.1,
        586.7,
        570.0,
        1676.8,
        819.5,
    ),
    ("smoke", "hotel room"): (30.0, 21.9, 21.0, 27.3, 20.5, 19.3, 27.8, 19.2, 19.8),
    ("smoke", "open office"): (450.0, 942.6, 784.7, 468.1, 975.0, 813.5, 485.1, 941.0, 820.6),
    ("six-rooms", "living room"): (327.5, 750.5, 698.6, 304.1, 645.6, 711.2, 254.0, 671.7, 628.2),
    ("six-rooms", "classroom"): (
        1035.0,
        1264.1,
        512.4,
        1063.8,
        1282.7,
        451.9,
        987.5,
        1274.6,
        511.1,
    ),
    ("six-rooms", "bus"): (600.1, 706.5, 427.2, 796.8, 987.8, 569.0, 833.5, 977.6, 573.6),
    ("six-rooms", "conference room"): (
        601.8,
        1713.0,
        716.5,
        456.3,
        1403.3,
        629.6,
        429.5,
        1494.1,
        684.6,
    ),
    ("six-rooms", "hotel room"): (27.3, 24.0, 19.2, 33.0, 32.0, 13.0, 36.1, 28.4, 11.4),
    ("six-rooms", "open office"): (
        439.5,
        1318.2,
        564.6,
        445.6,
        1299.1,
        663.5,
        400.1,
        1208.9,
        608.4,
    ),
}
"""Amplitudes of packets 0, 31 and 63 at the first, a middle and the last subcarrier; seed 0, day 0,
recording 0 of the greatest count, in steps of the receiver. Valid for ``_VERSION`` 3."""

STEPS = 1.5
"""Steps of the receiver by which another machine's last digits may move an amplitude."""


def samples(preset: str, room: str) -> npt.NDArray[np.float32]:
    place = next(each for each in preset_of(preset).places if each.scene.room.name == room)
    task = Task(replace(place, windows=1), max(place.counts), 0, 0, 64, 0)
    amplitude = clean(task.capture()).amplitude[..., 0]  # (packets, subcarriers)
    return amplitude[np.ix_([0, 31, 63], [0, amplitude.shape[1] // 3, -1])].ravel()


@pytest.mark.parametrize(("preset", "room"), FROZEN)
def test_the_numbers_of_a_preset_do_not_move(preset: str, room: str) -> None:
    assert samples(preset, room) == pytest.approx(np.array(FROZEN[preset, room]), abs=STEPS), (
        "the same parameters give other numbers: raise _VERSION in stores/simulated_rooms.py, "
        "renew the hashes in docs/simulator.md and these amplitudes, and flag it in the changelog"
    )


def test_a_material_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classroom's glass front, of 2 % more permittivity."""
    a, b, c, d = MATERIALS["glass"]
    monkeypatch.setitem(MATERIALS, "glass", (1.02 * a, b, c, d))
    moved = np.abs(samples("smoke", "classroom") - FROZEN["smoke", "classroom"])
    assert moved.max() > STEPS


@pytest.mark.parametrize(
    ("constant", "value"),
    [("channel._FAR_FIELD", np.float32(2.0)), ("people._MARGIN", 0.6)],
)
def test_a_constant_that_changes_is_seen(
    constant: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"fedapa.simulator.{constant}", value)
    moved = np.abs(samples("six-rooms", "bus") - FROZEN["six-rooms", "bus"])
    assert moved.max() > STEPS

"""How many windows of which label each room of a store holds, or will hold once it is made."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedapa.errors import DataError
from fedapa.stores.simulated import tasks_of
from fedapa.stores.simulated_rooms import Preset
from fedapa.stores.store import Store
from fedapa.windows.labels import Label, sorted_labels
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import window_starts

__all__ = ["Distribution", "distribution", "planned"]


@dataclass(frozen=True)
class Distribution:
    """Windows by room and label."""

    source: str
    """What the data is called: a file or a preset."""
    window: int | None
    """Packets of a window; none where features were cut by whoever published them."""
    synthetic: bool
    windows: dict[str, dict[Label, int]]
    """For each room the windows of each label that occurs, sorted."""
    unlabelled: dict[str, int] = field(default_factory=dict)
    """The windows without a label, for each room that has some."""

    @property
    def labels(self) -> tuple[Label, ...]:
        """All labels that occur anywhere."""
        return sorted_labels(label for counts in self.windows.values() for label in counts)


def distribution(
    path: Path,
    *,
    window: int | None = None,
    stride: int | None = None,
    rooms: Sequence[str] | None = None,
) -> Distribution:
    """Count the windows that fit into each recording of a store; no packet is read.

    Continuous recordings do not count: nothing is learned from them.

    Args:
        path: the store.
        window: packets of a window; the store's own recommendation if left out.
        stride: packets from one window to the next; a window's length if left out.
        rooms: those to count in; all if left out.
    """
    with Store(path) as store:
        recordings = {room: store.recordings(room) for room in rooms or store.rooms}
        features = all(one.is_features for held in recordings.values() for one in held)
        length = None if features else window or store.window
        if length is None and not features:
            raise DataError(f"{path}: does not say how long its windows are; give a window length")
        cut = Recipe(window=length or 1, stride=stride)
        windows: dict[str, dict[Label, int]] = {}
        unlabelled: dict[str, int] = {}
        for room, held in recordings.items():
            counts: Counter[Label | None] = Counter()
            for one in held:
                if one.part == "continuous":
                    continue
                rows = one.shape[0]
                counts[one.label] += rows if one.is_features else len(window_starts(rows, cut))
            windows[room] = {label: counts[label] for label in sorted_labels(counts)}
            if counts[None]:
                unlabelled[room] = counts[None]
        return Distribution(path.name, length, store.synthetic, windows, unlabelled)


def planned(preset: Preset) -> Distribution:
    """What the simulated rooms of a preset hold, or will hold once they are made."""
    planned_windows: dict[str, Counter[Label]] = {}
    for task in tasks_of(preset, seed=0, workers=1):
        counts = planned_windows.setdefault(task.place.scene.room.name, Counter())
        if not task.part:  # what is for counting over time is neither learned nor tested
            counts[task.count] += task.packets // preset.window
    windows = {
        room: {label: counts[label] for label in sorted_labels(counts)}
        for room, counts in sorted(planned_windows.items())
    }
    return Distribution(f"simulated rooms '{preset.name}'", preset.window, True, windows)

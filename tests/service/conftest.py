"""A room that was trained once for all tests of the service, and where pictures of pages go."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fedapa import Plan, run
from fedapa.stores.simulated import write_simulated
from fedapa.stores.simulated_captures import write_simulated_captures
from fedapa.stores.simulated_rooms import preset_of


@dataclass(frozen=True)
class Served:
    """A store, captures of the same recordings, and a run on the store."""

    store: Path
    captures: list[Path]
    run: Path
    model: Path
    room: str


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Two recordings of each count in a small simulated room; windows of 1 s, as statistics."""
    folder = tmp_path_factory.mktemp("served")
    smoke = preset_of("smoke")
    place = replace(smoke.places[0], counts=(0, 1), days=1, recordings=2, windows=6)
    preset = replace(smoke, places=(place,))
    write_simulated(preset, seed=0, out=folder / "rooms.h5")
    write_simulated_captures(preset, seed=0, folder=folder / "captures")
    data = {"file": str(folder / "rooms.h5"), "seconds": 1, "split": "recording"}
    plan = Plan(rounds=1, algorithm="local", data={**data, "view": "statistics"})
    run(plan, out=folder / "run", workers=0)
    return Served(
        store=folder / "rooms.h5",
        captures=sorted((folder / "captures").rglob("*.pcap")),
        run=folder / "run",
        model=next((folder / "run" / "models").iterdir()),
        room=place.scene.room.name,
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go; FEDAPA_SCREENSHOTS names a folder that stays."""
    kept = os.environ.get("FEDAPA_SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder

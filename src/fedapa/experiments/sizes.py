"""The sizes that bytes, parameters and FLOPs depend on: the paper's, or those of rooms at hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedapa.errors import PlanError
from fedapa.experiments.conduct import holds_features
from fedapa.experiments.experiment import STATISTICAL, Base
from fedapa.federation.participant import introduce
from fedapa.federation.plan import DataPlan, Plan
from fedapa.federation.prepare import describe, prepare_rooms
from fedapa.models.build import build_model
from fedapa.models.model import Model
from fedapa.processes import Show
from fedapa.randomness import Key
from fedapa.report.captions import source_text
from fedapa.stores.distribution import planned
from fedapa.stores.simulated_rooms import preset_of
from fedapa.windows.labels import choose_rooms

__all__ = ["PAPER", "Sizes", "check_changes", "sizes_of"]


@dataclass(frozen=True)
class Sizes:
    """Of rooms that share a class list and a width."""

    rooms: int
    """N."""
    classes: int
    """|C|, of prototypes."""
    width: int
    """D."""
    outputs: int
    """Of a net."""
    window: tuple[int, ...] = (1000, 242)
    """Its shape; a feature vector has one axis."""
    named: str = ""
    """Whose sizes these are; the paper's have no name."""

    @property
    def nets(self) -> tuple[str, ...]:
        """The nets for such windows, the largest last: feature vectors have one of their own."""
        return ("mlp",) if len(self.window) == 1 else ("tiny", "middle", "large")

    def build(self, net: str) -> Model:
        """One of those nets."""
        return build_model(
            net, classes=self.outputs, width=self.width, window_shape=self.window, key=Key(0)
        )


PAPER = Sizes(rooms=6, classes=21, width=256, outputs=20)
"""As the paper has them: 21 classes of prototypes, but nets with 20 outputs."""


_SHAPES = ("simulated", "window", "decimate", "subcarrier_step", "links", "partition")
"""Keys of ``data`` that decide how windows look and in how many rooms they are."""


def check_changes(base: Base, name: str, keys: Sequence[str]) -> None:
    """Refuse changes that what is called ``name``, e.g. "table3", does not depend on.

    They would do nothing. A section among ``keys`` stands for all of its keys.
    """
    for change in base.changes:
        for section, values in change.items():
            inner = list(values) if isinstance(values, Mapping) else []
            for key in [f"{section}.{below}" for below in inner] or [section]:
                if key not in keys and section not in keys:
                    raise PlanError(
                        f"--set {key}: changes nothing in {name}, which depends on "
                        f"{', '.join(keys)}; leave it out"
                    )


def sizes_of(base: Base, show: Show) -> Sizes | None:
    """Those of the rooms that were asked for; none where they are the paper's own."""
    plan, paper = base.plan, Base(preset="paper")
    if (base.preset, base.file) == (paper.preset, None) and _deciding(plan) == _deciding(
        paper.plan
    ):
        return None
    # Simulated rooms have one link: which ones are used decides nothing there.
    as_made = all(
        getattr(plan.data, key) == DataPlan.model_fields[key].default
        for key in _SHAPES
        if key not in ("simulated", "links")
    )
    if plan.data.file is None and plan.classes is None and as_made:
        rooms, classes, window, named = _planned(plan)
    else:
        rooms, classes, window, named = _measured(plan, show)
    return Sizes(rooms, classes, plan.model.width, classes, window, named)


def _deciding(plan: Plan) -> list[Any]:
    """What sizes depend on."""
    data = (getattr(plan.data, key) for key in ("only", "without", *_SHAPES))
    return [plan.model.width, plan.classes, *data]


def _planned(plan: Plan) -> tuple[int, int, tuple[int, ...], str]:
    """Rooms, classes, window and source of simulated rooms, from their description.

    The largest need not be made for this.
    """
    preset = preset_of(plan.data.simulated)
    counted = planned(preset)
    rooms = choose_rooms(
        counted.windows, only=plan.data.only, without=plan.data.without, place=counted.source
    )
    labels = {label for room in rooms for label in counted.windows[room]}
    radios = [place.scene.radio for place in preset.places if place.scene.room.name in rooms]
    window = (preset.window, int(radios[0].live.sum()))
    return len(rooms), len(labels), window, source_text(counted.source, synthetic=True)


def _measured(plan: Plan, show: Show) -> tuple[int, int, tuple[int, ...], str]:
    """The same of rooms that are made, or read from a store."""
    net = "mlp" if holds_features(plan.data) else STATISTICAL.architecture
    # No size depends on the split, and this one can always be made where windows do not overlap.
    # The nets are the paper's, and so is what they see.
    view = "amplitude" if plan.data.view == "auto" else plan.data.view
    data = {"split": "random", "overlap": 0.0, "view": view}
    change = {"model": {"architecture": net}, "data": data}
    plan = Plan.of(plan.document(), change)
    rooms = prepare_rooms(plan, show, workers=None)
    told = describe([introduce(room) for room in rooms], plan)
    named = source_text(told["source"], synthetic=told["synthetic"])
    return len(rooms), len(told["classes"]), tuple(told["window_shape"]), named

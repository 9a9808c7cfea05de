"""The sizes that bytes, parameters and FLOPs depend on: the paper's, or those of rooms at hand."""

from dataclasses import dataclass

from fedapa.experiments.conduct import holds_features
from fedapa.experiments.experiment import STATISTICAL, Base
from fedapa.federation.participant import introduce
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import describe, prepare_rooms
from fedapa.models.build import build_model
from fedapa.models.model import Model
from fedapa.processes import Show
from fedapa.randomness import Key
from fedapa.report.captions import source_text

__all__ = ["PAPER", "Sizes", "sizes_of"]


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


def sizes_of(base: Base, show: Show) -> Sizes | None:
    """Those of the rooms that were asked for; none where they are the paper's own."""
    if base.preset == "paper" and base.file is None:
        return None
    net = "mlp" if holds_features(base.plan.data) else STATISTICAL.architecture
    # No size depends on the split, and this one can always be made.
    change = {"model": {"architecture": net}, "data": {"split": "random"}}
    plan = Plan.of(base.plan.document(), change)
    rooms = prepare_rooms(plan, show, workers=None)
    data = describe([introduce(room) for room in rooms], plan)
    return Sizes(
        rooms=len(rooms),
        classes=len(data["classes"]),
        width=plan.model.width,
        outputs=len(data["classes"]),
        window=tuple(data["window_shape"]),
        named=source_text(data["source"], synthetic=data["synthetic"]),
    )

"""``fedapa reproduce architectures``: the paper's architecture table, counted from the modules.

Expected: 7,956 / 18,436 / 463,748 parameters and 340.75 / 162.85 / 606.35 MFLOPs at 20 classes and
windows of 1000 × 242. It needs no data; with ``--preset`` or ``--data`` a second table counts the
nets for those rooms.
"""

from collections.abc import Sequence

from fedapa.models.build import build_model
from fedapa.models.cost import count_parameters, flops, layers
from fedapa.randomness import Key
from fedapa.report.tables.table import Table

__all__ = ["architectures", "layer_table"]

_TITLES = {
    "tiny": "TinyConvNet4",
    "middle": "MiddleConvNet4",
    "large": "LargeConvNet4",
    "mlp": "FeatureMLP",
}


def _nets(window: Sequence[int]) -> tuple[str, ...]:
    """The nets for windows of that shape: feature vectors have one of their own."""
    return ("mlp",) if len(window) == 1 else ("tiny", "middle", "large")


def architectures(
    *, classes: int = 20, width: int = 256, window: Sequence[int] = (1000, 242)
) -> dict[str, dict[str, float]]:
    """Parameters and MFLOPs of each net."""
    found: dict[str, dict[str, float]] = {}
    for net in _nets(window):
        model = build_model(net, classes=classes, width=width, window_shape=window, key=Key(0))
        found[net] = {
            "parameters": count_parameters(model),
            "mflops": flops(model, window) / 1e6,
        }
    return found


def layer_table(
    *,
    classes: int = 20,
    width: int = 256,
    window: Sequence[int] = (1000, 242),
    rooms_named: str = "",
) -> Table:
    """The nets layer by layer: channels and shapes as the paper's table has them, and totals."""
    nets = _nets(window)
    columns = {
        net: {
            layer.name: layer
            for layer in layers(
                build_model(net, classes=classes, width=width, window_shape=window, key=Key(0)),
                window,
            )
            if layer.parameters or layer.kind == "AdaptiveAvgPool2d"
        }
        for net in nets
    }
    longest = columns[nets[-1]]
    rows = [
        [name, layer.kind, *(_cell(columns[net].get(name)) for net in nets)]
        for name, layer in longest.items()
    ]
    totals = architectures(classes=classes, width=width, window=window)
    rows.append(["parameters", "", *(f"{totals[net]['parameters']:,}" for net in nets)])
    rows.append(["MFLOPs per window", "", *(f"{totals[net]['mflops']:.2f}" for net in nets)])
    shape = " × ".join(map(str, window))
    return Table(
        title="Architectures" + (f", for {rooms_named}" if rooms_named else ""),
        headings=["Layer", "Kind", *(_TITLES[net] for net in nets)],
        rows=rows,
        note=f"{classes} classes, width {width}, windows of {shape}; counted "
        "from the modules: 2 FLOPs a multiply-add, 2 a BatchNorm, 1 a ReLU or pooled element",
        text_columns=2,
    )


def _cell(layer: object) -> str:
    shape: Sequence[int] = getattr(layer, "output", ())
    return " × ".join(map(str, shape)) if shape else "–"

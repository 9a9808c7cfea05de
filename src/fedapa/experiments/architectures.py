"""``fedapa reproduce architectures``: the paper's architecture table, counted from the modules.

Expected: 7,956 / 18,436 / 463,748 parameters and 340.75 / 162.85 / 606.35 MFLOPs at 20 classes and
windows of 1000 × 242. It needs no data.
"""

from collections.abc import Sequence

from fedapa.models.build import build_model
from fedapa.models.cost import count_parameters, flops, layers
from fedapa.randomness import Key
from fedapa.report.tables import Sheet

__all__ = ["architectures", "layer_sheet"]

_NETS = ("tiny", "middle", "large")


def architectures(
    *, classes: int = 20, width: int = 256, window: tuple[int, int] = (1000, 242)
) -> dict[str, dict[str, float]]:
    """Parameters and MFLOPs of each net."""
    found: dict[str, dict[str, float]] = {}
    for net in _NETS:
        model = build_model(net, classes=classes, width=width, window_shape=window, key=Key(0))
        found[net] = {
            "parameters": count_parameters(model),
            "mflops": flops(model, window) / 1e6,
        }
    return found


def layer_sheet(
    *, classes: int = 20, width: int = 256, window: tuple[int, int] = (1000, 242)
) -> Sheet:
    """The nets layer by layer: channels and shapes as the paper's table has them, and totals."""
    columns = {
        net: {
            layer.name: layer
            for layer in layers(
                build_model(net, classes=classes, width=width, window_shape=window, key=Key(0)),
                window,
            )
            if layer.parameters or layer.kind == "AdaptiveAvgPool2d"
        }
        for net in _NETS
    }
    names = list(columns["large"])
    rows = [
        [name, columns["large"][name].kind, *(_cell(columns[net].get(name)) for net in _NETS)]
        for name in names
    ]
    totals = architectures(classes=classes, width=width, window=window)
    rows.append(["parameters", "", *(f"{totals[net]['parameters']:,}" for net in _NETS)])
    rows.append(["MFLOPs per window", "", *(f"{totals[net]['mflops']:.2f}" for net in _NETS)])
    return Sheet(
        title="Architectures",
        headings=["Layer", "Kind", *(f"{net.title()}ConvNet4" for net in _NETS)],
        rows=rows,
        note=f"{classes} classes, width {width}, windows of {window[0]} × {window[1]}; counted "
        "from the modules: 2 FLOPs a multiply-add, 2 a BatchNorm, 1 a ReLU or pooled element",
        text_columns=2,
    )


def _cell(layer: object) -> str:
    shape: Sequence[int] = getattr(layer, "output", ())
    return " × ".join(map(str, shape)) if shape else "–"

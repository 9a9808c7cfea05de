"""``fedapa reproduce architectures``: the paper's architecture table, counted from the modules.

Expected: 7,956 / 18,436 / 463,748 parameters and 340.75 / 162.85 / 606.35 MFLOPs at 20 classes and
windows of 1000 × 242. It needs no data; with ``--preset`` or ``--data`` a second table counts the
nets for those rooms.
"""

from fedapa.experiments.sizes import Sizes
from fedapa.models.cost import count_parameters, flops, layers
from fedapa.report.captions import shape_text
from fedapa.report.tables.table import Table

__all__ = ["architectures", "layer_table"]


def architectures(sizes: Sizes) -> dict[str, dict[str, float]]:
    """Parameters and MFLOPs of each net."""
    return {
        net: {"parameters": count_parameters(model), "mflops": flops(model, sizes.window) / 1e6}
        for net in sizes.nets
        for model in [sizes.build(net)]
    }


def layer_table(sizes: Sizes) -> tuple[Table, dict[str, dict[str, float]]]:
    """The nets layer by layer: channels and shapes as the paper's table has them; the totals."""
    models = [sizes.build(net) for net in sizes.nets]
    columns = [
        {
            layer.name: layer
            for layer in layers(model, sizes.window)
            if layer.parameters or layer.kind == "AdaptiveAvgPool2d"
        }
        for model in models
    ]
    rows = [
        [name, layer.kind]
        + [shape_text(column[name].output) if name in column else "–" for column in columns]
        for name, layer in columns[-1].items()
    ]
    totals = architectures(sizes)
    rows.append(["parameters", "", *(f"{total['parameters']:,}" for total in totals.values())])
    rows.append(["MFLOPs per window", "", *(f"{total['mflops']:.2f}" for total in totals.values())])
    table = Table(
        title="Architectures" + (f", for {sizes.named}" if sizes.named else ""),
        headings=["Layer", "Kind", *(type(model).__name__ for model in models)],
        rows=rows,
        note=f"{sizes.outputs} classes, width {sizes.width}, windows of "
        f"{shape_text(sizes.window)}; counted from the modules: 2 FLOPs a multiply-add, 2 a "
        "BatchNorm, 1 a ReLU or pooled element",
        text_columns=2,
    )
    return table, totals

"""``fedapa export``: a room's model as a file for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedapa.cli.options import Json
from fedapa.cli.output import print_json, print_out

__all__ = ["export"]


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, or a model file.")],
    room: Annotated[str | None, typer.Option(help="Which room's model, of a run.")] = None,
    form: Annotated[
        Literal["onnx"], typer.Option("--format", help="onnx: normaliser, net and temperature.")
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file to make, .onnx; default: ROOM.onnx.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="A run on the same data for the card, e.g. the forest's; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a room's model for other programs, and a card that says what it is.

    Example: fedapa export runs/fedapa --room kitchen --format onnx
    """
    from fedapa.rooms.model_file import find_model
    from fedapa.service.export import export_onnx

    file = out or Path(f"{find_model(run, room).stem}.{form}")
    made = export_onnx(run, file, room=room, beside=beside or ())
    if as_json:
        print_json({"file": str(made.file), "page": str(made.page), "card": made.card})
        return
    print_out(f"Model: {made.file} ({made.card['data']} data)")
    print_out(f"Card: {made.page}")

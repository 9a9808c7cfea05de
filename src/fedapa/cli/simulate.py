"""``fedapa simulate``: a store of simulated rooms, or captures of them."""

from pathlib import Path
from typing import Annotated

import typer

from fedapa.cli.output import print_out
from fedapa.cli.progress import shown_progress
from fedapa.errors import PlanError
from fedapa.toml import read_toml

__all__ = ["simulate"]


def simulate(
    out: Annotated[Path | None, typer.Option(help="The store to make; it must not exist.")] = None,
    pcap: Annotated[
        Path | None,
        typer.Option(help="Folder for the recordings as Nexmon captures, to be imported."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="smoke (a second), quick (203 MB, a minute), activities (54 MB; all sit or all "
            "walk), long (66 MB; one recording of every count) or six-rooms (1.4 GB, minutes)."
        ),
    ] = "quick",
    visits: Annotated[
        float | None,
        typer.Option(
            help="Seconds of one recording of each room in which people come and go; with --pcap. "
            "A CSV file beside each capture says how many there are from when on."
        ),
    ] = None,
    rooms: Annotated[
        Path | None, typer.Option(help="A TOML file that changes or adds rooms; docs/simulator.md.")
    ] = None,
    many: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="So many rooms, each a variation of one of the preset's in turn: other size, "
            "walls, furniture, antennas and people; docs/simulator.md. Best with --preset smoke.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the numbers do not change.")] = 1,
) -> None:
    """Make a store of SIMULATED rooms: recordings of 0 to 20 people on several days.

    Example: fedapa simulate --preset six-rooms --seed 0 --workers 2 --out rooms.h5

    Example: fedapa simulate --preset smoke --many 100 --workers 2 --out hundred.h5
    """
    from fedapa.csi.capture import data_kind
    from fedapa.stores.many_rooms import many_rooms
    from fedapa.stores.simulated import write_simulated
    from fedapa.stores.simulated_captures import (
        patterns_of,
        write_simulated_captures,
        write_simulated_visits,
    )
    from fedapa.stores.simulated_rooms import changed_preset, preset_hash, preset_of

    chosen = preset_of(preset)
    if rooms is not None:
        chosen = changed_preset(chosen, read_toml(rooms))
    if many is not None:
        chosen = many_rooms(chosen, many, seed=seed)
    if out is None and pcap is None:
        raise PlanError("say where to: --out FILE for a store, --pcap FOLDER for captures")
    if visits is not None and (out is not None or pcap is None):
        raise PlanError("--visits writes captures only; say --pcap FOLDER, and leave --out out")
    about = f"{data_kind(True)} rooms, preset {chosen.name} ({preset_hash(chosen)})"
    if out is not None:
        with shown_progress() as show:
            write_simulated(chosen, seed=seed, out=out, workers=workers, show=show)
        print_out(f"{out}: {about}, {out.stat().st_size / 1e6:.1f} MB")
    if pcap is not None and visits is not None:
        with shown_progress() as show:
            write_simulated_visits(
                chosen, seconds=visits, seed=seed, folder=pcap, workers=workers, show=show
            )
        print_out(f"{pcap}: {about}, {visits:g} s of visits to each; people over time in *.csv")
    elif pcap is not None:
        with shown_progress() as show:
            write_simulated_captures(chosen, seed=seed, folder=pcap, workers=workers, show=show)
        patterns = ", and with ".join(f"'{pattern}'" for pattern in patterns_of(chosen))
        print_out(f"{pcap}: {about}; import them with --pattern {patterns}")

"""One picture of several committed studies: FedAPA against its two controls, horizon by horizon.

    python -m fedapa.report.overview OUT.png "Equal nets=simulated/table1:statistical" ...

Each argument after the picture is NAME=STUDY:SETTING, where STUDY/results.json lies beside the
picture.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from fedapa.errors import FedapaError, PlanError, nearest
from fedapa.evaluation.results import Results, Setting
from fedapa.report.charts import overview
from fedapa.report.pictures import save

__all__ = ["drawn"]

_AGAINST = ("local", "fedapa-self")


def drawn(folder: Path, named: list[str]) -> Figure:
    """The picture of the studies under ``folder``."""
    return overview(dict(_study(folder, each) for each in named), _AGAINST)


def _study(folder: Path, text: str) -> tuple[str, Setting]:
    name, _, where = text.partition("=")
    study, _, wanted = where.partition(":")
    if not (name and study and wanted):
        raise PlanError(f"'{text}': write NAME=STUDY:SETTING")
    settings = {each.name: each for each in Results.load(folder / study / "results.json").settings}
    if wanted not in settings:
        raise PlanError(f"{study}: '{wanted}' is unknown; {nearest(wanted, list(settings))}")
    return name, settings[wanted]


if __name__ == "__main__":
    try:
        picture = Path(sys.argv[1])
        save(drawn(picture.parent, sys.argv[2:]), picture, dpi=150)
    except (IndexError, FedapaError) as problem:
        sys.exit(f"{problem}\n{__doc__}")

"""One picture of several committed studies: FedAPA against its two controls, horizon by horizon.

    python -m fedapa.report.overview OUT.png "Equal nets=simulated/table1:statistical" ...

Each argument after the picture is NAME=STUDY:SETTING, where STUDY/results.json lies beside the
picture. ``make results`` does it for docs/results.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedapa.errors import FedapaError, PlanError, nearest
from fedapa.evaluation.results import REFERENCE, Results, Setting
from fedapa.report.charts import overview
from fedapa.report.pictures import save

__all__ = ["drawn"]

_AGAINST = ("local", "fedapa-self")


def drawn(folder: Path, named: Sequence[str]) -> Figure:
    """The picture of studies under ``folder``, each called NAME=STUDY:SETTING."""
    studies: dict[str, Setting] = {}
    for text in named:
        name, _, where = text.partition("=")
        study, _, setting = where.partition(":")
        if not (name and study and setting):
            raise PlanError(f"'{text}': write NAME=STUDY:SETTING")
        if name in studies:
            raise PlanError(f"'{name}': names two studies; call one of them otherwise")
        studies[name] = _setting(folder / study / "results.json", setting)
    if not studies:
        raise PlanError("no study is named; write NAME=STUDY:SETTING for each")
    return overview(studies, _AGAINST)


def _setting(path: Path, name: str) -> Setting:
    if not path.is_file():
        raise PlanError(f"{path}: is not there; STUDY is a folder beside the picture")
    settings = {each.name: each for each in Results.load(path).settings}
    if name not in settings:
        raise PlanError(f"{path}: setting '{name}' is unknown; {nearest(name, list(settings))}")
    for row in (REFERENCE, *_AGAINST):
        if settings[name].row(row) is None:
            raise PlanError(f"{path}: has no row '{row}' for the picture; name a study that has it")
    return settings[name]


if __name__ == "__main__":
    picture = Path(next(iter(sys.argv[1:]), "overview.png"))
    try:
        save(drawn(picture.parent, sys.argv[2:]), picture, dpi=150)
    except FedapaError as problem:
        sys.stderr.write(f"{problem}\n\n{__doc__}")
        sys.exit(2)

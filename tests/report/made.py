"""Results made by hand: figures that a test can derive, and names that trouble every format."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedapa import Plan, run
from fedapa.evaluation.results import Outcome, Results, Row, Setting
from fedapa.federation.run import Run
from tests.conftest import MakeStore

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROOMS = ("50 % café", "hall_2 & <lab>")
ENVIRONMENT = {
    "commit": COMMIT,
    "python": "3.12.0",
    "platform": "Linux",
    "processor": "a processor",
    "cores": 2,
    "workers": 2,
    "packages": {"fedapa": "0.1.0", "torch": "2.13.0"},
    "command": "fedapa reproduce table1 --preset smoke",
}


def metrics(accuracy: float, *, people: bool) -> dict[str, float]:
    """All of them from one number.

    F1 is five points below, the MAE of the most probable class its rest, within one its middle; the
    median's MAE is a tenth of a person less.
    """
    found = {"accuracy": accuracy, "macro_f1": accuracy - 0.05}
    if not people:
        return found
    error = 1 - accuracy
    return {**found, "mae": error, "within_one": (1 + accuracy) / 2, "mae_median": error - 0.1}


def with_time(setting: Setting) -> Setting:
    """The same with a MAE after one window, the median's, and after 30 s, half of it."""

    def added(outcome: Outcome) -> Outcome:
        at = {
            horizon: {
                part: {**figures[part], **_over_time(figures[part]["mae_median"])}
                for part in ("mean", "std")
            }
            | {"rooms": figures["rooms"]}
            for horizon, figures in outcome.at.items()
        }
        return replace(outcome, at=at)

    rows = [replace(row, outcomes=[added(one) for one in row.outcomes]) for row in setting.rows]
    return replace(setting, rows=rows)


def _over_time(error: float) -> dict[str, float]:
    return {"mae_one_window": error, "mae_30s": error / 2}


def outcome(
    seed: int,
    levels: Mapping[int, float],
    *,
    people: bool = True,
    rooms: Sequence[str] = ROOMS,
    step: int = 4000,
    scored: Sequence[int] | None = None,
) -> Outcome:
    """A run whose figure is constant up to each horizon; odd rooms are 10 points better."""
    curve: list[float] = []
    for horizon, level in sorted(levels.items()):
        curve += [level] * (horizon - len(curve))
    at: dict[str, Any] = {}
    for horizon, level in levels.items():
        each = {
            room: metrics(level + (0.05 if number % 2 else -0.05), people=people)
            for number, room in enumerate(rooms)
        }
        mean = metrics(level, people=people)
        at[str(horizon)] = {"mean": mean, "std": dict.fromkeys(mean, 0.05), "rooms": each}
    return Outcome(
        seed=seed,
        run=f"runs/{seed}",
        commit=COMMIT,
        curve={"accuracy": curve},
        bytes=[step * (number + 1) for number in range(len(curve))],
        at=at,
        scored=scored,
    )


def row(
    name: str,
    group: str,
    levels: Mapping[int, float],
    *,
    title: str = "",
    seeds: Sequence[int] = (0, 1, 2),
    apart: float = 0.02,
    value: float | str | None = None,
    moves: bool = True,
    **more: Any,
) -> Row:
    """A row whose seeds lie ``apart``: mean the given levels, deviation ``apart``, for three."""
    middle = (len(seeds) - 1) / 2
    return Row(
        name=name,
        title=title or name,
        group=group,
        outcomes=[
            outcome(
                seed,
                {at: level + apart * (number - middle) for at, level in levels.items()},
                **more,
            )
            for number, seed in enumerate(seeds)
        ],
        value=value,
        moves=moves,
    )


def data(
    *, people: bool = True, rooms: Sequence[str] = ROOMS, synthetic: bool = True
) -> dict[str, Any]:
    return {
        "source": "simulated rooms 'made'" if synthetic else "/some/where/real.h5",
        "synthetic": synthetic,
        "split": "recording",
        "classes": [0, 1, 2] if people else ["sit_down", "fall & <stay>"],
        "window_shape": [200, 242],
        "rooms": {
            room: {"architecture": "large", "train": 40 + number, "test": 10}
            for number, room in enumerate(rooms)
        },
    }


def setting(
    name: str = "statistical",
    *,
    people: bool = True,
    seeds: Sequence[int] = (0, 1, 2),
    synthetic: bool = True,
) -> Setting:
    """Horizons 5, 10, 20 and 40; FedAvg runs 20 rounds only, WiFederated is scored at the ends."""
    rest: dict[str, Any] = {"seeds": seeds, "people": people}
    short = {5: 0.3, 10: 0.4, 20: 0.5}
    return Setting(
        name=name,
        title="Statistical data" if name == "statistical" else "Model architecture",
        rounds=20,
        horizons=[5, 10, 20, 40],
        rows=[
            row(
                "local", "paper", {5: 0.4, 10: 0.5, 20: 0.6, 40: 0.7}, title="Local", step=0, **rest
            ),
            row("fedavg", "paper", short, title="FedAvg_100 % & <co>", step=80_000, **rest),
            row("wifed", "paper", short, title="WiFed", scored=[4, 5, 9, 10, 19, 20], **rest),
            row(
                "fedapa",
                "paper",
                {5: 0.5, 10: 0.6, 20: 0.7, 40: 0.71},
                title="FedAPA",
                apart=0.01,
                **rest,
            ),
            row("fedproto", "more", short, title="FedProto", **rest),
            row(
                "fedapa-self",
                "control",
                {5: 0.45, 10: 0.55, 20: 0.65, 40: 0.7},
                title="Self",
                **rest,
            ),
            row("pooled", "control", short, title="Pooled", moves=False, **rest),
            row(
                "constant",
                "blind",
                {5: 0.21, 10: 0.21, 20: 0.21, 40: 0.21},
                title="Always the commonest class",
                apart=0.0,
                moves=False,
                **rest,
            ),
        ],
        data=data(people=people, synthetic=synthetic),
    )


def results(settings: Sequence[Setting] | None = None, **more: Any) -> Results:
    """Both settings, three seeds."""
    chosen = settings or [setting(), setting("model")]
    return Results(
        experiment="table1",
        title="Overall comparison",
        preset="smoke",
        settings=chosen,
        seeds=[0, 1, 2],
        environment=ENVIRONMENT,
        **more,
    )


def sweep(*, people: bool = True) -> Results:
    """Width 64 to 256, the default in the middle, and a warm value."""
    values: dict[float | str, float] = {64: 0.5, 128: 0.6, 256: 0.55, "own %_": 0.4}
    swept = Setting(
        name="statistical",
        title="Statistical data",
        rounds=20,
        horizons=[5, 10, 20],
        rows=[
            row(
                "fedapa" if value == 128 else f"width-{value}",
                "sweep",
                {5: level - 0.2, 10: level - 0.1, 20: level},
                title=f"D = {value}",
                value=value,
                people=people,
            )
            for value, level in values.items()
        ],
        data=data(people=people),
    )
    return results([swept], parameter="width D")


def participation() -> Results:
    """Three selections at three shares."""
    swept = Setting(
        name="statistical",
        title="Statistical data",
        rounds=20,
        horizons=[5, 10, 20],
        rows=[
            row(
                f"{selection}-{share}",
                selection,
                {5: 0.3, 10: 0.4, 20: 0.4 + share / 5 + 0.02 * number},
                title=f"{selection}, ρ = {share}",
                value=share,
            )
            for number, selection in enumerate(("uniform", "diverse", "stale"))
            for share in (0.33, 0.67, 1.0)
        ],
        data=data(),
    )
    return results([swept], parameter="participation ρ")


def plan_of(store: Path, algorithm: str, rounds: int = 3) -> Plan:
    """A plan whose run takes a second."""
    return Plan(
        rounds=rounds,
        data={"file": str(store), "window": 16, "split": "random"},
        model={"architecture": "middle", "width": 8},
        algorithm=algorithm,
    )


_trained: dict[str, Path] = {}


def trained(make_store: MakeStore, folder: Path) -> dict[str, Run]:
    """Local and FedAPA on two small SIMULATED rooms, trained once and copied into ``folder``."""
    if not _trained:
        store = make_store(name="trained.h5", synthetic=True)
        for name in ("local", "fedapa"):
            out = store.parent / "trained" / name
            run(plan_of(store, name), out=out, workers=0)
            _trained[name] = out
    for name, source in _trained.items():
        shutil.copytree(source, folder / name)
    return {name: Run.load(folder / name) for name in _trained}

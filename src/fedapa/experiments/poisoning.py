"""``fedapa reproduce poisoning``: what rooms that lie cost the honest ones, and what helps.

The recordings of all rooms are dealt to 10 and to 30 rooms, each of which has one labelled
recording of every class and the rest without labels (the protocol of few-labels). Some of them
attack (``federation/attack.py``); the server defends itself or not (``federation/defence.py``).
Only honest rooms are scored, and every figure stands beside the same honest rooms without an
attack.

Expected shape: without defence one attack or another takes the whole gain over Local; with it the
lines stay level up to 30 %, and nobody who is honest pays for it when nobody attacks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedapa.algorithms import find
from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.fedjoin import FedJoin
from fedapa.algorithms.local import Local
from fedapa.evaluation.outcomes import outcome_of
from fedapa.evaluation.record import over_rooms, suspects
from fedapa.evaluation.results import Outcome, Results, Row, Setting, paired
from fedapa.experiments.experiment import CHOSEN, Base, Case, Experiment, refuse_untitled
from fedapa.federation.attack import BROKEN, KINDS, attackers
from fedapa.federation.plan import Plan
from fedapa.federation.run import Run
from fedapa.processes import Show, unseen
from fedapa.report.captions import caption
from fedapa.report.runs import Runs
from fedapa.report.tables.comparison import cell as figure
from fedapa.report.tables.table import Table
from fedapa.windows.views.statistics import Statistics

__all__ = [
    "BASE",
    "MEASURED",
    "POISONING",
    "Losses",
    "honest_only",
    "losses",
    "poisoning",
    "under_attack",
]

_NUMBERS = (10, 30)
"""Of rooms."""
_SHARES = (0.1, 0.2, 0.3, 0.4)
_AT = 0.3
"""The share that the bar is about."""
_CONCENTRATION = 1.0
"""α of the Dirichlet shares: rooms differ in size and in which classes they hold."""
_TEMPERATURES = (0.5, 0.1)
"""τ of the aggregation, for FedAPA by itself: its cosines are a defence of their own."""
_NOBODY = "nobody"
MEASURED: Mapping[str, str] = {FedJoin.name: "guard", FedAvg.name: "guard-trimmed"}
"""The defence that the bars are about: the combination, and for FedAvg a trimmed mean behind it."""
_DEFENCES: Mapping[str, Sequence[str]] = {
    FedJoin.name: ("guard",),
    FedAvg.name: ("guard-trimmed", "guard", "trimmed"),
    FedAPA.name: (),
}
"""What is on for whom: that of the bars, and for FedAvg each half of it by itself."""


@dataclass(frozen=True)
class _Cell:
    """One run of the study, but for its seed."""

    method: str
    """The algorithm, with τ where it is varied."""
    rooms: int
    attack: str = _NOBODY
    share: float = 0.0
    defence: str = ""

    @property
    def name(self) -> str:
        """Of its case."""
        parts = [self.method, str(self.rooms)]
        if self.attack != _NOBODY:
            parts += [self.attack, f"{100 * self.share:.0f}"]
        return "-".join([*parts, *([self.defence] if self.defence else [])])

    @property
    def line(self) -> str:
        """The row in tables, the line in figures."""
        return f"{self.attack}, {self.defence}" if self.defence else self.attack

    def change(self) -> dict[str, Any]:
        name, _, temperature = self.method.partition("-")
        algorithm: dict[str, Any] = {"name": name}
        if temperature:
            algorithm["aggregation_temperature"] = float(temperature)
        change: dict[str, Any] = {
            "algorithm": algorithm,
            "answerable": "room",
            "data": {
                "view": Statistics.name,
                "split": "recording",
                "partition": "dirichlet",
                "partition_rooms": self.rooms,
                "partition_concentration": _CONCENTRATION,
                "train_recordings": 1,
                "unlabelled": "keep",
            },
        }
        if self.attack != _NOBODY:
            change["attack"] = {"kind": self.attack, "share": self.share}
        if self.defence:
            change["defence"] = self.defence
        return change


def _cells(numbers: Sequence[int], *, bars: bool) -> list[_Cell]:
    """What is run; ``bars`` leaves out what the bars do not need."""
    cells = []
    for rooms in numbers:
        cells.append(_Cell(Local.name, rooms))
        methods = [FedJoin.name, FedAvg.name]
        if not bars and rooms == _NUMBERS[0]:
            methods += [f"{FedAPA.name}-{value:g}" for value in _TEMPERATURES]
        for method in methods:
            defences = _DEFENCES[method.partition("-")[0]]
            if bars:
                defences = [MEASURED[method]]
            cells.append(_Cell(method, rooms))
            cells += [_Cell(method, rooms, defence=defence) for defence in defences]
            if method in MEASURED:  # the best that a defence can do: nobody listens to a liar
                cells.append(_Cell(method, rooms, BROKEN, _AT))
            for attack in KINDS:
                for defence in defences if bars else ("", *defences):
                    shares = (_AT,) if bars else _shares(method, rooms, defence)
                    cells += [_Cell(method, rooms, attack, share, defence) for share in shares]
    return cells


def _shares(method: str, rooms: int, defence: str) -> Sequence[float]:
    """All shares for FedJoin, and for FedAvg where rooms are cheap; of the rest the bar's alone."""
    if defence not in ("", MEASURED.get(method)) or method not in MEASURED:
        return (_AT,)
    return _SHARES if method == FedJoin.name or rooms <= _NUMBERS[0] else (_AT,)


def _cases(plan: Plan, *, bars: bool) -> Sequence[Case]:
    refuse_untitled("poisoning", plan)
    numbers: Sequence[int] = (plan.data.partition_rooms,)
    if plan.data.partition == "rooms":
        few = plan.data.file is None and plan.data.simulated == "smoke"  # 92 recordings
        numbers = _NUMBERS[:1] if few else _NUMBERS
    return [
        Case(cell.name, cell.change(), cell.name, cell.line, 100 * cell.share)
        for cell in _cells(numbers, bars=bars)
    ]


# ---- honest rooms only --------------------------------------------------------------------------


def honest_only(run: Run, share: float) -> Outcome:
    """What the rooms reached that are honest where such a share attacks, whether or not it did."""
    lying = _attackers(run, share)
    records = []
    for record in run.records:
        rooms = {room: own for room, own in record["rooms"].items() if room not in lying}
        scored = {room: own for room, own in rooms.items() if "accuracy" in own}
        records.append({**record, "rooms": rooms, **over_rooms(scored, dict.fromkeys(scored, 1))})
    made = (run.environment, *run.environment.get("resumed", []))
    return outcome_of(
        records,
        [run.plan.rounds],
        seed=run.plan.seed,
        run=run.folder.name,
        commits=[str(environment["commit"]) for environment in made],
    )


def _followed(results: Results, runs: Runs, show: Show = unseen) -> Results:
    """The results of honest rooms: a setting for each method and number of rooms."""
    (setting,) = results.settings
    by_case: dict[str, dict[int, Run]] = {}
    for (_, name, seed), run in runs.items():
        by_case.setdefault(name, {})[seed] = run
    settings = []
    for clean in (cell for cell in map(_cell_of, by_case) if _is_clean(cell)):
        if clean.method == Local.name:
            continue
        settings.append(_of_method(setting, clean, by_case))
    notes = [note for note in results.notes if note in POISONING.notes]
    return replace(results, settings=settings, notes=[*notes, *_named(settings, by_case)])


def _is_clean(cell: _Cell) -> bool:
    return cell.attack == _NOBODY and not cell.defence


def _cell_of(name: str) -> _Cell:
    return next(
        cell
        for rooms in {int(part) for part in name.split("-") if part.isdecimal()}
        for cell in _cells((rooms,), bars=False)
        if cell.name == name
    )


def _of_method(setting: Setting, clean: _Cell, runs: Mapping[str, Mapping[int, Run]]) -> Setting:
    alone = replace(clean, method=Local.name)
    cells = [
        cell
        for cell in map(_cell_of, runs)
        if (cell.method, cell.rooms) == (clean.method, clean.rooms)
    ]
    shares = sorted({0.0, *(cell.share for cell in cells)})
    rows = []
    for cell in [alone, *cells]:
        still = cell.attack == _NOBODY
        line = find(Local.name).title if cell is alone else cell.line
        # Without an attack the same run is asked about the honest rooms of every share.
        for share in shares if still else [cell.share]:
            outcomes = [honest_only(run, share) for run in runs[cell.name].values()]
            rows.append(
                Row(f"{cell.name}@{100 * share:.0f}", line, line, outcomes, value=100 * share)
            )
    first = next(iter(runs[clean.name].values()))
    data = {**first.data, "source": first.data["source"].rpartition("/")[2]}
    title = f"{find(clean.method.partition('-')[0]).title}, {clean.rooms} rooms"
    if "-" in clean.method:
        title += f", τ = {clean.method.partition('-')[2]}"
    return replace(
        setting,
        name=clean.name,
        title=title,
        rows=rows,
        horizons=[setting.rounds],
        data=data,
        reference=_NOBODY,
    )


# ---- what is lost -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """What honest rooms lose, in shares of one: a value for each seed."""

    attack: str
    share: float
    """In percent."""
    defence: str
    """Empty where nobody defends."""
    undefended: Sequence[float] | None
    defended: Sequence[float] | None
    left: Sequence[float] | None
    """The gain over Local of the defended rooms, or of the undefended where nobody defends."""


def losses(setting: Setting) -> list[Losses]:
    """Accuracy without attack and defence, minus accuracy with them, of the same honest rooms.

    Rooms that are broken stand for themselves: nothing of theirs is merged, so what is lost by
    them is lost with any defence that finds every liar at once.
    """

    def reached(line: str, share: float) -> Sequence[float] | None:
        rows = [row for row in setting.lines.get(line, []) if row.value == share]
        return rows[0].metrics(setting.rounds, "accuracy") if rows else None

    def minus(one: Sequence[float] | None, other: Sequence[float] | None) -> list[float] | None:
        if one is None or other is None:
            return None
        return [a - b for a, b in zip(one, other, strict=True)]

    used = {row.group.partition(", ")[2] for row in setting.rows if row.group != Local.title} - {""}
    made = []
    for attack in (_NOBODY, *KINDS, BROKEN):
        for share in sorted({float(row.value or 0.0) for row in setting.rows}):
            clean, alone = reached(_NOBODY, share), reached(Local.title, share)
            bare = reached(attack, share)
            if (attack == _NOBODY) != (share == 0.0):
                continue
            for defence in (attack != BROKEN and sorted(used, reverse=True)) or [""]:
                guarded = reached(f"{attack}, {defence}", share) if defence else None
                if bare is not None or guarded is not None:
                    left = minus(guarded if defence else bare, alone)
                    lost = minus(clean, bare), minus(clean, guarded)
                    made.append(Losses(attack, share, defence, *lost, left))
    return made


def under_attack(setting: Setting) -> Table:
    """Attack by attack: accuracy and MAE without and with the defence, the loss, what is left."""
    rows = []
    for one in losses(setting):
        found = [
            next((row for row in setting.lines.get(line, []) if row.value == one.share), None)
            for line in (one.attack, f"{one.attack}, {one.defence}")
        ]
        cells = [
            "–" if row is None else figure(row.metrics(setting.rounds, metric), metric)
            for metric in ("accuracy", "mae_median")
            for row in found
        ]
        told = [
            "–" if values is None else _points(values)
            for values in (one.undefended, one.defended, one.left)
        ]
        rows.append([one.attack, one.defence or "–", f"{one.share:g}", *cells, *told])
    return Table(
        title=f"{setting.title}: honest rooms under attack",
        headings=[
            *("Attack", "Defence", "Of the rooms (%)"),
            *["without", "with"] * 3,
            "Gain over Local left",
        ],
        rows=rows,
        note="Loss: accuracy without attack and without defence, minus that with the attack "
        "(without, with the defence), of the same honest rooms, in points; mean over seeds and "
        f"95 % interval. {caption(setting, setting.rounds)}",
        text_columns=2,
        spans=[("", 3), ("Accuracy (%)", 2), ("MAE (people)", 2), ("Loss (points)", 2), ("", 1)],
    )


def _points(values: Sequence[float]) -> str:
    over = paired(values, np.zeros(len(values)).tolist())
    text = f"{100 * over.mean:+.1f}"
    if over.low is not None and over.high is not None:
        text += f" [{100 * over.low:+.1f}, {100 * over.high:+.1f}]"
    return text.replace("-", "−")


def _named(settings: Sequence[Setting], runs: Mapping[str, Mapping[int, Run]]) -> list[str]:
    """How many of the attackers the server names, and how many honest rooms beside them."""
    said = []
    for setting in settings:
        cells = [_cell_of(row.name.partition("@")[0]) for row in setting.rows]
        for cell in dict.fromkeys(c for c in cells if c.defence and c.share in (0.0, _AT)):
            right = wrong = liars = honest = 0
            for run in runs[cell.name].values():
                lying, named = (
                    _attackers(run, cell.share),
                    {one["room"] for one in suspects(run.records)},
                )
                right, liars = right + len(named & lying), liars + len(lying)
                wrong, honest = wrong + len(named - lying), honest + len(run.data["rooms"])
            share = f", {100 * cell.share:.0f} %" if liars else ""
            of = f"{right} of {liars} attackers and " if liars else ""
            said.append(
                f"{setting.title}, {cell.line}{share}: the server suspects {of}{wrong} of "
                f"{honest - liars} honest rooms (over all seeds)."
            )
    return said


def _attackers(run: Run, share: float) -> frozenset[str]:
    """Who lies in a run where such a share does."""
    return frozenset(attackers(share, list(run.data["rooms"]), run.plan.seed))


def poisoning(*, bars: bool = False) -> Experiment:
    """The study, or the part of it that the bars need."""
    return Experiment(
        "poisoning-bars" if bars else "poisoning",
        "Poisoning: some rooms lie",
        lambda plan: _cases(plan, bars=bars),
        (CHOSEN,),
        parameter="attackers (%)",
        notes=_NOTES,
        fixed=True,
        reference=_NOBODY,
        follow=_followed,
        table=under_attack,
    )


_NOTES = (
    "Recordings of all rooms are dealt to 10 and to 30 rooms by Dirichlet shares (α = 1); each has "
    "one labelled recording of every class, the rest without labels. Attackers are drawn by the "
    "seed; those of a smaller share are among those of a larger one. Only honest rooms are scored.",
    "Of attackers that are broken (NaN) nothing is merged in any round: what honest rooms lose by "
    "them, since their data is missing, is the least that shutting liars out can reach.",
    "Defences were chosen on simulated rooms of other seeds (4 to 6), see docs/decisions.",
)
POISONING = poisoning()
BASE = Base("quick", rounds=12, long_rounds=0, changes=({"training": {"epochs": 12}},))
"""What ``fedapa reproduce poisoning`` does by default: few rounds of many epochs, since a round
costs as much for its messages and scores as for its training. After six rounds FedJoin had not
half of the gain over Local that it has after twelve: there would be little to lose."""

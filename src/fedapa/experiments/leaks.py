"""``fedapa reproduce leaks``: what a stranger learns from what rooms send.

Three attacks on the messages of finished rounds: was a recording used for training (membership),
what did the windows of a class look like (reconstruction), and whose set is this (identity). Each
is made on the plain exchange and on what is said to protect it. Unlike the other experiments it
asks for no accuracy, so it has runs, results and tables of its own.

Expected shape: a table for each attack with a row for each case and attacker, and a figure of them.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fedapa.algorithms import find
from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.fedjoin import FedJoin
from fedapa.algorithms.fedproto import FedProto
from fedapa.attacks.roc import Interval, Matched, bootstrapped, first_named, measured
from fedapa.csi.capture import data_kind
from fedapa.errors import DataError, PlanError, RunError, nearest
from fedapa.evaluation.record import dump
from fedapa.experiments.conduct import Execution, folder_name
from fedapa.experiments.experiment import Base, refuse_untitled
from fedapa.experiments.overheard import (
    Place,
    by_day,
    identity,
    membership,
    overhear,
    places_of,
    reconstruction,
)
from fedapa.federation.environment import environment
from fedapa.federation.participant import introduce
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree_by_cards, describe
from fedapa.files import write_text
from fedapa.processes import Progress, available_cores, side_by_side
from fedapa.randomness import Key
from fedapa.report.captions import data_text
from fedapa.report.figures.leaks import leaks_figure
from fedapa.report.page import Report
from fedapa.report.tables.leaks import leak_tables
from fedapa.toml import parse_toml
from fedapa.windows.split import SplitKind

__all__ = ["ATTACKS", "LeakCase", "Leaks", "leak_cases", "reproduce_leaks"]

NAME = "leaks"
TITLE = "What a stranger learns from what rooms send"
ATTACKS = ("membership", "reconstruction", "identity")
_MATCHED: tuple[SplitKind, ...] = ("recording", "blocked")
"""Splits in which a recording that was used and one that was not may be of one room, count and
day."""
_ENOUGH = 50
"""Windows behind a prototype, at least, in the cases with ``minimum_samples``."""
_NOISED: Mapping[str, Any] = {"epsilon": 10.0, "unit": "window", "every": 2}
"""Differential privacy in the case that has it: a set in every second round."""
_CLIPPED: Mapping[str, Any] = {**_NOISED, "epsilon": 1e4}
"""The same with so little noise that what it does, the clip does."""
_FEW = {"recording": {"train_recordings": 2}, "blocked": {"train_windows": 20}}
"""By split: what leaves few windows behind a prototype."""


@dataclass(frozen=True)
class LeakCase:
    """One way to send."""

    name: str
    title: str
    change: Mapping[str, Any]
    asked: Collection[str] = ATTACKS
    """The attacks that mean something there."""
    days: bool = False
    """Whether it is also run with each day of a room as a room, for identity."""


def leak_cases(split: str) -> list[LeakCase]:
    """Plain exchanges, and what is said to protect them."""
    few = {"data": _FEW[split]}
    enough = {"algorithm": {"name": FedAPA.name, "minimum_samples": _ENOUGH}}
    weights = ("membership", "identity")
    return [
        LeakCase("fedapa", "FedAPA", {"algorithm": FedAPA.name}, days=True),
        LeakCase(
            "fedapa-int8",
            "FedAPA, int8",
            {"algorithm": FedAPA.name, "precision": "int8"},
            days=True,
        ),
        LeakCase(
            "fedapa-private",
            f"FedAPA, noised, ε = {_NOISED['epsilon']:g} a window",
            {"algorithm": FedAPA.name, "privacy": _NOISED},
            days=True,
        ),
        LeakCase(
            "fedapa-clipped",
            "FedAPA, clipped, hardly any noise",
            {"algorithm": FedAPA.name, "privacy": _CLIPPED},
            days=True,
        ),
        LeakCase("fedapa-few", "FedAPA, few windows", {"algorithm": FedAPA.name, **few}),
        LeakCase(
            "fedapa-few-minimum",
            f"FedAPA, few windows, minimum_samples = {_ENOUGH}",
            {**enough, **few},
        ),
        LeakCase(FedProto.name, FedProto.title, {"algorithm": FedProto.name}),
        LeakCase(FedAvg.name, FedAvg.title, {"algorithm": FedAvg.name}, asked=weights),
        LeakCase(FedJoin.name, FedJoin.title, {"algorithm": FedJoin.name}, asked=weights),
    ]


@dataclass(frozen=True, eq=False)
class Leaks:
    """What was found: results for a file, and where their page is."""

    results: Mapping[str, Any]
    page: Path


def reproduce_leaks(
    base: Base,
    how: Execution,
    *,
    attacks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> Leaks:
    """Carry out the runs that are missing, attack them, and write what came out.

    Args:
        base: preset, data and changes for all runs.
        how: seeds and where to write; runs that were attacked before are not made again.
        attacks: some of ``ATTACKS``; by default all.
        methods: algorithms of the cases; by default all.
    """
    chosen = _chosen(attacks, ATTACKS, "attack")
    if how.seeds < 1:
        raise PlanError(f"seeds {how.seeds}: at least one is needed")
    folder = how.out / NAME
    if (folder / "results.json").is_file() and not how.resume:
        raise RunError(
            f"{folder}: already holds results; add --resume to complete or renew them from the "
            "runs there, or choose another --out"
        )
    plan = _settled(base.plan)
    cases = leak_cases(plan.data.split)
    known = list(dict.fromkeys(str(_algorithm(case)) for case in cases))
    wanted = _chosen(methods, known, "method")
    cases = [case for case in cases if _algorithm(case) in wanted]
    if not any(set(chosen) & set(case.asked) for case in cases):
        raise PlanError(
            f"{NAME}: {' and '.join(chosen)} asks nothing of "
            f"{' and '.join(find(name).title for name in wanted)}: it begins at prototypes that "
            f"travel alone; ask {' or '.join(cases[0].asked)}, or choose another --method"
        )
    asked = [
        _Asked(case, seed, Plan.of(plan.document(), case.change, {"seed": seed}), days, told)
        for seed in range(how.seeds)
        for days in (False, True)
        for case in cases
        if case.days or not days
        if (told := [one for one in chosen if one in (("identity",) if days else case.asked)])
    ]
    _carry_out(asked, folder / "runs", how)
    found = [json.loads(one.path(folder / "runs").read_text()) for one in asked]
    results = _results(asked, found, plan, how)
    write_text(folder / "results.json", json.dumps(results, indent=1, sort_keys=True) + "\n")
    return Leaks(results, _written(results, folder))


def _chosen(asked: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    for name in asked or ():
        if name not in known:
            raise PlanError(f"{what} '{name}' is not in {NAME}; {nearest(name, list(known))}")
    return [name for name in known if asked is None or name in asked]


def _algorithm(case: LeakCase) -> str:
    given = case.change["algorithm"]
    return str(given["name"] if isinstance(given, Mapping) else given)


def _settled(plan: Plan) -> Plan:
    """With one split and one view for all runs, as the first seed's rooms choose them."""
    refuse_untitled(NAME, plan, "algorithm.minimum_samples")
    if plan.data.split not in ("auto", *_MATCHED):
        raise PlanError(
            f"{NAME}: split = '{plan.data.split}' leaves no recording that was used and one that "
            "was not of the same room, count and day; use recording or blocked"
        )
    if plan.data.partition != "rooms" or plan.data.tasks != "label":
        raise PlanError(f"{NAME}: needs rooms as they are and one task; leave the rest out")
    if plan.participation < 1:
        raise PlanError(
            f"{NAME}: participation = {plan.participation:g} leaves rounds in which a room sends "
            "nothing, and attacks compare all rooms in each; leave it at 1"
        )
    kinds = _MATCHED if plan.data.split == "auto" else (plan.data.split,)
    for kind in kinds:
        tried = Plan.of(plan.document(), {"data": {"split": kind}})
        try:
            agreed = agree_by_cards(tried, workers=None)
        except DataError:
            if kind == kinds[-1]:
                raise
        else:
            if len(agreed.nets) < 2:
                raise PlanError(
                    f"{NAME}: has the room '{next(iter(agreed.nets))}' alone; it needs at least "
                    "two, since one room is attacked by the next"
                )
            view = {} if agreed.view is None else {"view": agreed.view}
            return Plan.of(tried.document(), {"data": view})
    raise PlanError(f"{NAME}: no split fits")  # unreachable: the last kind raises


# ---- runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Asked:
    """One run, and what is asked of it."""

    case: LeakCase
    seed: int
    plan: Plan
    days: bool
    attacks: Sequence[str]

    def path(self, folder: Path) -> Path:
        """Where its answers are kept: named by what decides them."""
        what = " ".join([*self.attacks, "by day" if self.days else ""])
        mark = hashlib.blake2b(what.encode(), digest_size=3).hexdigest()
        return folder / f"{folder_name(self.plan)}-{mark}.json"


def _carry_out(asked: Sequence[_Asked], folder: Path, how: Execution) -> None:
    """The runs whose answers are not there yet, one after the other or side by side."""
    missing = [one for one in asked if not one.path(folder).is_file()]
    tasks = [
        (one.plan.toml(), " ".join(one.attacks), "days" if one.days else "", str(one.path(folder)))
        for one in missing
    ]
    cores = available_cores() if how.workers is None else how.workers
    if cores > 1 and len(tasks) > 1:
        side_by_side(_attacked, tasks, workers=cores, stage="attacking", unit="runs", show=how.show)
        return
    for number, task in enumerate(tasks, start=1):
        _attacked(*task)
        how.show(Progress("attacking", number, len(tasks), "runs"))


_DECIDES_ROOMS = ("seed", "classes", "answer", "answerable", "data", "model")


def _data_of(plan: Plan) -> str:
    """What decides the rooms of a plan, as a plan."""
    document = plan.document()
    return Plan.of({name: document[name] for name in _DECIDES_ROOMS if name in document}).toml()


@lru_cache(maxsize=2)
def _places(plan: str) -> list[Place]:
    """The rooms of a plan; those of the last runs stay, since cases share them."""
    return places_of(Plan(**parse_toml(plan, "task of a worker")))


def _attacked(plan: str, attacks: str, days: str, path: str) -> bytes:
    """One run and its attacks, in this process; what came out is written to its file."""
    planned = Plan(**parse_toml(plan, "task of a worker"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        places = _places(_data_of(planned))
        data = describe([introduce(place.room) for place in places], planned)
        if days:
            places = by_day(places)
        found: dict[str, Any] = {"data": data, "environment": environment(0)}
        # Where no room has several days there is nothing more to ask.
        if not days or len({place.home for place in places}) < len(places):
            heard = overhear(planned, places)
            found |= {"accuracy": heard.accuracy, "sent": heard.sent}
            if "membership" in attacks.split():
                found["membership"] = membership(heard).tree()
            if "reconstruction" in attacks.split():
                found["reconstruction"] = reconstruction(heard)
            if "identity" in attacks.split():
                found["identity"] = {
                    question: told.tree() for question, told in identity(heard).items()
                }
    finally:
        torch.set_num_threads(before)
    write_text(Path(path), json.dumps(found) + "\n")
    return b""


# ---- results ------------------------------------------------------------------------------------


def _results(
    asked: Sequence[_Asked], found: Sequence[Mapping[str, Any]], plan: Plan, how: Execution
) -> dict[str, Any]:
    """Everything over seeds, with intervals."""
    rows: dict[str, list[dict[str, Any]]] = {attack: [] for attack in ATTACKS}
    named = {(one.case.name, one.days): one.case for one in asked}
    for (name, days), case in named.items():
        mine = [
            (one.seed, told)
            for one, told in zip(asked, found, strict=True)
            if (one.case.name, one.days) == (name, days) and "accuracy" in told
        ]
        if not mine:
            continue
        kind = find(_algorithm(case))
        about = {
            "case": name,
            "title": case.title,
            "method": kind.title,
            "accuracy": [told["accuracy"] for _, told in mine],
            "sent": [told["sent"] for _, told in mine],
        }
        key = Key(0) / NAME / name
        rows["membership"] += [{**about, **row} for row in _memberships(mine, key)]
        rows["reconstruction"] += [{**about, **row} for row in _reconstructions(mine, key)]
        rows["identity"] += [{**about, **row} for row in _identities(mine, key, days)]
    data = next(told["data"] for told in found)
    data = {**data, "source": data["source"].rpartition("/")[2]}  # of whole paths only the name
    document = plan.document()
    if plan.data.file is not None:
        document["data"]["file"] = data["source"]
    return {
        "experiment": NAME,
        "title": TITLE,
        "data": data_kind(data["synthetic"]),
        "rooms": data,
        "rounds": plan.rounds,
        "seeds": list(range(how.seeds)),
        "commits": sorted({told["environment"]["commit"] for told in found}),
        "environment": {**environment(how.workers), "command": how.command},
        "plan": document,
        **{attack: made for attack, made in rows.items() if made},
    }


def _together(mine: Sequence[tuple[int, Mapping[str, Any]]], score: str) -> Matched | None:
    """The candidates of all seeds; a stratum is of one seed, a room is the same in all."""
    parts = [(seed, told) for seed, told in mine if told["scores"].get(score)]
    if not parts:
        return None
    try:
        return Matched.of(
            [value for _, told in parts for value in told["scores"][score]],
            [member for _, told in parts for member in told["members"]],
            [
                f"{seed} · {room} · {name}"
                for seed, told in parts
                for room, name in zip(told["rooms"], told["strata"], strict=True)
            ],
            [room for _, told in parts for room in told["rooms"]],
        )
    except DataError:
        return None  # nothing was sent, or nobody can be compared


def _memberships(mine: Sequence[tuple[int, Mapping[str, Any]]], key: Key) -> list[dict[str, Any]]:
    told = [(seed, found["membership"]) for seed, found in mine if "membership" in found]
    names = dict.fromkeys(name for _, found in told for name in found["scores"])
    rows = []
    for name in names:
        matched = _together(told, name)
        if matched is not None:
            attacker, _, attack = name.partition(" · ")
            figures = measured(matched, key / name)
            rows.append(
                {
                    "attacker": attacker,
                    "attack": attack,
                    "members": int(matched.members.sum()),
                    "others": int((~matched.members).sum()),
                    **{figure: asdict(value) for figure, value in figures.items()},
                }
            )
    return rows


def _reconstructions(
    mine: Sequence[tuple[int, Mapping[str, Any]]], key: Key
) -> list[dict[str, Any]]:
    told = [each for _, found in mine for each in found.get("reconstruction", ())]
    rows = []
    for way in dict.fromkeys(each["way"] for each in told):
        chosen = [each for each in told if each["way"] == way]
        rooms = [each["room"] for each in chosen]
        rows.append(
            {
                "way": way,
                "classes": len(chosen),
                **{
                    figure: asdict(
                        bootstrapped([each[figure] for each in chosen], rooms, key / way)
                    )
                    for figure in ("error", "correlation")
                },
            }
        )
    return rows


def _identities(
    mine: Sequence[tuple[int, Mapping[str, Any]]], key: Key, days: bool
) -> list[dict[str, Any]]:
    told = [(seed, found["identity"]) for seed, found in mine if "identity" in found]
    rows = []
    for question in dict.fromkeys(name for _, found in told for name in found):
        # Where each day is a room of its own, it is another question.
        named = f"{question}, over days" if days and "day" not in question else question
        parts = [(seed, found[question]) for seed, found in told if question in found]
        if not any(part["rooms"] for _, part in parts):  # it could not be asked
            rows.append({"question": named, "sets": 0, "first": None, "auc": None, "chance": None})
            continue
        matched = _together(parts, "likeness")
        if matched is None:
            continue
        first: Interval = first_named(matched, key / question)
        rows.append(
            {
                "question": named,
                "sets": len(set(matched.strata.tolist())),
                "first": asdict(first),
                "auc": asdict(measured(matched, key / question)["auc"]),
                "chance": _chance(matched),
            }
        )
    return rows


def _chance(matched: Matched) -> float:
    """How often a guess among the known sets names the right one."""
    by_set: dict[str, list[bool]] = {}
    for name, member in zip(matched.strata.tolist(), matched.members.tolist(), strict=True):
        by_set.setdefault(name, []).append(member)
    return sum(sum(own) / len(own) for own in by_set.values()) / len(by_set)


def _written(results: Mapping[str, Any], folder: Path) -> Path:
    """Tables, figure and page."""
    report = Report(TITLE, folder)
    if results["rooms"]["synthetic"]:
        report.simulated()
    for name, table in leak_tables(results).items():
        report.table(name, table)
    if results.get("membership"):
        report.figure(NAME, leaks_figure(results), "AUC of membership inference by case")
    report.heading(2, "How this was made")
    report.points(
        [
            data_text(results["rooms"], results["seeds"]),
            f"rounds: {results['rounds']}",
            f"commit: {', '.join(results['commits'])}",
            f"command: {results['environment']['command']}",
        ]
    )
    report.folded("Plan", dump(results["plan"]))
    return report.finish(folder)

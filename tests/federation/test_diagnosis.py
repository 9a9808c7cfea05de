"""A diagnosed run: the same numbers as without, and the theory's identity in its records."""

from pathlib import Path
from typing import Any

import pytest

from fedapa import Plan, run
from fedapa.errors import PlanError
from fedapa.evaluation.theory import THEORY
from fedapa.report.page import write_run_page
from tests.conftest import MakeRooms


def plan(**values: Any) -> Plan:
    settings = {"name": "fedapa", "warm_rounds": 3}
    return Plan.of({"rounds": 5, "training": {"batch_size": 4}, "algorithm": settings}, values)


def without_theory(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_theory(below) for key, below in value.items() if not key.startswith(THEORY)
        }
    return value


@pytest.mark.parametrize("algorithm", ["fedapa", "fedapa-self", "fedproto"])
def test_a_diagnosis_changes_no_number_and_its_terms_add_up(
    make_rooms: MakeRooms, tmp_path: Path, algorithm: str
) -> None:
    """L_t(w_{t,0}) − L_{t−1}(w_{t−1,S}) = jump by schedule + jump by new prototypes."""
    rooms = make_rooms()
    plain, told = (
        run(plan(algorithm=algorithm), rooms=rooms, out=tmp_path / name, workers=0, diagnose=every)
        for name, every in (("plain", None), ("told", 2))
    )
    assert [without_theory(dict(record)) for record in told.records] == [
        without_theory(dict(record)) for record in plain.records
    ]
    for path in sorted((tmp_path / "plain" / "models").iterdir()):
        assert path.read_bytes() == (tmp_path / "told" / "models" / path.name).read_bytes()
    seen = 0
    for before, after in zip(told.records[1:], told.records[2:], strict=False):
        for room, figures in after["rooms"].items():
            jumps = figures[f"{THEORY}jump_schedule"] + figures[f"{THEORY}jump_refresh"]
            last = before["rooms"][room][f"{THEORY}objective_after"]
            assert figures[f"{THEORY}objective_before"] - last == pytest.approx(jumps, abs=1e-5)
            seen += 1
    assert seen == 3 * len(rooms)
    smooth = [f"{THEORY}smoothness" in r["rooms"]["room 0"] for r in told.records]
    assert smooth == [True, False, True, False, True], "every second round"
    moved = f"{THEORY}prototypes_moved" in told.records[2]["server"]
    assert moved == (algorithm != "fedapa-self"), "what never travels cannot be seen to move"


def test_the_page_of_a_diagnosed_run_has_the_theory(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    told, plain = (
        run(plan(), rooms=rooms, out=tmp_path / name, workers=0, diagnose=every)
        for name, every in (("told", 2), ("plain", None))
    )
    write_run_page(tmp_path / "told.html", [told], title="told")
    write_run_page(tmp_path / "plain.html", [plain], title="plain")
    page = (tmp_path / "told.html").read_text()
    for said in ("The theory, measured", "Theorem 1", "Theorem 2", "√N/(2τ) = 1.7321"):
        assert said in page
    assert "The theory, measured" not in (tmp_path / "plain.html").read_text()


def test_a_diagnosis_does_not_go_on_from_another_net(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Rounds 1 and 2 are diagnosed, 3 is not: what rooms kept in 2 is not where 4 begins."""
    rooms, settings = make_rooms(), {"name": "fedapa", "warm_rounds": 3}
    for rounds, every in ((2, 0), (3, None), (5, 0)):
        told = run(
            Plan.of({"rounds": rounds, "training": {"batch_size": 4}, "algorithm": settings}),
            rooms=rooms,
            out=tmp_path / "parts",
            workers=0,
            resume=rounds > 2,
            diagnose=every,
        )
    has = [f"{THEORY}descent" in record["rooms"]["room 0"] for record in told.records]
    assert has == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("algorithm", "every", "said"),
    [("fedavg", 0, "FedAvg is none; use fedapa"), ("fedapa", -1, "must be 0 or more")],
)
def test_what_has_no_theory_is_refused(
    make_rooms: MakeRooms, algorithm: str, every: int, said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        run(plan(algorithm=algorithm), rooms=make_rooms(), workers=0, diagnose=every)

"""A few hundred inputs of `make fuzz` for each kind, and the driver itself."""

import json
import random
from pathlib import Path

import pytest

from tests import fuzz
from tests.fuzz import MODULES, Outcome, Subject, names_of, run

INPUTS = {"runs": 150, "http": 200, "mqtt": 150}


@pytest.mark.parametrize("kind", [kind for kind in MODULES if kind != "captures"])
def test_mutated_inputs_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    outcome = run(kind, INPUTS.get(kind, 300), folder=tmp_path)
    assert outcome.counts["read"] > (20 if kind == "http" else 5)
    assert outcome.counts["refused"] > 5 or kind == "mqtt"


class Broken(Subject):
    """Breaks a promise at its fourth input."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seeds = [b"sound"]
        self.seen = 0

    def attempt(self, data: bytes, rng: random.Random) -> str:
        self.seen += 1
        if self.seen > 4:
            raise KeyError(data)
        return "read"


def test_a_breaking_input_is_named_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "_subjects", lambda module: {"plans": Broken})
    with pytest.raises(KeyError) as broken:
        run("plans", 100, folder=tmp_path, seed=7)
    assert "plans: input 3 of seed 7" in broken.value.__notes__[0]
    kept = (tmp_path / "plans.input").read_bytes()
    rng = random.Random("plans 7 3")
    assert kept == Broken(tmp_path).mutated(rng), "an input can be made again from its number"


def test_formats_of_captures_are_kinds_and_others_are_unknown() -> None:
    formats = names_of(["captures"])
    assert all(name.startswith("captures:") for name in formats)
    assert names_of([formats[0]]) == formats[:1]
    with pytest.raises(ValueError, match="unknown kind 'captures:x'; known: captures:"):
        names_of(["captures:x"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--inputs", "0"], "--inputs 0: at least one is needed"),
        (["--inputs", "-5"], "--inputs -5: at least one is needed"),
        (["--kind", "letters"], "unknown kind 'letters'; known: captures, stores"),
    ],
)
def test_what_would_try_nothing_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        fuzz.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_run_that_was_stopped_goes_on_and_a_finished_one_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []
    ends = iter([40, 100])

    def apart(name: str, inputs: int, *, start: int, **_: object) -> Outcome:
        asked.append(start)
        end = next(ends)
        return Outcome(name, 0, end, {"read": end - start})

    monkeypatch.setattr(fuzz, "apart", apart)
    progress = tmp_path / "fuzz.json"
    command = ["--kind", "plans", "--inputs", "100", "--progress", str(progress)]
    assert fuzz.main(command) == 0
    assert "goes on with: plans" in capsys.readouterr().out
    assert json.loads(progress.read_text())["plans 0"]["done"] == 40
    assert fuzz.main(command) == 0
    assert asked == [0, 40]
    assert "100 inputs of seed 0 (100 read), no crash" in capsys.readouterr().out
    assert not progress.exists()

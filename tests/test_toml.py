"""TOML of anybody is read within bounds, and refused in a sentence."""

import tracemalloc
from pathlib import Path

import pytest

import fedapa
from fedapa.errors import PlanError
from fedapa.toml import parse_toml, read_toml


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"absent\.toml: cannot be read"):
        read_toml(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(PlanError, match=r"bad\.toml: not TOML: .*line 1"):
        read_toml(tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="not TOML"):
        read_toml(tmp_path / "binary.toml")
    (tmp_path / "long.toml").write_text("# nothing\n" * 30_000)
    with pytest.raises(PlanError, match=r"long\.toml: .*longer than 262144 bytes"):
        read_toml(tmp_path / "long.toml")


def test_a_mark_in_front_is_no_part_of_a_plan(tmp_path: Path) -> None:
    """Editors on Windows put it there."""
    (tmp_path / "plan.toml").write_bytes(b"\xef\xbb\xbfrounds = 3\r\n")
    assert read_toml(tmp_path / "plan.toml") == {"rounds": 3}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (".".join(["a"] * 50_000) + " = 1", "line 1 has more than 32 dots"),
        ("\n[" + ".".join(["1"] * 50_000) + "]", "line 2 has more than 32 dots"),
        (".".join(['"a b"'] * 500) + " = 1", "line 1 has more than 32 dots"),
        ("a = " + "[" * 20_000 + "]" * 20_000, "nested too deep"),
        ("a = " + "{b = " * 5_000 + "1" + "}" * 5_000, "nested too deep"),
        ("a = 1" + "0" * 5_000, "not TOML: Exceeds the limit"),
    ],
)
def test_what_would_take_all_memory_is_refused(text: str, complaint: str) -> None:
    tracemalloc.start()
    with pytest.raises(PlanError, match=complaint):
        parse_toml(text, "plan.toml")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50e6


def test_long_lists_of_numbers_stay_readable() -> None:
    text = f"seats = [{', '.join(['[1.25, 0.5]'] * 500)}]"
    assert len(parse_toml(text, "rooms.toml")["seats"]) == 500


def test_only_files_of_the_package_are_parsed_without_bounds() -> None:
    package = Path(fedapa.__file__).parent
    unbounded = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "tomllib.load" in path.read_text()
    }
    assert unbounded == {
        "toml.py",
        "experiments/presets/__init__.py",
        "experiments/reproduce.py",
        "stores/simulated_rooms.py",
    }

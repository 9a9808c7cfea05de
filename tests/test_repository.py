"""Promises about the source as a whole."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_there_is_no_pickle() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert not re.search(r"^\s*(import|from) (pickle|dill|cloudpickle)", text, re.M), path
        assert "torch.load(" not in text, path
        assert "allow_pickle=True" not in text, path


def test_only_randomness_touches_generators() -> None:
    pattern = re.compile(r"default_rng|np\.random\.\w+\(|manual_seed|import random\b|random\.seed")
    for path in SOURCES:
        if path.name != "randomness.py":
            assert not pattern.search(path.read_text()), path


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "misc", "manager"])
def test_no_module_has_a_name_that_says_nothing(word: str) -> None:
    assert not [path for path in SOURCES if path.stem == word or path.parent.name == word]


def test_every_module_says_what_it_is() -> None:
    for path in SOURCES:
        assert path.read_text().lstrip().startswith('"""'), path

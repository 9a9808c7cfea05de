"""Algorithms from the command line: the list, and what is refused before any training starts."""

import json
from pathlib import Path

import pytest

from fedapa.algorithms import names
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeStore


def test_the_list_has_every_algorithm_with_a_line_what_travels_and_a_source() -> None:
    listed = json.loads(fedapa("algorithms", "--json").stdout)
    assert set(listed) == set(names())
    for about in listed.values():
        assert about["summary"] and about["travels"] and about["citation"]
    assert listed["moon"]["settings"]["contrast"] == 1.0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--algorithm", "fedproto", "--set", "algorithm.contrast=1"],
            "algorithm 'fedproto': contrast: unknown key",
        ),
        (
            ["--algorithm", "fedavg", "--set", "algorithm.sharing=some"],
            "algorithm 'fedavg': sharing: input should be 'architecture'",
        ),
        (["--algorithm", "fedprotoo"], "algorithm 'fedprotoo' is unknown; did you mean 'fedproto"),
        (
            ["--algorithm", "moon", "--selection", "diverse"],
            "selection = 'diverse' compares prototypes, and MOON sends none",
        ),
        (
            ["--algorithm", "fedavg", "--set", 'model.architecture={cafe="tiny",hall="middle"}'],
            "FedAvg with sharing = 'architecture' averages nothing here: no array of cafe",
        ),
        (["--algorithm", "pooled", "--participation", "0.5"], "nobody can sit out; use"),
    ],
)
def test_refusals_are_one_sentence_before_any_training(
    flags: list[str], sentence: str, make_store: MakeStore, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    always = ["--data", make_store(), "--set", "data.window=16", "--architecture", "tiny"]
    always += ["--preset", "tables"]
    words = ["run", *always, "--workers", "0", "--rounds", "1", "--out", out, *flags]
    assert sentence in one_sentence(fedapa(*words, code=2))
    assert not (out / "rooms").exists()

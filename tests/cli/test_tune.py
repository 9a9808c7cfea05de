"""``fedapa tune`` as a user meets it."""

import json
from pathlib import Path

from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeStore


def test_a_choice_is_a_plan_that_run_takes(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store({"cafe": {0: 6, 1: 6}, "hall": {0: 6, 1: 6}}, packets=32)
    out = tmp_path / "tune"
    small = ("--set", "data.window=16", "--set", "model.width=16", "--set", "training.batch_size=4")
    words = ("tune", "fedrep", "--data", store, "--preset", "tables", "--architecture", "tiny")
    done = fedapa(*words, *small, "--rounds", "1", "--budget", "2", "--workers", "1", "--out", out)
    assert "FedRep: " in done.stdout
    assert "head_epochs" in done.stdout
    assert "test windows were not looked at" in " ".join(done.stdout.split())
    plan = out / "fedrep-seed0.toml"
    assert f"fedapa run {plan}" in done.stdout.replace("\n", "")
    ran = json.loads(
        fedapa("run", plan, "--workers", "0", "--out", tmp_path / "a", "--json").stdout
    )
    assert ran["rounds"] == 1


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    out = ("--preset", "smoke", "--out", tmp_path / "tune")
    for words, said in (
        (("tune", "fedamb", *out), "did you mean 'fedamp'?"),
        (("tune", "forest", *out), "its file names no setting to tune"),
        (("tune", "fedamp", "--metric", "acuracy", *out), "did you mean 'accuracy'?"),
        (("tune", "fedamp", "--validation", "0", *out), "expected a share above 0"),
        (("tune", "fedamp", "--set", "algorithm.name=local", *out), "leave it out"),
    ):
        assert said in one_sentence(fedapa(*words, code=2))
    assert not (tmp_path / "tune").exists()

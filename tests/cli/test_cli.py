"""The command line as a user meets it: exit codes, one sentence on stderr, what is printed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeStore


def fedapa(
    *words: str | Path, cwd: Path | None = None, code: int = 0
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "fedapa", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=900,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done


def one_sentence(done: "subprocess.CompletedProcess[str]") -> str:
    """A user's mistake: nothing on stdout, one line on stderr, no traceback.

    A busy machine may have taken so long that progress was told before.
    """
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    progress = re.compile(r"[a-z ]+: \d+ of \d+ (files|recordings|rooms|rounds|runs)\b")
    lines = [line for line in done.stderr.strip().splitlines() if not progress.match(line)]
    assert len(lines) == 1, lines
    return lines[0]


def quick_flags(store: Path, out: Path) -> list[str]:
    settings = [
        "data.window=16",
        "model.width=16",
        "training.batch_size=4",
        "algorithm.warm_rounds=2",
    ]
    return [
        *("--data", str(store), "--rounds", "2", "--split", "random", "--out", str(out)),
        *("--preset", "tables", "--architecture", "middle", "--workers", "0"),
        *(word for setting in settings for word in ("--set", setting)),
    ]


def test_help_is_there_for_every_command() -> None:
    commands = ["demo", "run", "report", "algorithms", "reproduce", "reproduce architectures"]
    overview = fedapa("--help").stdout
    for command in commands:
        assert command.split()[0] in overview
        text = fedapa(*command.split(), "--help").stdout
        assert "Usage" in text
        if command != "reproduce":
            assert "Example: fedapa" in text


def test_run_says_which_split_auto_took_and_why(make_store: MakeStore, tmp_path: Path) -> None:
    """Two takes of every count, on two days: whole recordings can be held out, days cannot."""
    store, out = make_store({"cafe": {0: 2, 1: 2}, "hall": {0: 3, 1: 3}}), tmp_path / "out"
    why = (
        "the strictest that all rooms allow; not day, because room 'cafe' was recorded on 2 of at "
        "least 3 days"
    )
    done = fedapa("run", *quick_flags(store, out), "--split", "auto")
    assert f"Split: recording ({why})" in done.stdout.replace("\n", " ")
    data = json.loads((out / "data.json").read_text())
    assert (data["split"], data["why"]) == ("recording", why)
    assert 'split = "auto"' in (out / "plan.toml").read_text()
    fedapa("run", *quick_flags(store, out), "--split", "auto", "--resume")


def test_run_writes_prints_and_resumes(make_store: MakeStore, tmp_path: Path) -> None:
    store, out = make_store(), tmp_path / "out"
    done = fedapa("run", *quick_flags(store, out))
    last = done.stderr.splitlines()[-1]
    assert last.startswith("training fedapa: 2 of 2 rounds, accuracy "), "a pipe gets a line"
    text = done.stdout
    assert "real data" in text
    assert "split random" in text
    assert "Split: random (the plan asks for it)" in text
    assert "FedAPA" in text
    assert "Always the commonest class" in text
    assert "SIMULATED" not in text
    assert "already holds a run" in one_sentence(fedapa("run", *quick_flags(store, out), code=2))
    again = fedapa("run", *quick_flags(store, out), "--resume", "--json")
    assert json.loads(again.stdout)["rounds"] == 2
    assert again.stderr == "training fedapa: 2 of 2 rounds\n", "and no bar in a pipe"


def test_a_run_with_noise_says_at_its_end_what_it_has_cost(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store, out = make_store(), tmp_path / "out"
    noised = ("--set", "privacy.epsilon=20", "--set", "privacy.unit=window")
    text = fedapa("run", *quick_flags(store, out), *noised).stdout.replace("\n", " ")
    rooms = len(json.loads((out / "summary.json").read_text())["privacy"])
    said = f"Privacy: ε is 20 of 20 at most, over {rooms} rooms (δ = 1e-05, unit: window), for the"
    assert f"{said} net taken as given; no guarantee for recordings" in text
    openly = ("--set", "rounds=open", "--out", tmp_path / "open")
    assert one_sentence(fedapa("run", *openly, code=2)).endswith("nobody could; set rounds")


def test_a_run_with_a_defence_names_suspects_at_its_end(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """One of four sends prototypes ten times as long; which one, the seed decides."""
    store = make_store({name: {0: 3, 1: 3} for name in ("bar", "cafe", "gym", "hall")})
    lying = ("--set", "attack.kind=scaled", "--set", "attack.share=0.25")
    flags = (*quick_flags(store, tmp_path / "out"), "--set", "defence=guard", *lying)
    text = fedapa("run", *flags).stdout.replace("\n", " ")
    records = (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()
    (liar,) = json.loads(records[0])["attackers"]
    assert f"Suspected: room '{liar}' in 2 of 2 rounds; its prototypes are far from" in text


def test_what_fits_once_says_so_and_once_for_all_rooms(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store({"cafe": {0: 4, 1: 4}, "hall": {0: 4, 1: 4}}, packets=64)
    text = fedapa(
        *("run", "--data", store, "--algorithm", "forest", "--view", "statistics"),
        *("--set", "data.window=32", "--set", "algorithm.trees=5", "--set", "data.overlap=0.0"),
        *("--rounds", "1", "--workers", "0", "--out", tmp_path / "out"),
    ).stdout
    assert "Random forest is fitted once: settings of training do not matter to it" in text
    assert text.count("cannot be saved") == 1
    assert "room 'cafe', room 'hall': " in text


def test_messages_in_fewer_bits_by_flag_and_by_key(make_store: MakeStore, tmp_path: Path) -> None:
    """Both ways make the same run, with fewer bytes; another word is refused."""
    store = make_store()
    told = {"flag": ["--precision", "int8"], "key": ["--set", "precision=int8"], "none": []}
    bytes_up = {}
    for name, words in told.items():
        done = fedapa("run", *quick_flags(store, tmp_path / name), *words, "--json")
        bytes_up[name] = json.loads(done.stdout)["bytes"]["bytes_up"]
    assert bytes_up["flag"] == bytes_up["key"] < bytes_up["none"]
    rounds = [(tmp_path / name / "rounds.jsonl").read_bytes() for name in ("flag", "key")]
    assert rounds[0] == rounds[1]
    wrong = fedapa("run", *quick_flags(store, tmp_path / "no"), "--precision", "int4", code=2)
    assert "precision" in one_sentence(wrong)


def test_a_resolved_plan_can_be_run_again(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    fedapa("run", *quick_flags(store, tmp_path / "one"))
    fedapa("run", tmp_path / "one" / "plan.toml", "--out", tmp_path / "two", "--workers", "0")
    for name in ("rounds.jsonl", "summary.json", "plan.toml"):
        one, two = (tmp_path / run / name for run in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_report_of_two_runs(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    fedapa("run", *quick_flags(store, tmp_path / "fedapa"))
    words = [word for word in quick_flags(store, tmp_path / "local") if "warm" not in word]
    words = words[:-1] if words[-1] == "--set" else words
    fedapa("run", *words, "--algorithm", "local")
    page = tmp_path / "report.html"
    fedapa("report", tmp_path / "local", tmp_path / "fedapa", "--out", page)
    text = page.read_text()
    assert "<svg" in text
    assert "http-equiv" not in text
    assert "SIMULATED" not in text


def test_runs_that_do_not_compare_are_not_put_side_by_side(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store()
    fedapa("run", *quick_flags(store, tmp_path / "one"))
    fedapa("run", *quick_flags(store, tmp_path / "two"), "--seed", "7")
    words = ["report", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "page.html"]
    assert "its seed (7) is not that of" in one_sentence(fedapa(*words, code=2))


def test_a_setting_that_is_no_text_is_one_sentence() -> None:
    """The shell hands bytes over that are no UTF-8."""
    for key in ("model.architecture", "selection", "algorithm.name", "data.file"):
        said = one_sentence(fedapa("run", "--set", f"{key}=\udcff\udcfe", code=2))
        assert said.startswith("fedapa: ")


def test_odd_names_are_printed_as_they_are(make_store: MakeStore, tmp_path: Path) -> None:
    out = tmp_path / "x[/]y"
    assert "x[/]y" in fedapa("run", *quick_flags(make_store(), out)).stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "--preset", "quik"], "did you mean 'quick'"),
        (["run", "--algorithm", "fedapp"], "did you mean 'fedapa'"),
        (["run", "--rounds", "0"], "rounds: input should be greater than or equal to 1"),
        (["run", "--set", "training.lr=1"], "training.lr: unknown key"),
        (["run", "--set", "nonsense"], "write KEY=VALUE"),
        (["run", "--preset", "smoke", "--set", "data.decimate=100000"], "leaves nothing of a wind"),
        (["run", "--split", "recordng"], "data.split"),
        (["run", "--data", "absent.h5", "--out", "new"], "absent.h5: no such file"),
        (["run", "absent.toml"], "absent.toml: no such file; expected a plan"),
        (["report", "absent"], "absent: no such folder; name one that"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str], complaint: str, tmp_path: Path
) -> None:
    assert complaint in one_sentence(fedapa(*words, cwd=tmp_path, code=2))
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_what_is_no_plan_is_refused_with_what_to_give_instead(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store()
    assert f"is a store of rooms, not a plan; give it with --data {store}" in one_sentence(
        fedapa("run", store, code=2)
    )
    (tmp_path / "empty").mkdir()
    folder = one_sentence(fedapa("run", tmp_path / "empty", code=2))
    assert "is a folder; expected a plan" in folder
    assert "--data" in folder
    assert "holds no finished run; name a folder that 'fedapa run' wrote" in one_sentence(
        fedapa("report", tmp_path / "empty", code=2)
    )


def test_a_runs_folder_in_place_of_a_plan_is_answered_with_a_command_that_goes_on(
    make_store: MakeStore, tmp_path: Path
) -> None:
    out = tmp_path / "one"
    fedapa("run", *quick_flags(make_store(), out))
    said = one_sentence(fedapa("run", out, code=2))
    command = said.partition("'fedapa ")[2].partition("'")[0]
    assert command == f"run {out}/plan.toml --out {out} --resume"
    fedapa(*command.split())


def test_a_wrong_flag_is_exit_code_2() -> None:
    assert "Traceback" not in fedapa("run", "--no-such-flag", code=2).stderr


def test_architectures_as_json() -> None:
    found = json.loads(fedapa("reproduce", "architectures", "--json").stdout)
    assert [found[net]["parameters"] for net in ("tiny", "middle", "large")] == [
        7_956,
        18_436,
        463_748,
    ]
    assert "606.35" in fedapa("reproduce", "architectures").stdout


def test_algorithms_lists_every_module() -> None:
    from fedapa.algorithms import names

    assert set(json.loads(fedapa("algorithms", "--json").stdout)) == set(names())
    text = fedapa("algorithms").stdout
    assert all(name in text for name in names())


@pytest.mark.slow
def test_the_demo_says_simulated_everywhere(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    text = fedapa("demo", "--out", out, "--rounds", "2").stdout
    assert text.count("SIMULATED") >= 3
    page = (out / "index.html").read_text()
    assert "SIMULATED rooms." in page
    assert page.count("SIMULATED") >= 5, "each figure carries the word"
    assert "guessing reaches" in text.splitlines()[-1], "the answer is the last thing to read"
    assert page.index("right within one person") < page.index("<table"), "people first"
    assert page.count("right within one person for") == 6, "one sentence for each room"
    assert "guessing reaches" in page
    for algorithm in ("local", "fedapa", "linear", "forest"):
        assert json.loads((out / algorithm / "summary.json").read_text())["synthetic"]
        assert json.loads((out / algorithm / "data.json").read_text())["synthetic"]
    nets = {
        about["architecture"]
        for about in json.loads((out / "fedapa" / "data.json").read_text())["rooms"].values()
    }
    assert nets == {"counter"}
    rounds = [out / algorithm / "rounds.jsonl" for algorithm in ("local", "fedapa", "linear")]
    written = [path.stat().st_mtime_ns for path in rounds]
    assert fedapa("demo", "--out", out, "--rounds", "2").stdout == text
    again = [path.stat().st_mtime_ns for path in rounds]
    assert written == again, "a finished demo is shown, not run again"


@pytest.mark.parametrize("words", [["algorithms"], ["algorithms", "--json"], ["--help"]])
def test_a_reader_that_leaves_early_ends_it_quietly(words: list[str]) -> None:
    """As ``fedapa algorithms | head -1``; 141 is what shells say of it: 128 + SIGPIPE."""
    command = subprocess.Popen(
        [sys.executable, "-m", "fedapa", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None and command.stderr is not None
    command.stdout.close()
    assert command.stderr.read() == b""
    command.stderr.close()
    assert command.wait() == 141


def test_a_terminal_without_unicode_gets_escapes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fedapa", "simulate", "--preset", "smoke", "--out", "räume.h5"],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert rb"r\xe4ume.h5: SIMULATED" in done.stdout


def test_stdout_may_be_closed() -> None:
    for_sh = f"{sys.executable} -m fedapa algorithms >&-"
    done = subprocess.run(["sh", "-c", for_sh], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_that_are_no_text_are_taken_or_refused_in_a_sentence(tmp_path: Path) -> None:
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")
    done = fedapa("simulate", "--preset", "smoke", "--out", f"{strange}.h5")
    assert r"a\udcff.h5: SIMULATED rooms" in done.stdout
    refused = [
        ("run", "--data", f"{strange}.h5"),
        ("compare", f"{strange}.h5", "--out", f"{strange}.runs"),
        ("run", f"{strange}.toml"),
        ("report", strange),
        ("inspect", strange),
        ("import", strange, "--out", tmp_path / "rooms.h5"),
        ("simulate", "--rooms", f"{strange}.toml", "--out", tmp_path / "rooms.h5"),
    ]
    for words in refused:
        assert r"a\udcff" in one_sentence(fedapa(*words, code=2))

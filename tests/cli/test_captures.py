"""Inspecting, importing and simulating captures as a user does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedapa.report.figures.data import draw_waterfall
from fedapa.stores.store import Store
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import hear_ctrl_c
from tests.csi.capture_bytes import bfee, intel_csi, nexmon_file

FITS = ("--pattern", "{room}/{day}/P={count}.dat")


def captures(folder: Path, rooms: int = 2, takes: int = 3, packets: int = 40) -> Path:
    """{room}/{day}/P={count}.dat, each take of its own."""
    for room in range(rooms):
        for day in range(takes):
            for count in range(2):
                path = folder / f"room{room}" / f"day{day}" / f"P={count}.dat"
                path.parent.mkdir(parents=True, exist_ok=True)
                seed = 10_000 * room + 1000 * day + 100 * count
                path.write_bytes(
                    b"".join(
                        bfee(intel_csi(1, 1, seed + i), clock=10_000 * i, count=i)
                        for i in range(packets)
                    )
                )
    return folder


def test_inspect_says_what_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "kitchen.bin"
    path.write_bytes(nexmon_file(30, 80)[:-1])
    text = fedapa("inspect", path, "--window", "10").stdout
    for words in ("nexmon 43455c0", "242 live of 256", "29 in 0.3 s", "2 of 10 packets"):
        assert words in text
    assert "1 × cut off at the end" in text


def test_inspect_draws_and_speaks_json(tmp_path: Path) -> None:
    path = tmp_path / "kitchen.pcap"
    path.write_bytes(nexmon_file(30, 20))
    done = fedapa("inspect", path, path, "--json", "--plot", "--out", tmp_path / "pictures")
    first, second = json.loads(done.stdout)["files"]
    assert first == second
    assert (first["packets"], first["bandwidth"], first["left_out"]) == (30, 20, {})
    assert (tmp_path / "pictures" / "kitchen.pcap.png").read_bytes().startswith(b"\x89PNG")


def test_inspect_shows_the_good_files_and_then_what_is_wrong(tmp_path: Path) -> None:
    for name, content in (("a", nexmon_file(3)), ("b", b"hello"), ("c", nexmon_file(4))):
        (tmp_path / name).write_bytes(content)
    files = [tmp_path / name for name in ("a", "b", "c")]
    done = fedapa("inspect", *files, code=2)
    assert "3 in 0.0 s" in done.stdout
    assert "4 in 0.0 s" in done.stdout
    assert done.stderr.startswith("fedapa: b@0: begins with")
    done = fedapa("inspect", *files, tmp_path / "d", "--json", code=2)
    assert [each["packets"] for each in json.loads(done.stdout)["files"]] == [3, 4]
    assert [line[:8] for line in done.stderr.splitlines()] == ["fedapa: "] * 2


def test_inspect_takes_a_folder_for_pictures_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(nexmon_file(3))
    done = fedapa("inspect", tmp_path / "a", "--out", tmp_path, code=2)
    assert "give --plot too" in one_sentence(done)


def test_pictures_of_files_of_one_name_do_not_go_into_one_folder(tmp_path: Path) -> None:
    files = [tmp_path / room / "P=0.pcap" for room in ("a", "b")]
    for path in files:
        path.parent.mkdir()
        path.write_bytes(nexmon_file(3))
    done = fedapa("inspect", *files, "--plot", "--out", tmp_path / "pictures", code=2)
    assert "several files are named P=0.pcap" in one_sentence(done)
    found = json.loads(fedapa("inspect", *files, "--json").stdout)["files"]
    assert [each["file"] for each in found] == list(map(str, files))


def test_odd_names_are_drawn(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and what would be a formula to the drawing library."""
    for name in (os.fsdecode(b"\xff.pcap"), "$x^_$.pcap"):
        path = tmp_path / name
        try:
            path.write_bytes(nexmon_file(3))
        except OSError:
            continue  # not on this file system
        draw_waterfall(path, tmp_path / "picture.png")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello", r"hall.dat@0: begins with 68 65 6c 6c 6f; expected a Nexmon"),
        (nexmon_file(2)[:30], "no usable CSI frame"),
    ],
    ids=["no capture", "no frame"],
)
def test_inspect_of_something_else_is_one_sentence(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "hall.dat"
    path.write_bytes(content)
    assert words in one_sentence(fedapa("inspect", path, code=2))
    assert "no such file" in one_sentence(fedapa("inspect", tmp_path / "nowhere", code=2))


def test_import_makes_a_store_that_runs(tmp_path: Path) -> None:
    folder, out = captures(tmp_path / "captures"), tmp_path / "rooms.h5"
    words = ("import", folder, "--pattern", "{room}/{day}/P={count}.dat", "--out", out)
    text = fedapa(*words, "--window", "20").stdout
    assert "room1" in text
    assert "Store:" in text
    again = json.loads(fedapa(*words, "--json").stdout)
    assert again["rooms"]["room0"]["known"] == 6
    assert "notes" not in again
    longer = json.loads(fedapa(*words, "--window", "2000", "--json").stdout)
    assert "shorter than asked (no recordings for 2000 packets)" in longer["notes"][0]
    fedapa(*words, "--window", "20")
    fedapa(
        *("run", "--data", out, "--rounds", "1", "--architecture", "tiny", "--workers", "0"),
        *("--preset", "tables", "--set", "model.width=16", "--out", tmp_path / "run"),
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "say what its paths mean, e.g. --pattern '{room}/{day}/P={count}.pcap'"),
        (("--pattern", "{room}/{count}"), "none of 12 files fits the pattern"),
        (("--layout", "wicla"), "--layout wicla is unknown; known: wical"),
        (("--layout", "wical", "--pattern", "{room}"), "has its own pattern"),
        (("--layout", "wical", "--unlabelled"), "has labels of its own; leave --unlabelled out"),
        (("--pattern", "{room}/{day}/P={count}.dat", "--unlabelled"), "names {count}, and --unl"),
        ((*FITS, "--days-of-a-room"), "--days-of-a-room is for --layout wical"),
        (("--layout", "wical"), "expected a path like <room>/sess<day>/P=<count>.csv"),
        (
            ("--pattern", "{room}/{day}/P={count}.dat", "--chip", "4358"),
            "chip='4358' is for Nexmon captures",
        ),
        (
            ("--pattern", "{room}/{day}/P={count}.dat", "--rate", "100", "--low-pass", "80"),
            "needs more than 160 packets per second",
        ),
        (
            ("--pattern", "{room}/{day}/P={count}.dat", "--low-pass", "30"),
            "needs even packets; give --rate too",
        ),
        ((*FITS, "--rate", "inf"), "rate inf is no rate of packets"),
        ((*FITS, "--rate", "1e12"), "rate 1e+12 is no rate of packets"),
        ((*FITS, "--rate", "nan"), "rate nan is no rate of packets"),
        ((*FITS, "--low-pass", "nan"), "low-pass nan is no cut-off"),
        ((*FITS, "--gate", "nan"), "gate nan is no share"),
        ((*FITS, "--gate", "1"), "gate 1 is no share"),
        ((*FITS, "--gate", "-0.1"), "gate -0.1 is no share"),
        ((*FITS, "--longest-gap", "1"), "needs a rate"),
        ((*FITS, "--rate", "50", "--longest-gap", "-1"), "longest gap -1 is no number of seconds"),
        (("--layout", "wical", "--rate", "50", "--gate", "0"), "leave --rate, --gate out"),
        (("--layout", "wical", "--window", "50"), "leave --window out"),
        (("--layout", "wical", "--salvage"), "leave --salvage out"),
    ],
)
def test_import_says_what_is_wrong(tmp_path: Path, flags: tuple[str, ...], words: str) -> None:
    folder = captures(tmp_path / "captures")
    if flags == ("--layout", "wical"):
        (folder / "P=1.csv").write_text("1\n")
    done = fedapa("import", folder, "--out", tmp_path / "rooms.h5", *flags, code=2)
    assert words in one_sentence(done)
    assert not (tmp_path / "rooms.h5").exists()


def test_import_of_nothing_says_so(tmp_path: Path) -> None:
    done = fedapa("import", tmp_path / "nowhere", "--out", tmp_path / "rooms.h5", code=2)
    assert "no such folder or manifest" in one_sentence(done)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no rows; expected a CSV manifest with a header"),
        (bytes(range(256)), "cannot be read as CSV"),
        (nexmon_file(3), "is a capture (nexmon), which does not tell its room and label"),
        (b"\x89HDF\r\n\x1a\n", "is a store already, not captures; learn from it with 'fedapa run"),
    ],
    ids=["empty", "bytes", "capture", "store"],
)
def test_what_is_no_manifest_is_refused_with_what_to_give_instead(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "kitchen.pcap"
    path.write_bytes(content)
    said = one_sentence(fedapa("import", path, "--out", tmp_path / "rooms.h5", code=2))
    assert words in said
    assert "--data" in said or "a CSV manifest" in said


def test_inspecting_a_folder_names_a_capture_in_it(tmp_path: Path) -> None:
    folder = captures(tmp_path / "in")
    said = one_sentence(fedapa("inspect", folder, code=2))
    assert f"e.g. {folder}/room0/day0/P=0.dat; 'fedapa import' makes a store of a folder" in said


def test_simulate_names_its_presets(tmp_path: Path) -> None:
    words = ("simulate", "--out", tmp_path / "rooms.h5", "--preset")
    assert "'nosuch' is unknown; known: activities, long, quick, six" in one_sentence(
        fedapa(*words, "nosuch", code=2)
    )
    assert "did you mean 'quick'?" in one_sentence(fedapa(*words, "quik", code=2))


def test_simulate_asks_where_to() -> None:
    assert "--out FILE" in one_sentence(fedapa("simulate", code=2))


@pytest.mark.parametrize("where", [("--out", "rooms.h5"), ("--pcap", "a", "--out", "rooms.h5")])
def test_visits_are_captures_only(where: tuple[str, ...]) -> None:
    assert "--pcap FOLDER" in one_sentence(fedapa("simulate", "--visits", "60", *where, code=2))


def test_simulated_visits_can_be_inspected(tmp_path: Path) -> None:
    folder = tmp_path / "visits"
    fedapa("simulate", "--preset", "smoke", "--visits", "20", "--pcap", folder)
    assert (folder / "hotel room.csv").read_text().startswith("time,people\n0.000,")
    assert "SIMULATED" in fedapa("inspect", folder / "hotel room.pcap").stdout


@pytest.mark.slow
def test_simulated_captures_are_imported_as_simulated(tmp_path: Path) -> None:
    fedapa("simulate", "--preset", "smoke", "--pcap", tmp_path / "captures")
    out = tmp_path / "rooms.h5"
    pattern = "{room}/{day}/P={count}-{recording}.pcap"
    fedapa("import", tmp_path / "captures", "--pattern", pattern, "--out", out)
    with Store(out) as store:
        assert store.synthetic
        assert len(store.rooms) == 6
    text = fedapa("inspect", tmp_path / "captures" / "bus" / "0" / "P=8-0.pcap").stdout
    assert "SIMULATED" in text


@pytest.mark.slow
def test_captures_without_a_label_go_from_their_files_to_a_room_that_joins(tmp_path: Path) -> None:
    """Five commands train: what was recorded with three people in a room has no label there."""
    folder, night, out = (tmp_path / name for name in ("captures", "night", "rooms.h5"))
    fedapa("simulate", "--preset", "smoke", "--pcap", folder)
    for number, path in enumerate(sorted((folder / "living room").glob("*/P=3-*.pcap"))):
        new = night / "living room" / path.parent.name / f"evening {number}.pcap"
        new.parent.mkdir(parents=True, exist_ok=True)
        path.rename(new)
    pattern = "{room}/{day}/P={count}-{recording}.pcap"
    fedapa("import", folder, "--pattern", pattern, "--window", "64", "--out", out)
    add = ("import", night, "--pattern", "{room}/{day}/{name}.pcap", "--out", out)
    assert "--unlabelled" in one_sentence(fedapa(*add, code=2))
    rooms = json.loads(fedapa(*add, "--unlabelled", "--json").stdout)["rooms"]
    told = {name: rooms["living room"][name] for name in ("labels", "recordings", "unlabelled")}
    assert told == {"labels": [], "recordings": 4, "unlabelled": 4}
    assert "no label" in fedapa(*add, "--unlabelled").stdout

    smoke = ("--preset", "smoke", "--architecture", "tiny", "--rounds", "2", "--workers", "0")
    count = "Without a label, and never tested: 12 windows of room 'living room'"
    local = fedapa("run", *smoke, "--data", out, "--algorithm", "local", "--out", tmp_path / "a")
    assert count in local.stdout
    assert "Note: Local does not learn from windows without a label" in local.stdout
    fedjoin = ("--algorithm", "fedjoin", "--set", "algorithm.labelled_rounds=0")
    done = fedapa("run", *smoke, "--data", out, *fedjoin, "--out", tmp_path / "b")
    assert count in done.stdout
    assert "does not learn" not in done.stdout
    assert "rooms learn from labels alone" not in " ".join(done.stdout.split())
    few = ("--algorithm", "fedjoin", "--rounds", "1", "--out", tmp_path / "few")
    short = fedapa("run", *smoke, "--data", out, *few)
    assert "from labels alone for 10 rounds, and there are 1;" in " ".join(short.stdout.split())
    others = ("--data", out, "--without", "living room")
    fedapa("run", *smoke, *others, *fedjoin, "--out", tmp_path / "c")
    new = ("join", tmp_path / "c", "--data", out, "--only", "living room", "--workers", "0")
    assert "with --counts" in fedapa(*new, "--out", tmp_path / "d").stdout
    assert count in fedapa(*new, "--counts", "0-3", "--out", tmp_path / "e").stdout
    learned = {
        name: "loss_unlabelled" in (tmp_path / name / "rounds.jsonl").read_text()
        for name in ("a", "b", "c", "d/fedjoin", "e/fedjoin")
    }
    assert learned == {"a": False, "b": True, "c": False, "d/fedjoin": False, "e/fedjoin": True}

    assert "0 evening 0" in fedapa("label", out).stdout
    label = ("label", out, "--room", "living room", "--recording", "* evening *")
    assert "one of --count, --label and --none" in one_sentence(fedapa(*label, code=2))
    given = fedapa(*label, "--count", "3").stdout
    assert "0 evening 0: 3, trains and never tests" in given
    assert json.loads(fedapa("label", out, "--json").stdout) == {"without_label": []}
    again = json.loads(fedapa(*new, "--no-curve", "--out", tmp_path / "f", "--json").stdout)
    assert again["may_answer"] == {"living room": [0, 1, 2, 3]}


@pytest.mark.data
@pytest.mark.slow
def test_wiar_goes_from_its_tree_to_a_run(shared_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "wiar.h5"
    pattern = "{room}/csi_a{label}_{repetition}.dat"
    done = fedapa(
        *("import", shared_data / "wiar", "--pattern", pattern, "--out", out),
        *("--window", "128", "--json"),
    )
    rooms = json.loads(done.stdout)["rooms"]
    assert len(rooms) == 6
    assert all(room["recordings"] == 160 for room in rooms.values())
    assert sum(room["copies"] for room in rooms.values()) == 20
    done = fedapa(
        *("run", "--data", out, "--rounds", "1", "--architecture", "tiny", "--workers", "0"),
        *("--preset", "tables", "--set", "model.width=16", "--out", tmp_path / "run", "--json"),
    )
    mean = json.loads(done.stdout)["over_rooms"]["mean"]
    assert "accuracy" in mean
    assert "mae" not in mean  # activities are no numbers


@pytest.mark.data
@pytest.mark.slow
def test_wical_goes_from_its_rows_to_a_run(shared_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "wical.h5"
    rows = shared_data / "wical" / "wical_counting.npz"
    done = fedapa("import", rows, "--layout", "wical", "--out", out, "--json")
    rooms = json.loads(done.stdout)["rooms"]
    assert len(rooms) == 6
    assert sum(room["packets"] for room in rooms.values()) == 10_149
    done = fedapa(
        *("run", "--data", out, "--rounds", "1", "--architecture", "mlp", "--workers", "0"),
        *("--preset", "tables", "--split", "blocked", "--out", tmp_path / "run", "--json"),
    )
    assert json.loads(done.stdout)["over_rooms"]["mean"]["mae"] < 3


def test_rooms_are_named_chosen_and_left_out_on_import(tmp_path: Path) -> None:
    folder = captures(tmp_path / "in", rooms=3, takes=1)
    fedapa("import", folder, *FITS, "--without", "room1", "--out", tmp_path / "two.h5")
    fedapa("import", folder, *FITS, "--only", "room1", "--out", tmp_path / "one.h5")
    one_room = ("--pattern", "{day}/P={count}.dat", "--room", "cafe")
    fedapa("import", folder / "room0", *one_room, "--out", tmp_path / "cafe.h5")
    for name, rooms in {"two": ("room0", "room2"), "one": ("room1",), "cafe": ("cafe",)}.items():
        with Store(tmp_path / f"{name}.h5") as store:
            assert store.rooms == rooms
    refused = fedapa("import", folder, *FITS, "--only", "room7", "--out", "x.h5", code=2)
    assert "there is no room 'room7'; did you mean 'room" in one_sentence(refused)


def test_an_npz_names_its_layout(tmp_path: Path) -> None:
    path = tmp_path / "counting.npz"
    path.write_bytes(b"PK")
    refused = one_sentence(fedapa("import", path, "--out", tmp_path / "rooms.h5", code=2))
    assert refused == f"fedapa: {path}: an .npz is read with --layout wical; give that too"


def test_a_folder_given_as_data_names_import(tmp_path: Path) -> None:
    refused = one_sentence(fedapa("run", "--data", tmp_path, "--workers", "0", code=2))
    assert (
        f"{tmp_path}: is a folder; expected a store, which 'fedapa import' makes of one" in refused
    )


def test_ctrl_c_at_any_moment_of_an_import_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    """Presses come from a thread of the process itself, when the import has begun to write."""
    folder = captures(tmp_path / "in", rooms=4, takes=8)
    code = """
import os, random, signal, sys, threading, time
from fedapa.cli import main
from fedapa.stores import append

sys.argv = ["fedapa", *sys.argv[2:]]
delay = float(os.environ["DELAY"])
begun = append.append_store

def press(at):
    time.sleep(at)
    os.kill(os.getpid(), signal.SIGINT)

def watched(path):
    threading.Thread(target=press, args=[delay], daemon=True).start()
    return begun(path)

import fedapa.stores.imported.captures as captures
captures.append_store = watched
main()
"""
    out = tmp_path / "rooms.h5"
    for number in range(8):
        done = subprocess.run(
            [sys.executable, "-c", code, "-", "import", folder, *FITS, "--out", out],
            env={**os.environ, "DELAY": str(0.002 + 0.012 * number)},
            capture_output=True,
            text=True,
            preexec_fn=hear_ctrl_c,
            check=False,
        )
        if done.returncode == 0:
            break  # it was done before
        assert done.returncode == 130, done.stderr
        assert done.stderr == "stopped; nothing is half written, a run goes on with --resume\n"
        assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert number > 0

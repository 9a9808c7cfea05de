"""Real processes over TLS on loopback: equal to in process, strangers refused, kills survived.

One server and three rooms for all tests here: starting them is what takes long.
"""

import base64
import datetime
import json
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedapa import Plan, run
from fedapa.errors import RunError
from fedapa.evaluation.record import JsonLines
from fedapa.federation.network.certificates import make_certificates
from fedapa.federation.network.checking import check_server
from fedapa.federation.network.place import Connection
from fedapa.federation.network.room import make_room_folder
from tests.federation.network.loopback import Federation, wait_until
from tests.federation.test_flower import THREE, models
from tests.federation.test_flower import plan_of as small_plan

pytestmark = [pytest.mark.network, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("network"), store)
    for room in THREE:
        made.enrol(room)
    try:
        made.start_server()
        for room in THREE:
            made.start_room(room)
        made.wait_for_rooms(*THREE)
        yield made
    finally:
        made.end()


def plan_file(folder: Path, name: str, store: Path, **values: Any) -> tuple[Path, Plan]:
    plan = small_plan(store, **values)
    path = folder / f"{name}.toml"
    document = plan.document()
    del document["data"]["file"]
    path.write_text(Plan(**document).toml())
    return path, plan


def trained_models(federation: Federation, out: Path) -> dict[str, bytes]:
    name = (out / "name").read_text().strip()
    return {
        f"{room}.safetensors": (
            federation.folder / room / "models" / name / f"{room}.safetensors"
        ).read_bytes()
        for room in THREE
    }


def check_equal(federation: Federation, out: Path, plan: Plan, here: Path) -> None:
    run(plan, out=here, workers=0)
    assert (out / "rounds.jsonl").read_bytes() == (here / "rounds.jsonl").read_bytes()
    assert trained_models(federation, out) == models(here)


def test_a_run_over_tls_is_the_one_in_process(
    federation: Federation, store: Path, tmp_path: Path
) -> None:
    """Models, records and the bytes in them; longer than 10 s: nodes look for work every 3 s."""
    path, plan = plan_file(tmp_path, "equal", store, rounds=2, network={"deadline": 240})
    out = federation.begin(path)
    federation.wait_for_end()
    check_equal(federation, out, plan, tmp_path / "here")
    told = federation.status()
    assert told["run"]["state"] == "finished"
    assert {room: about["round"] for room, about in told["rooms"].items()} == dict.fromkeys(
        THREE, 2
    )
    assert all(about["bytes"] > 0 for about in told["rooms"].values())


def signed(key: ec.EllipticCurvePrivateKey, *, seconds: float = 0.0) -> dict[str, str]:
    """What a SuperNode says of itself in every request."""
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    told = now.isoformat()
    signature = key.sign(told.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    return {
        "flwr-public-key": base64.b64encode(public).decode(),
        "flwr-timestamp": told,
        "flwr-signature": base64.b64encode(signature).decode(),
        "content-type": "application/protobuf",
    }


def client_of(federation: Federation) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(federation.server.authority))
    return httpx.Client(base_url=f"https://{federation.address}", verify=context, timeout=60)


def room_key(federation: Federation, room: str) -> ec.EllipticCurvePrivateKey:
    content = (federation.folder / room / "room.key").read_bytes()
    key = serialization.load_ssh_private_key(content, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def test_strangers_are_refused_with_a_reason_and_logged(
    federation: Federation, tmp_path: Path
) -> None:
    path = "/v1/fleet/pull-messages"
    stranger = ec.generate_private_key(ec.SECP384R1())
    with client_of(federation) as client:
        assert client.post(path).status_code == 401
        assert client.post(path, headers=signed(stranger)).status_code == 401
        # An enrolled key that somebody else only knows the public half of: the SuperLink's turn.
        forged = signed(stranger)
        forged["flwr-public-key"] = signed(room_key(federation, "cafe"))["flwr-public-key"]
        assert client.post(path, headers=forged).status_code in (400, 401)
        late = client.post(path, headers=signed(room_key(federation, "cafe"), seconds=3600))
        assert late.status_code == 401
        assert "clock is 3600 s ahead" in late.json()["message"]
    reasons = [line["reason"] for line in federation.server.refused()]
    assert "no key" in reasons
    assert any("is not enrolled" in reason for reason in reasons)
    assert any("clock is 3600 s ahead" in reason for reason in reasons)
    folder = tmp_path / "stranger"
    make_room_folder(folder)
    connection = Connection(federation.address, federation.server.authority)
    with pytest.raises(RunError, match="does not know the key of this room"):
        check_server(connection, folder, "cafe")
    with pytest.raises(RunError, match="knows this room as 'cafe', and it is started as 'hall'"):
        check_server(connection, federation.folder / "cafe", "hall")
    make_certificates(tmp_path, "localhost")
    with pytest.raises(RunError, match="certificate is not of the authority in"):
        check_server(
            Connection(federation.address, tmp_path / "ca.crt"), federation.folder / "cafe", "cafe"
        )


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/control/list-nodes",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/fleet/../control/start-run",
        "/health",
        "/",
    ],
)
def test_control_paths_are_refused_from_outside(federation: Federation, path: str) -> None:
    with client_of(federation) as client:
        for headers in ({}, signed(room_key(federation, "cafe"))):
            answer = client.post(path, headers=headers)
            assert answer.status_code == 403
            assert answer.json()["message"] == "no path that a room needs"
    assert any(line["path"].endswith(path.split("/")[-1]) for line in federation.server.refused())


def test_the_superlink_listens_on_loopback_alone(federation: Federation) -> None:
    listening = {
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    port = f"{federation.server.settings.inner_port:04X}"
    assert {entry for entry in listening if entry.endswith(f":{port}")} == {f"0100007F:{port}"}


def test_a_room_killed_in_a_round_is_not_waited_for_and_comes_back_with_its_state(
    federation: Federation, store: Path, tmp_path: Path
) -> None:
    """In a run without a last round, which then gets one. Longer than 10 s: deadlines pass."""
    waits = {"network": {"deadline": 20}}
    path, _ = plan_file(tmp_path, "killed", store, rounds="open", **waits)
    out = federation.begin(path)

    def records() -> list[dict[str, Any]]:
        return JsonLines(out / "rounds.jsonl").read() if (out / "rounds.jsonl").is_file() else []

    def missed() -> list[int]:
        return [
            line["round"]
            for line in records()
            if "lab" in line.get("missing", {}).get("upload", ())
        ]

    def trained() -> list[int]:
        return [line["round"] for line in records() if line["rooms"]["lab"]["participated"]]

    wait_until(trained, "a round of all rooms")
    federation.kill("lab")
    wait_until(missed, "a round without the room")
    federation.start_room("lab")
    wait_until(lambda: max(trained()) > min(missed()), "a round with the room again")
    kept = list((federation.folder / "cafe" / "models").rglob("*.safetensors"))
    assert kept, "in an open run a room has its net at any time"
    plan_file(tmp_path, "killed", store, rounds=records()[-1]["round"] + 3, **waits)
    federation.begin(path)
    federation.wait_for_end()
    notes = json.loads((out / "summary.json").read_text()).get("notes", [])
    assert not any("joined" in note for note in notes), "with the state that it had"
    assert all(line["rooms"]["cafe"]["participated"] for line in records())


def test_a_run_goes_on_bit_equal_whatever_of_the_server_is_killed(
    federation: Federation, store: Path, tmp_path: Path
) -> None:
    """Its run, its SuperLink while rooms work, then everything; longer: programs start again."""
    path, plan = plan_file(
        tmp_path, "kills", store, rounds=4, network={"deadline": 400, "quorum": 3}
    )
    out = federation.begin(path)
    federation.wait_for_round(out, 1)
    os.kill(child_of(federation.processes["server"].pid, "run"), 9)
    wait_until(lambda: "round 3: working" in since_begin(federation, "cafe"), "round 3")
    os.kill(child_of(federation.processes["server"].pid, "superlink"), 9)
    federation.wait_for_round(out, 3)
    federation.kill("server")
    federation.start_server()
    federation.wait_for_end()
    check_equal(federation, out, plan, tmp_path / "here")


def since_begin(federation: Federation, room: str) -> str:
    """What a room said since the run began."""
    return federation.said(room).rpartition("introducing itself")[2]


def child_of(parent: int, program: str) -> int:
    """The process of a program that a server started."""

    def found() -> int | None:
        for status in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = status.read_bytes().split(b"\0")
            except OSError:
                continue
            wanted = [str(parent).encode(), program.encode()]
            if wanted in [words[place : place + 2] for place in range(len(words))]:
                return int(status.parent.name)
        return None

    return int(wait_until(found, f"a process {program} of {parent}"))


def test_an_expelled_room_is_refused_and_the_run_goes_on_without(
    federation: Federation, store: Path, tmp_path: Path
) -> None:
    """The last test: its key is refused for good."""
    path, _ = plan_file(tmp_path, "expelled", store, rounds=3, network={"deadline": 240})
    out = federation.begin(path)
    federation.wait_for_round(out, 1)
    federation.server.expel("hall")
    began = time.monotonic()
    federation.wait_for_end()
    assert time.monotonic() - began < 240, "nobody waits until the deadline for who was expelled"
    assert "hall" not in JsonLines(out / "rounds.jsonl").read()[-1]["rooms"]
    with client_of(federation) as client:
        answer = client.post(
            "/v1/fleet/pull-messages", headers=signed(room_key(federation, "hall"))
        )
    assert answer.status_code == 401
    log = federation.folder / "hall.out"
    wait_until(lambda: "does not know the key of this room" in log.read_text(), str(log))
    # What is told after the one who was expelled; Flower has its node for good.
    federation.server.enrol(make_room_folder(federation.folder / "new hall"), "new hall")
    wait_until(lambda: "new hall" in federation.server.nodes(), "another room to be enrolled")

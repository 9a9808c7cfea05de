"""A server's folder, its certificates and who is enrolled."""

import datetime
import json
from pathlib import Path

import pytest
from cryptography import x509

from fedapa.errors import DataError, RunError
from fedapa.federation.network.certificates import last_day, make_certificates
from fedapa.federation.network.place import Connection
from fedapa.federation.network.room import make_room_folder
from fedapa.federation.network.server_folder import Job, ServerFolder, Settings


@pytest.fixture
def server(tmp_path: Path) -> ServerFolder:
    return ServerFolder.make(tmp_path / "server", Settings("example.org"))


def test_a_server_has_a_certificate_of_its_own_authority(server: ServerFolder) -> None:
    authority, own = (
        x509.load_pem_x509_certificate((server.path / name).read_bytes())
        for name in ("ca.crt", "server.crt")
    )
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["example.org", "localhost"]
    left = last_day(server.authority) - datetime.datetime.now(datetime.UTC)
    assert left.days > 3000


def test_keys_are_readable_by_their_owner_alone(server: ServerFolder, tmp_path: Path) -> None:
    make_room_folder(tmp_path / "room")
    for path in (server.path / "ca.key", server.path / "server.key", tmp_path / "room/room.key"):
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_an_address_may_be_the_name(tmp_path: Path) -> None:
    make_certificates(tmp_path, "192.0.2.7")
    own = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "192.0.2.7" in map(str, names.get_values_for_type(x509.IPAddress))


def test_rooms_are_enrolled_once_and_expelled_for_good(
    server: ServerFolder, tmp_path: Path
) -> None:
    first, second = (make_room_folder(tmp_path / name) for name in ("first", "second"))
    server.enrol(first, "kitchen")
    server.note_node("kitchen", 7)
    assert server.nodes() == {"kitchen": 7}
    with pytest.raises(DataError, match="'kitchen' is enrolled already"):
        server.enrol(second, "kitchen")
    with pytest.raises(DataError, match="this key is enrolled as room 'kitchen'"):
        server.enrol(first, "hall")
    with pytest.raises(DataError, match="did you mean 'kitchen'"):
        server.expel("kitchn")
    server.expel("kitchen")
    assert (server.nodes(), server.keys()) == ({}, {})
    with pytest.raises(DataError, match="this key was expelled as room 'kitchen'"):
        server.enrol(first, "kitchen")
    server.enrol(second, "kitchen")  # the room comes back with a new key
    assert list(server.keys().values()) == ["kitchen"]
    with pytest.raises(DataError, match="was expelled"):
        server.enrol(first, "attic")


@pytest.mark.parametrize("key", ["", "ssh-rsa nonsense", "hello"])
def test_what_is_no_key_is_a_sentence(server: ServerFolder, key: str) -> None:
    with pytest.raises(DataError, match=r"expected the file 'room\.pub'"):
        server.enrol(key, "kitchen")


def test_folders_that_hold_something_are_refused(server: ServerFolder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not empty"):
        ServerFolder.make(server.path, Settings("example.org"))
    with pytest.raises(DataError, match="is not empty"):
        make_room_folder(server.path)
    with pytest.raises(DataError, match="holds no server; make one with"):
        ServerFolder.open(tmp_path)


def test_damaged_files_are_a_sentence(server: ServerFolder) -> None:
    (server.path / "rooms.json").write_text('{"kitchen": {"key": 3}}')
    with pytest.raises(RunError, match=r"rooms\.json: is damaged"):
        server.rooms()
    (server.path / "rooms.json").write_text("{")
    with pytest.raises(RunError, match=r"rooms\.json: cannot be read"):
        server.rooms()


def test_the_job_and_the_port_are_remembered(server: ServerFolder) -> None:
    assert server.job() is None
    server.save_job(Job("first", flower_run=3))
    assert server.job() == Job("first", wanted=True, flower_run=3)
    server.save_port(9000)
    assert server.settings == Settings("example.org", 9000)
    assert json.loads((server.path / "server.json").read_text())["port"] == 9000


def test_the_log_of_refusals_does_not_fill_a_disk(
    server: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedapa.federation.network.server_folder.LONGEST_LOG", 500)
    for number in range(100):
        server.note_refused(f"stranger {number}")
    assert server.refused()[-1]["reason"] == "stranger 99"
    assert sum(path.stat().st_size for path in (server.path / "log").iterdir()) < 1300


@pytest.mark.parametrize("address", ["example.org", "example.org:", ":80", "example.org:99999"])
def test_an_address_without_a_port_is_refused(server: ServerFolder, address: str) -> None:
    with pytest.raises(DataError, match="expected HOST:PORT"):
        Connection(address, server.authority)

"""Options become rooms with sources, or one sentence before anything starts."""

import socket
from pathlib import Path

import pytest

from fedapa.errors import CaptureError, FedapaError, PlanError, SourceError
from fedapa.service.access import check_token, is_loopback, make_token
from fedapa.service.running import Serving, _bound, _greeting, made_rooms
from fedapa.service.serving import RoomServer
from fedapa.service.sources import CaptureFile, Esp32Serial, Esp32Tcp, NexmonUdp, SimulatedVisits

from .conftest import Served


def run_of(tmp_path: Path, *rooms: str) -> Path:
    """A folder that has models of these rooms, as far as options are concerned."""
    for room in rooms:
        path = tmp_path / "models" / f"{room}.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


def sources_of(run: Path, *sources: str, rooms: tuple[str, ...] = ()) -> dict[str, type]:
    made = made_rooms(Serving(run=run, sources=sources, rooms=rooms))
    for room in made:
        room.close()
    return {room.name: type(room._source) for room in made}


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def test_every_kind_of_source_can_be_named(served: Served, tmp_path: Path) -> None:
    run = run_of(tmp_path, "bath", "bus", "hall", "kitchen", "lab")
    port = free_udp_port()
    assert sources_of(
        run,
        f"kitchen=udp:{port}",
        "hall=tcp:127.0.0.1:9",
        "bath=serial:/dev/ttyUSB9",
        f"lab={served.captures[0]}",
        "bus=simulator:smoke",
    ) == {
        "bath": Esp32Serial,
        "bus": SimulatedVisits,
        "hall": Esp32Tcp,
        "kitchen": NexmonUdp,
        "lab": CaptureFile,
    }


def test_one_simulator_is_for_all_rooms_and_others_may_have_their_own(tmp_path: Path) -> None:
    run = run_of(tmp_path, "bus", "classroom")
    assert set(sources_of(run, "simulator")) == {"bus", "classroom"}
    assert set(sources_of(run, "simulator", rooms=("bus",))) == {"bus"}
    assert set(sources_of(run, "bus=tcp:127.0.0.1:9")) == {"bus"}
    both = ("simulator", "bus=tcp:127.0.0.1:9")
    for order in (both, both[::-1]):
        assert sources_of(run, *order) == {"bus": Esp32Tcp, "classroom": SimulatedVisits}


def test_a_capture_without_its_kind_is_a_file(served: Served, tmp_path: Path) -> None:
    assert sources_of(run_of(tmp_path, "a"), str(served.captures[0])) == {"a": CaptureFile}
    assert sources_of(tmp_path, f"file:{served.captures[0]}") == {"a": CaptureFile}


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        (["udp:5500"], "is for one room, and there are 2"),
        (["attic=udp"], "there is no room 'attic'"),
        (["a=tcp:host"], "name address and port"),
        (["a=tcp:host:0"], "'0' is no port"),
        (["a=udp:many"], "'many' is no port"),
        (["a=serial"], "write e.g. serial:/dev/ttyUSB0"),
        (["a=file:"], "write e.g. file:now.pcap"),
        (["a=upd"], "unknown; did you mean 'udp'?"),
        (["a=simulator"], "is none of the simulated rooms 'quick'"),
        (["a=simulator:quik"], "quik"),
        (["a=tcp:h:1", "a=tcp:h:2"], "has a source already"),
        (["a=tcp:h:1", "b=tcp:h:2", "udp:5500"], "every room has a source already"),
    ],
)
def test_a_source_that_cannot_be_is_one_sentence(
    tmp_path: Path, sources: list[str], sentence: str
) -> None:
    with pytest.raises(FedapaError, match="--source") as told:
        sources_of(run_of(tmp_path, "a", "b"), *sources)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_a_room_that_is_asked_for_needs_a_source(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", "b")
    with pytest.raises(PlanError, match="--room b: has no source"):
        sources_of(run, "a=tcp:127.0.0.1:9", rooms=("a", "b"))


def test_without_a_source_nobody_is_counted_and_models_need_not_be_there(tmp_path: Path) -> None:
    assert sources_of(tmp_path) == {}
    assert sources_of(tmp_path / "later") == {}  # its run may begin later
    with pytest.raises(PlanError, match="--room: nobody is counted without --source"):
        sources_of(run_of(tmp_path, "a"), rooms=("a",))
    with pytest.raises(PlanError, match="--history: nobody is counted without --source"):
        made_rooms(Serving(run=tmp_path, sources=(), history=tmp_path / "counts.db"))


def test_a_port_in_use_and_a_file_that_is_no_capture_are_told_at_once(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        with pytest.raises(SourceError, match="cannot listen there"):
            sources_of(run, f"udp:{other.getsockname()[1]}")
    (tmp_path / "text.pcap").write_text("hello")
    with pytest.raises(CaptureError):
        sources_of(run, str(tmp_path / "text.pcap"))
    with pytest.raises(CaptureError, match="no such file"):
        sources_of(run, str(tmp_path / "missing.pcap"))


def test_an_address_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(SourceError, match=f"127.0.0.1:{port}: cannot be served at .*--port"),
            _bound("127.0.0.1", port),
        ):
            pass
    with (
        pytest.raises(SourceError, match="is no address"),
        _bound("nowhere.invalid", 0),
    ):
        pass


def greeting_of(serving: Serving, listening: socket.socket) -> list[str]:
    return list(_greeting(RoomServer([]), serving, listening, None))


def test_a_run_that_has_not_begun_is_told_and_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        told = " ".join(greeting_of(Serving(run=tmp_path / "later", sources=()), listening))
        assert "later: there is no run yet; the page waits for: fedapa run --out" in told
        assert "no run yet" not in " ".join(
            greeting_of(Serving(run=tmp_path, sources=()), listening)
        )


def test_the_address_that_is_told_is_the_one_that_is_listened_at(tmp_path: Path) -> None:
    """Where localhost is ::1 first, nobody listens at 127.0.0.1."""
    serving = Serving(run=tmp_path, sources=(), host="localhost")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert f"http://127.0.0.1:{port}/" in greeting_of(serving, listening)[0]
    if not socket.has_ipv6:
        return
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:  # this machine has no such address
        return
    with listening:
        port = listening.getsockname()[1]
        assert f"http://[::1]:{port}/" in greeting_of(serving, listening)[0]


def test_loopback_is_told_from_other_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


def test_a_weak_token_is_refused() -> None:
    check_token(make_token())
    assert make_token() != make_token()
    for weak in ("short", "with a blank in it", "nicht-ängstlich-sein"):
        with pytest.raises(PlanError, match="access token"):
            check_token(weak)

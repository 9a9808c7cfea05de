"""The publisher against a real broker: what is said when, and what outages do to it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from fedapa.cli import app
from fedapa.cli.mqtt import mqtt_settings
from fedapa.errors import PlanError
from fedapa.federation.network.certificates import make_certificates
from fedapa.service import mqtt
from fedapa.service.home_assistant import Topics, state_of
from fedapa.service.mqtt import PASSWORD_VARIABLE, MqttPublisher, MqttSettings, read_password
from tests.service.conftest import Served
from tests.service.test_home_assistant import DEVICE, document

LIMIT = 30.0
"""s: what has not come by then does not come. Mostly it takes milliseconds."""
CONFIG = "homeassistant/device/fedapa_room_a/config"
STATE, AVAILABILITY, STATUS = "fedapa/room_a/state", "fedapa/room_a/availability", "fedapa/status"


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@dataclass
class Broker:
    """Mosquitto on a loopback port; what it retains is lost when it ends."""

    program: str
    folder: Path
    port: int
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        user = ["user root"] if os.geteuid() == 0 else []
        text = [f"listener {self.port} 127.0.0.1", "persistence false", *user]
        (self.folder / "broker.conf").write_text(
            "\n".join([*text, *(self.lines or ["allow_anonymous true"])]) + "\n"
        )
        command = [self.program, "-c", str(self.folder / "broker.conf")]
        log = (self.folder / "broker.log").open("ab")
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "broker.log").read_text()
        with socket.socket() as line:
            line.settimeout(1)
            return line.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        self.process = None


@pytest.fixture
def sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that is not started yet; tries come quickly."""
    places = (shutil.which("mosquitto"), "/usr/sbin/mosquitto")
    program = next((place for place in places if place and Path(place).exists()), None)
    if program is None:
        pytest.skip("no mosquitto; on Debian: apt-get install mosquitto")
    monkeypatch.setattr(mqtt, "_WAITS", (0.05, 0.2))
    monkeypatch.setattr(mqtt, "_SETTLED", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Broker(program, tmp_path, port)
    yield made
    made.stop()


@pytest.fixture
def broker(sleeping: Broker) -> Broker:
    sleeping.start()
    return sleeping


class Listener:
    """Somebody who subscribes to everything: Home Assistant, as far as it matters here."""

    def __init__(self, port: int) -> None:
        self.heard: list[tuple[str, bytes, bool]] = []
        self.ready = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _, __, message: self.heard.append(
            (message.topic, bytes(message.payload), message.retain)
        )
        self.client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self.client.on_subscribe = lambda *_: self.ready.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self.ready.wait(LIMIT)

    def said(self, topic: str) -> list[bytes]:
        return [payload for where, payload, _ in self.heard.copy() if where == topic]

    def say(self, topic: str, payload: bytes, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(LIMIT)

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *error: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def retained(port: int) -> dict[str, bytes]:
    """What somebody gets who comes later."""
    with Listener(port) as late:
        late.say("test/end", b"")
        wait_for(lambda: late.said("test/end"))
        return {topic: payload for topic, payload, kept in late.heard if kept}


def publisher_of(broker: Broker, *rooms: str, **settings: Any) -> MqttPublisher:
    said: list[str] = []
    made = MqttPublisher(
        MqttSettings.at(f"127.0.0.1:{broker.port}", **settings), rooms or None, say=said.append
    )
    made.said = said  # type: ignore[attr-defined]
    return made


@pytest.mark.mqtt
def test_a_count_is_announced_told_and_online(broker: Broker) -> None:
    """Discovery, count, then availability; the service comes online after its rooms."""
    publisher = publisher_of(broker)
    publisher.publish(document())
    with Listener(broker.port) as listener:
        with publisher:
            wait_for(lambda: listener.said(STATUS))
            publisher.publish(document(count=0))
            wait_for(lambda: len(listener.said(STATE)) == 2)
            assert publisher.health.connected
            assert retained(broker.port) == {
                CONFIG: DEVICE.encode(),
                AVAILABILITY: b"online",
                STATUS: b"online",
            }
        wait_for(lambda: len(listener.said(STATUS)) == 2)
        told = [(topic, payload) for topic, payload, _ in listener.heard if "test" not in topic]
    state = (
        '{"count":%d,"raw":%d,"lo":%d,"hi":%d,"confidence_pct":88,"quality":"counting",'
        '"model":"fedapa round 30 1a2b3c4d","ts":1767225600.124}'
    )
    assert told == [
        (CONFIG, DEVICE.encode()),
        (STATE, (state % (3, 3, 2, 4)).encode()),
        (AVAILABILITY, b"online"),
        (STATUS, b"online"),
        (STATE, (state % (0, 0, 0, 1)).encode()),
        (AVAILABILITY, b"offline"),
        (STATUS, b"offline"),
    ]
    assert retained(broker.port)[STATUS] == b"offline"


@pytest.mark.mqtt
def test_a_silent_room_is_offline_and_comes_back_with_a_new_count(broker: Broker) -> None:
    with Listener(broker.port) as listener, publisher_of(broker) as publisher:
        publisher.publish(document())
        wait_for(lambda: listener.said(AVAILABILITY) == [b"online"])
        publisher.publish(document(count=None))
        wait_for(lambda: listener.said(AVAILABILITY) == [b"online", b"offline"])
        publisher.publish(document(count=None))
        publisher.publish(document("other", count=1))
        wait_for(lambda: listener.said("fedapa/other/state"))
        before = len(listener.heard)
        publisher.publish(document(count=1))
        wait_for(lambda: len(listener.said(AVAILABILITY)) == 3)
        assert [topic for topic, _, _ in listener.heard[before:]] == [STATE, AVAILABILITY]
        assert [json.loads(payload)["count"] for payload in listener.said(STATE)] == [3, 1]
        assert listener.said(CONFIG) == [DEVICE.encode()]


CHILD = """
import sys, time
from fedapa.service.mqtt import MqttPublisher, MqttSettings
publisher = MqttPublisher(MqttSettings.at(sys.argv[1]))
publisher.publish({"room": "Room A", "state": "counting", "count": 2, "time": time.time()})
publisher.start()
time.sleep(60)
"""


@pytest.mark.mqtt
def test_a_killed_service_is_offline_by_its_last_will(broker: Broker) -> None:
    with Listener(broker.port) as listener:
        command = [sys.executable, "-c", CHILD, f"127.0.0.1:{broker.port}"]
        with subprocess.Popen(command) as child:
            try:
                wait_for(lambda: listener.said(STATUS) == [b"online"])
            finally:
                child.send_signal(signal.SIGKILL)
        wait_for(lambda: listener.said(STATUS) == [b"online", b"offline"])
    assert retained(broker.port)[STATUS] == b"offline"


@pytest.mark.mqtt
def test_home_assistant_that_starts_is_told_everything_again(broker: Broker) -> None:
    with Listener(broker.port) as listener, publisher_of(broker) as publisher:
        publisher.publish(document())
        wait_for(lambda: listener.said(STATUS))
        listener.say("homeassistant/status", b"offline")
        listener.say("homeassistant/status", b"online")
        wait_for(lambda: len(listener.said(AVAILABILITY)) == 2)
        assert listener.said(CONFIG) == [DEVICE.encode()] * 2
        assert len(listener.said(STATE)) == 2


@pytest.mark.mqtt
def test_a_broker_that_restarts_is_told_everything_again(broker: Broker) -> None:
    with publisher_of(broker) as publisher:
        publisher.publish(document(count=3))
        wait_for(lambda: publisher.health.published == 4)
        broker.stop()
        wait_for(lambda: not publisher.health.connected)
        publisher.publish(document(count=4))
        publisher.publish(document(count=5))
        assert publisher.health.problem
        broker.start()
        wait_for(lambda: publisher.health.published == 8)
        assert retained(broker.port) == {
            CONFIG: DEVICE.encode(),
            AVAILABILITY: b"online",
            STATUS: b"online",
        }
        first, *between, last = publisher.said
        assert "connected" in first
        assert "connected" in last
        # One line for the end, at most one more while nobody listens.
        assert 1 <= len(between) <= 2
        assert all("counting goes on" in line for line in between)


@pytest.mark.mqtt
def test_a_broker_that_is_down_delays_nobody_and_gets_the_newest(sleeping: Broker) -> None:
    with publisher_of(sleeping) as publisher:
        began = time.monotonic()
        for count in range(1000):
            publisher.publish(document(count=count % 7))
        assert time.monotonic() - began < 2
        wait_for(lambda: "no broker listens" in publisher.health.problem)
        time.sleep(0.3)  # several tries
        assert publisher.said == [
            f"MQTT 127.0.0.1:{sleeping.port}: no broker listens there; start it or mend the port; "
            "counting goes on, next tries after 0.05 to 0.2 s"
        ]
        publisher.publish(document(count=6))
        sleeping.start()
        wait_for(lambda: publisher.health.published == 4)
        assert publisher.health.problem == ""
        assert publisher.health.document()["connected"] is True


@pytest.mark.mqtt
def test_of_many_counts_the_newest_of_each_room_is_told(broker: Broker) -> None:
    """A hundred rooms at once: more than may be under way, none forgotten, the last one wins."""
    publisher = publisher_of(broker)
    for count in (1, 2, 3):
        for room in range(100):
            publisher.publish(document(f"room {room}", count=count))
    with Listener(broker.port) as listener, publisher:
        wait_for(lambda: listener.said(STATUS))
        states = [payload for topic, payload, _ in listener.heard if topic.endswith("/state")]
        assert [json.loads(payload)["count"] for payload in states] == [3] * 100


@pytest.mark.mqtt
def test_a_broker_that_hangs_delays_nobody_and_then_gets_the_newest(broker: Broker) -> None:
    """What is under way is bounded: of two thousand counts it gets a few, and the last."""
    assert broker.process is not None
    with Listener(broker.port) as listener, publisher_of(broker) as publisher:
        publisher.publish(document(count=1))
        wait_for(lambda: publisher.health.published == 4)
        broker.process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            for count in range(2000):
                publisher.publish(document(count=count))
            assert time.monotonic() - began < 2
        finally:
            broker.process.send_signal(signal.SIGCONT)
        wait_for(lambda: b'"count":1999,' in b"".join(listener.said(STATE)[-1:]))
        assert len(listener.said(STATE)) <= 30


@pytest.mark.mqtt
def test_a_count_that_waited_too_long_is_not_told(sleeping: Broker) -> None:
    publisher = publisher_of(sleeping, expire_after=1)
    publisher.publish(document())
    time.sleep(1.05)
    sleeping.start()
    with Listener(sleeping.port) as listener, publisher:
        wait_for(lambda: listener.said(STATUS))
        assert listener.said(STATE) == []
        assert listener.said(AVAILABILITY) == [b"offline"]


@pytest.mark.mqtt
def test_rooms_that_are_gone_are_removed(broker: Broker) -> None:
    """One while serving; those of a former start when the rooms of this one are known."""
    with publisher_of(broker) as publisher:
        for room in ("Room A", "hall", "cellar"):
            publisher.publish(document(room))
        wait_for(lambda: publisher.health.published == 10)
        publisher.remove("hall")
        publisher.remove("never there")
        wait_for(lambda: publisher.health.published == 12)
    with Listener(broker.port) as other:
        other.say("homeassistant/device/zigbee_lamp/config", b'{"o":{"name":"zigbee"}}', True)
    left = retained(broker.port)
    assert "homeassistant/device/fedapa_cellar/config" in left
    assert "fedapa/hall/availability" not in left
    assert "homeassistant/device/fedapa_hall/config" not in left
    with publisher_of(broker, "Room A"):
        wait_for(lambda: "fedapa/cellar/availability" not in retained(broker.port))
        assert set(retained(broker.port)) == {
            CONFIG,
            AVAILABILITY,
            STATUS,
            "homeassistant/device/zigbee_lamp/config",
        }
        assert retained(broker.port)[AVAILABILITY] == b"offline"  # nothing was counted yet


@pytest.mark.mqtt
def test_a_second_service_with_the_same_prefix_is_told_and_spared(broker: Broker) -> None:
    """It warns, removes nothing, and says online again when the other one ends."""
    with Listener(broker.port) as listener:
        with publisher_of(broker) as one:
            one.publish(document("hall"))
            wait_for(lambda: listener.said(STATUS) == [b"online"])
            other = publisher_of(broker, "Room A")
            other.start()
            wait_for(lambda: len(other.said) == 2)
            assert "--mqtt-prefix" in other.said[1]
            assert "homeassistant/device/fedapa_hall/config" in retained(broker.port)
        wait_for(lambda: listener.said(STATUS)[-2:] == [b"offline", b"online"])
        other.stop()
        wait_for(lambda: listener.said(STATUS)[-1] == b"offline")


@pytest.mark.mqtt
def test_a_wrong_password_is_said_plainly_and_tried_again(sleeping: Broker) -> None:
    tool = shutil.which("mosquitto_passwd")
    if tool is None:
        pytest.skip("no mosquitto_passwd")
    users = sleeping.folder / "users"
    command = [tool, "-b", "-c", str(users), "ha", "right"]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)
    sleeping.lines = ["allow_anonymous false", f"password_file {users}"]
    sleeping.start()
    with publisher_of(sleeping, user="ha", password="wrong") as publisher:
        wait_for(lambda: "refuses user 'ha' or the password" in publisher.health.problem)
        assert "wrong" not in f"{publisher.said} {publisher.settings}"
        time.sleep(0.5)  # several tries
        assert len(publisher.said) == 1
    with publisher_of(sleeping) as publisher:
        wait_for(lambda: "asks for a user name" in publisher.health.problem)
    with publisher_of(sleeping, user="ha", password="right") as publisher:
        wait_for(lambda: publisher.health.connected)


# paho leaves a socket whose handshake failed to the garbage collector, which closes it.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*SSLSocket")
@pytest.mark.mqtt
def test_tls_trusts_the_given_authority_alone(sleeping: Broker, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name, "localhost")
    own = tmp_path / "ours"
    sleeping.lines = [
        "allow_anonymous true",
        f"certfile {own / 'server.crt'}",
        f"keyfile {own / 'server.key'}",
    ]
    sleeping.start()
    with publisher_of(sleeping, ca=own / "ca.crt") as publisher:
        publisher.publish(document())
        wait_for(lambda: publisher.health.published == 4)
    with publisher_of(sleeping, ca=tmp_path / "theirs" / "ca.crt") as publisher:
        wait_for(lambda: "certificate is not trusted" in publisher.health.problem)
    with publisher_of(sleeping) as publisher:
        wait_for(lambda: "--mqtt-tls" in publisher.health.problem)


@pytest.mark.mqtt
def test_fedapa_serve_tells_home_assistant(
    sleeping: Broker, served: Served, tmp_path: Path
) -> None:
    """From the command line on: up without a broker, told when it comes, offline at the end."""
    environment = {name: value for name, value in os.environ.items() if name != PASSWORD_VARIABLE}
    command = [sys.executable, "-m", "fedapa", "serve", "--run", str(served.run), "--port", "0"]
    command += ["--source", "simulator:smoke", "--every", "0.5", "--history", f"{tmp_path}/a.db"]
    command += ["--mqtt", f"127.0.0.1:{sleeping.port}", "--mqtt-prefix", "test/rooms"]
    slug = served.room.replace(" ", "_")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as service:
        try:
            assert service.stdout is not None
            lines = iter(service.stdout.readline, "")
            address = next(line for line in lines if "http://" in line).split()[-1]
            wait_for(lambda: "no broker listens" in health_of(address)["mqtt"]["problem"])
            assert health_of(address)["status"] == "degraded"
            sleeping.start()
            with Listener(sleeping.port) as listener:
                wait_for(lambda: listener.said(f"test/rooms/{slug}/state"))
                device = listener.said(f"homeassistant/device/test_rooms_{slug}/config")[0]
                assert json.loads(device)["dev"]["name"] == f"SIMULATED {served.room}"
                state = json.loads(listener.said(f"test/rooms/{slug}/state")[0])
                assert set(state) == set(json.loads(state_of(document()) or b""))
                assert state["model"].startswith("local round 1 ")
                assert abs(state["ts"] - time.time()) < 60
                assert health_of(address)["mqtt"]["connected"]
                service.send_signal(signal.SIGTERM)
                wait_for(lambda: listener.said("test/rooms/status")[-1:] == [b"offline"])
                assert listener.said(f"test/rooms/{slug}/availability")[-1] == b"offline"
            assert service.wait(LIMIT) == 0
        finally:
            service.kill()


def health_of(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}healthz", timeout=LIMIT) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--mqtt-user", "ha"], "--mqtt-user: there is no broker; give --mqtt HOST, too"),
        (["--mqtt", "a:b"], "MQTT broker 'a:b': write HOST or HOST:PORT"),
        (["--mqtt", "a", "--mqtt-prefix", "#"], "MQTT topic prefix '#'"),
        (["--mqtt", "a", "--mqtt-password-file", "nothing"], "the MQTT password cannot be read"),
    ],
)
def test_options_that_cannot_work_are_one_sentence(options: list[str], expected: str) -> None:
    with pytest.raises(PlanError, match=re.escape(expected)):
        app(["serve", "--run", "r", "--source", "simulator", *options], standalone_mode=False)


def test_home_assistant_waits_longer_where_counts_are_rare() -> None:
    nothing = dict.fromkeys(["user", "password_file", "ca", "prefix", "discovery"])
    rare = mqtt_settings("a", **nothing, tls=False, every=50)
    usual = mqtt_settings("a", **nothing, tls=False, every=5)
    assert (rare and rare.expire_after, usual and usual.expire_after) == (150, 60)


def test_a_host_that_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said: list[str] = []
    with MqttPublisher(MqttSettings.at("nowhere.invalid"), say=said.append) as publisher:
        publisher.publish(document())
        wait_for(lambda: said)
    assert said == [
        "MQTT nowhere.invalid:1883: the host name 'nowhere.invalid' is not known; mend --mqtt or "
        "the name server; counting goes on, next tries after 1 to 60 s"
    ]


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"\x20\x00", b"\x30\xff\xff\xff\xff"])
def test_what_is_no_broker_is_told(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "_ANSWER", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT)
        port = server.getsockname()[1]
        with MqttPublisher(MqttSettings.at(f"127.0.0.1:{port}")) as publisher:
            line, _ = server.accept()
            with line:
                line.sendall(answer)
                wait_for(lambda: publisher.health.problem != "not connected yet")
            assert not publisher.health.connected


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("broker.lan", "broker.lan", 1883),
        ("broker.lan:1884", "broker.lan", 1884),
        ("::1", "::1", 1883),
        ("[::1]:1884", "::1", 1884),
    ],
)
def test_an_address_has_a_host_and_perhaps_a_port(address: str, host: str, port: int) -> None:
    settings = MqttSettings.at(address)
    assert (settings.host, settings.port) == (host, port)


@pytest.mark.parametrize(
    "address", ["", ":1883", "a:", "a:b", "a:0", "a:65536", "a:²", "mqtt://a", "me@a", "[::1]1"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(PlanError, match="write HOST or HOST:PORT"):
        MqttSettings.at(address)


def test_settings_that_cannot_work_are_refused_before_anything_starts(tmp_path: Path) -> None:
    assert MqttSettings.at("a", tls=True).port == 8883
    with pytest.raises(PlanError, match="needs a user name"):
        MqttSettings.at("a", password="x")
    with pytest.raises(PlanError, match="expire_after = 0"):
        MqttSettings.at("a", expire_after=0)
    with pytest.raises(PlanError, match="MQTT topic prefix"):
        MqttSettings.at("a", topics=Topics("a/#"))
    (tmp_path / "ca.crt").write_text("no certificate")
    for place in (tmp_path / "ca.crt", tmp_path / "nothing"):
        with pytest.raises(PlanError, match="no certificate can be read"):
            MqttPublisher(MqttSettings.at("a", ca=place))


def test_the_password_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("se cret\n\n")
    (tmp_path / "empty").write_text("\n")
    assert read_password(tmp_path / "password", {PASSWORD_VARIABLE: "other"}) == "se cret"
    assert read_password(None, {PASSWORD_VARIABLE: "other"}) == "other"
    assert read_password(None, {}) == ""
    with pytest.raises(PlanError, match="first line is empty"):
        read_password(tmp_path / "empty")
    with pytest.raises(PlanError, match="cannot be read"):
        read_password(tmp_path / "nothing")
    assert "se cret" not in repr(MqttSettings.at("a", user="u", password="se cret"))

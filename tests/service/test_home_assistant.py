"""What Home Assistant is told of a room, letter by letter."""

from typing import Any

import pytest

from fedapa import __version__
from fedapa.errors import PlanError
from fedapa.service.home_assistant import Topics, discovery_of, free_slug, is_ours, state_of

DEVICE = (
    '{"dev":{"ids":["fedapa_room_a"],"name":"Room A","mf":"FedAPA","sw":"VERSION"},'
    '"o":{"name":"fedapa","sw":"VERSION"},'
    '"cmps":{'
    '"people":{"p":"sensor","name":"People","unique_id":"fedapa_room_a_people",'
    '"state_class":"measurement","unit_of_measurement":"people","icon":"mdi:account-group",'
    '"value_template":"{{ value_json.count }}","expire_after":60},'
    '"occupied":{"p":"binary_sensor","unique_id":"fedapa_room_a_occ","device_class":"occupancy",'
    '"value_template":"{{ \'ON\' if value_json.count>0 else \'OFF\' }}","expire_after":60},'
    '"confidence":{"p":"sensor","name":"Confidence","unique_id":"fedapa_room_a_conf",'
    '"entity_category":"diagnostic","unit_of_measurement":"%",'
    '"value_template":"{{ value_json.confidence_pct }}"}},'
    '"state_topic":"fedapa/room_a/state","qos":1,'
    '"availability":[{"topic":"fedapa/status"},{"topic":"fedapa/room_a/availability"}],'
    '"availability_mode":"all"}'
).replace("VERSION", __version__)


def document(room: str = "Room A", count: int | None = 3, **others: Any) -> dict[str, Any]:
    """As ``RoomServer`` tells of a room; without a count it is unavailable."""
    known = count is not None
    return {
        "room": room,
        "state": "counting" if known else "unavailable",
        "reason": "" if known else "no packets for 10 s",
        "count": count,
        "lo": max(0, count - 1) if known else None,
        "hi": count + 1 if known else None,
        "confidence": 0.8765 if known else None,
        "raw": count,
        "time": 1_767_225_600.1239,
        "synthetic": False,
        "model": {"algorithm": "fedapa", "round": 30, "hash": "1a2b3c4d5e6f"},
        **others,
    }


def test_a_room_is_a_device_with_three_entities() -> None:
    made = discovery_of(Topics(), "room_a", "Room A", synthetic=False, expire_after=60)
    assert made.decode() == DEVICE


def test_simulated_rooms_are_marked_in_name_and_model() -> None:
    made = discovery_of(Topics(), "room_a", "Room A", synthetic=True, expire_after=60)
    marked = (
        f'"name":"SIMULATED Room A","mf":"FedAPA","sw":"{__version__}","mdl":"SIMULATED data"}}'
    )
    plain = f'"name":"Room A","mf":"FedAPA","sw":"{__version__}"}}'
    assert made.decode() == DEVICE.replace(plain, marked)


def test_a_state_is_a_count_and_how_sure_it_is() -> None:
    """0.8765 is 88 %; the time has milliseconds, the hash eight digits."""
    assert state_of(document()) == (
        b'{"count":3,"raw":3,"lo":2,"hi":4,"confidence_pct":88,"quality":"counting",'
        b'"model":"fedapa round 30 1a2b3c4d","ts":1767225600.124}'
    )
    unsure = state_of(document(count=0, state="unsure", model=None, raw=1))
    assert unsure == (
        b'{"count":0,"raw":1,"lo":0,"hi":1,"confidence_pct":88,"quality":"unsure",'
        b'"model":"","ts":1767225600.124}'
    )


def test_an_unavailable_room_has_no_state() -> None:
    assert state_of(document(count=None)) is None
    assert state_of(document(count=3, state="unavailable")) is None


@pytest.mark.parametrize(
    ("room", "slug"),
    [
        ("Room A", "room_a"),
        ("kitchen", "kitchen"),
        ("Küche/2 +#", "kuche_2"),
        ("  a  b ", "a_b"),
        ("x" * 200, "x" * 48),
        ("会議室", "room_9ee159"),
        ("+/#", "room_155017"),
    ],
)
def test_names_become_safe_parts_of_topics(room: str, slug: str) -> None:
    assert free_slug(room, ()) == slug


def test_names_that_come_to_the_same_stay_apart() -> None:
    """The first digits of SHA-256 of the name, more of them where those are taken too."""
    taken: list[str] = []
    for room in ("Room A", "room-a", "room a", "ROOM_A"):
        taken.append(free_slug(room, taken))
    assert taken[0] == "room_a"
    assert len(set(taken)) == 4
    assert free_slug("room-a", ["room_a"]) == taken[1]
    assert free_slug("room-a", ["room_a", taken[1]]).startswith(taken[1])


def test_a_prefix_of_its_own_is_in_every_topic_and_name() -> None:
    topics = Topics("site/fedapa", "ha")
    assert topics.config("room_a") == "ha/device/site_fedapa_room_a/config"
    assert topics.status == "site/fedapa/status"
    assert topics.birth == "ha/status"
    made = discovery_of(topics, "room_a", "Room A", synthetic=False, expire_after=60)
    assert b'"unique_id":"site_fedapa_room_a_people"' in made
    assert topics.slug_of(topics.config("room_a")) == "room_a"
    assert topics.slug_of("ha/device/zigbee_lamp/config") == ""


@pytest.mark.parametrize("prefix", ["", "a+", "#", "/a", "a/", "a//b", "$SYS", "a b", "a\0"])
def test_prefixes_that_are_no_topics_are_refused(prefix: str) -> None:
    with pytest.raises(PlanError, match="MQTT topic prefix"):
        Topics(prefix)


def test_only_devices_of_this_service_are_ours() -> None:
    mine = discovery_of(Topics(), "a", "a", synthetic=False, expire_after=60)
    assert is_ours(Topics(), mine)
    assert not is_ours(Topics("other"), mine)
    for strange in (b"", b"{}", b"[]", b"\xff", b'{"o":{"name":"fedapa"}}', b'{"o":[]}'):
        assert not is_ours(Topics(), strange)

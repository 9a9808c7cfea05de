"""Prometheus reads what rooms are now, with names that dashboards can rely on."""

from prometheus_client.parser import text_string_to_metric_families

from fedapa.service.metrics import collectors_of, text_of
from fedapa.service.serving import RoomServer, ServedRoom

from .made import Clocks, Given, Models, level_model


def test_metrics_have_their_names_and_an_unavailable_room_has_no_count() -> None:
    clocks, sources = Clocks(), {"cafe": Given(), "hall": Given()}
    server = RoomServer(
        [ServedRoom(name, Models(level_model()), source) for name, source in sources.items()],
        steady=clocks.steady,
        wall=clocks.wall,
    )
    server.look_for_models()
    for _ in range(12):
        clocks.now += 1
        sources["cafe"].put([3] * 10, clocks.now)
        sources["hall"].put([3] * 10, clocks.now, device="aa:bb:cc:dd:ee:ff")
        server.step()
    text = text_of(collectors_of(server)).decode()
    found = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["fedapa_people", "cafe"] == 3
    assert 0 < found["fedapa_confidence_ratio", "cafe"] <= 1
    assert ("fedapa_people", "hall") not in found
    assert ("fedapa_confidence_ratio", "hall") not in found
    assert found["fedapa_packets_total", "cafe"] == 120
    assert found["fedapa_packets_dropped_total", "does_not_fit", "hall"] == 120
    assert found["fedapa_packets_dropped_total", "does_not_fit", "cafe"] == 0
    assert found["fedapa_room_state", "hall", "unavailable"] == 1
    assert found["fedapa_inference_seconds_count", "cafe"] > 10
    assert found["fedapa_rounds_total", "taken", "cafe"] == 1
    assert any(key[0] == "fedapa_build_info" for key in found)
    assert "aa:bb" not in text  # a reason may name what a stranger sends; a label never does

"""Sources as people write them."""

from pathlib import Path

import pytest

from fedapa.errors import PlanError
from fedapa.service.spelling import Spelled, spelled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("udp", Spelled("udp", "127.0.0.1", 5500)),
        ("udp:5501", Spelled("udp", "127.0.0.1", 5501)),
        ("udp:0.0.0.0:5501", Spelled("udp", "0.0.0.0", 5501)),
        ("tcp:10.0.0.7:3333", Spelled("tcp", "10.0.0.7", 3333)),
        ("serial:/dev/ttyUSB0", Spelled("serial", "/dev/ttyUSB0")),
        ("file:now.pcap", Spelled("file", "now.pcap")),
        ("now.pcap", Spelled("file", "now.pcap")),
        ("simulator", Spelled("simulator", "")),
        ("simulator:smoke", Spelled("simulator", "smoke")),
    ],
)
def test_what_a_source_is_called(text: str, expected: Spelled) -> None:
    assert spelled(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("simulater", "did you mean 'simulator'"),
        ("udp:0", "'0' is no port; choose 1 to 65535"),
        ("udp:many", "'many' is no port"),
        ("tcp:3333", "name address and port, e.g. tcp:10.0.0.7:3333"),
        ("serial", "write e.g. serial:/dev/ttyUSB0"),
        ("file:", "write e.g. file:now.pcap"),
    ],
)
def test_what_is_no_source_is_said(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        spelled(text)


def test_a_file_without_a_suffix_is_one_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capture").touch()
    assert spelled("capture").kind == "file"

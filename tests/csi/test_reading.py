import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedapa import CaptureError, read_capture
from fedapa.csi.reading import CaptureStream, read_chunks
from tests.csi.capture_bytes import (
    ESP_CLASSIC,
    FEIT_HT40,
    SEEDS,
    esp_file,
    esp_line,
    esp_values,
    ethernet,
    feit_file,
    intel_file,
    nexmon_csi,
    nexmon_datagram,
    nexmon_file,
    pcap,
    pcapng,
    udp,
)

FILES = {
    "nexmon": nexmon_file(40),
    "intel5300": intel_file(40),
    "feitcsi": feit_file(40),
    "esp32": esp_file(40),
    "cores": pcap(
        [
            (
                float(i),
                ethernet(
                    udp(
                        nexmon_datagram(
                            nexmon_csi(64, 4 * i + core).tobytes(),
                            bandwidth=20,
                            sequence=i,
                            core=core,
                        )
                    )
                ),
            )
            for i in range(20)
            for core in range(3)
        ]
    ),
    "pcapng": pcapng(
        [
            (float(i), ethernet(udp(nexmon_datagram(nexmon_csi(256, i).tobytes()))))
            for i in range(20)
        ]
    ),
    "esp32 of both orders": "\n".join(
        esp_line(ESP_CLASSIC, esp_values(128, i), clock=1000 * i, number=i, second=i % 2)
        for i in range(40)
    ).encode(),
    "unsound": pcap(
        [
            (
                float(i),
                ethernet(
                    udp(
                        nexmon_datagram(
                            nexmon_csi(64, i).tobytes(),
                            bandwidth=20 if i % 3 else 160,
                            sequence=i,
                        )
                    )
                ),
            )
            for i in range(40)
        ]
    ),
}


def save(tmp_path, data):
    path = tmp_path / "file.bin"
    path.write_bytes(data)
    return path


def joined(captures):
    assert captures
    return (
        np.concatenate([capture.csi for capture in captures]),
        np.concatenate([capture.timestamps for capture in captures]),
    )


@pytest.mark.parametrize("form", FILES)
def test_the_name_of_a_file_does_not_matter(tmp_path, form):
    assert read_capture(save(tmp_path, FILES[form])).packets >= 20


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("size", [37, 1000, 1 << 20])
def test_chunks_together_are_the_capture(tmp_path, form, size):
    path = save(tmp_path, FILES[form])
    whole = read_capture(path)
    csi, timestamps = joined(list(read_chunks(path, size=size)))
    np.testing.assert_array_equal(csi, whole.csi)
    np.testing.assert_array_equal(timestamps, whole.timestamps)


TIES = {
    "nexmon": (nexmon_file(3, 80), nexmon_file(3, 20)[24:]),
    "intel5300": (intel_file(3, 3, 2), intel_file(3, 1, 1)),
    "feitcsi": (feit_file(3, 114, FEIT_HT40), feit_file(3)),
    "esp32": (
        "".join(esp_line(ESP_CLASSIC, esp_values(256, i)) + "\n" for i in range(3)).encode(),
        "".join(esp_line(ESP_CLASSIC, esp_values(128, i)) + "\n" for i in range(3)).encode(),
    ),
}


@pytest.mark.parametrize("form", TIES)
@pytest.mark.parametrize("size", [100, 1000, 1 << 20])
def test_of_two_equally_frequent_kinds_the_first_is_kept_however_the_file_is_read(
    tmp_path, form, size
):
    first, second = TIES[form]
    kept = read_capture(save(tmp_path, first))
    path = save(tmp_path, first + second)
    np.testing.assert_array_equal(read_capture(path).csi, kept.csi)
    np.testing.assert_array_equal(joined(list(read_chunks(path, size=size)))[0], kept.csi)


def test_unsound_frames_are_counted_once_however_the_file_is_read(tmp_path):
    path = save(tmp_path, FILES["unsound"])
    for size in (37, 1000, 1 << 20):
        *_, last = read_chunks(path, size=size)
        assert last.skipped == read_capture(path).skipped == {"channel width code 5": 14}


@pytest.mark.parametrize(
    ("form", "place"),
    [("nexmon", 24 + 10 * 332), ("intel5300", 10 * 395), ("feitcsi", 10 * 496)],
)
def test_a_damaged_stretch_counts_once_however_the_file_is_read(tmp_path, form, place):
    content = FILES[form]
    path = save(tmp_path, content[:place] + b"\xff" * 5000 + content[place:] + b"\xff" * 3000)
    whole = read_capture(path, salvage=True)
    assert whole.skipped["damaged bytes"] == 2
    for size in (300, 1000, 1 << 20):
        *_, last = read_chunks(path, size=size, salvage=True)
        assert last.skipped == whole.skipped


def test_the_last_chunk_tells_what_was_skipped(tmp_path):
    path = save(tmp_path, nexmon_file(40)[:-1])
    *others, last = read_chunks(path, size=3000)
    assert not any(chunk.skipped for chunk in others)
    assert last.skipped == read_capture(path).skipped == {"cut off at the end": 1}


@settings(max_examples=40)
@given(form=st.sampled_from(sorted(FILES)), data=st.data())
def test_a_stream_gives_the_same_packets_however_its_bytes_are_cut(tmp_path_factory, form, data):
    content = FILES[form]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(content) - 1), max_size=30)))
    stream = CaptureStream("live")
    captures = []
    for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        captures += stream.feed(content[begin:end])
    captures += stream.finish()
    csi, timestamps = joined(captures)
    whole = read_capture(save(tmp_path_factory.mktemp("stream"), content))
    np.testing.assert_array_equal(csi, whole.csi)
    np.testing.assert_array_equal(timestamps, whole.timestamps)


@settings(max_examples=40)
@given(
    form=st.sampled_from(["nexmon", "intel5300", "feitcsi", "esp32", "pcapng"]),
    garbage=st.binary(min_size=1, max_size=200),
    step=st.sampled_from([64, 333, 100_000]),
)
def test_a_stream_finds_the_next_sound_frame_after_garbage(form, garbage, step):
    """Garbage between records: at most the frames around it are lost, one may be spoilt."""
    content = FILES[form]
    size = {"nexmon": 332, "intel5300": 395, "feitcsi": 496, "pcapng": 1084 + 32}.get(form)
    place = content.index(b"\n", len(content) // 2) + 1 if size is None else None
    if place is None:
        lead = {"nexmon": 24, "pcapng": len(pcapng([]))}.get(form, 0)
        place = lead + 10 * size
    broken = content[:place] + garbage + content[place:]
    stream = CaptureStream("live")
    captures = []
    for at in range(0, len(broken), step):
        captures += stream.feed(broken[at : at + step])
    captures += stream.finish()
    truth = {csi.tobytes() for capture in _whole(content) for csi in capture.csi}
    found = [csi.tobytes() for capture in captures for csi in capture.csi]
    assert len(set(found) & truth) >= len(truth) - 2
    assert len(set(found) - truth) <= 1


@settings(max_examples=30)
@given(
    form=st.sampled_from(["nexmon", "intel5300", "feitcsi", "esp32", "pcapng"]),
    garbage=st.binary(min_size=1, max_size=300),
    step=st.sampled_from([64, 333, 100_000]),
)
def test_a_stream_of_known_format_may_begin_with_garbage(form, garbage, step):
    content = FILES[form]
    broken = garbage + (b"\n" if form == "esp32" else b"") + content
    stream = CaptureStream("live", form={"pcapng": "nexmon"}.get(form, form))
    found = set()
    for at in range(0, len(broken), step):
        for capture in stream.feed(broken[at : at + step]):
            found |= {csi.tobytes() for csi in capture.csi}
    for capture in stream.finish():
        found |= {csi.tobytes() for csi in capture.csi}
    truth = {csi.tobytes() for capture in _whole(content) for csi in capture.csi}
    assert len(found & truth) >= len(truth) - 2


def test_a_format_that_is_unknown_is_refused():
    with pytest.raises(CaptureError, match="format 'nexmom' is unknown; did you mean 'nexmon'"):
        CaptureStream("live", form="nexmom")


def _whole(content):
    stream = CaptureStream("whole")
    return [*stream.feed(content), *stream.finish()]


@given(content=st.binary(max_size=2000))
def test_any_bytes_give_a_capture_or_an_error(tmp_path_factory, content):
    path = save(tmp_path_factory.mktemp("any"), content)
    try:
        read_capture(path)
    except CaptureError as error:
        assert "file.bin@" in str(error)


def test_what_is_no_capture_is_named_with_its_first_bytes(tmp_path):
    with pytest.raises(
        CaptureError, match=r"file.bin@0: begins with 47 49 46.*; expected a Nexmon"
    ):
        read_capture(save(tmp_path, b"GIF89a"))
    with pytest.raises(CaptureError, match=r"file.bin@0: is empty; expected a Nexmon"):
        read_capture(save(tmp_path, b""))
    with pytest.raises(CaptureError, match="nowhere: no such file"):
        read_capture(tmp_path / "nowhere")
    with pytest.raises(CaptureError, match="is a folder; expected a capture file, and no capture"):
        read_capture(tmp_path)
    inside = tmp_path / "room" / "kitchen.pcap"
    inside.parent.mkdir()
    inside.write_bytes(nexmon_file(1))
    with pytest.raises(CaptureError, match=f"e.g. {inside}; 'fedapa import'"):
        read_capture(tmp_path)
    with pytest.raises(CaptureError, match="no such file"):
        list(read_chunks(tmp_path / "nowhere"))


def test_a_chip_is_for_nexmon_captures(tmp_path):
    with pytest.raises(CaptureError, match="chip='4358' is for Nexmon captures, this is intel5300"):
        read_capture(save(tmp_path, intel_file()), "4358")


def test_a_stream_of_something_else_ends_in_an_error():
    stream = CaptureStream("socket")
    assert stream.feed(b"nothing " * 100) == []
    with pytest.raises(CaptureError, match="socket@0"):
        stream.feed(b"nothing " * 20_000)


def test_reading_needs_neither_torch_nor_matplotlib():
    code = (
        "import sys, fedapa, fedapa.report.tables.captures, fedapa.stores.wical; "
        "fedapa.read_capture; "
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_long_capture_is_read_in_bounded_memory(tmp_path):
    """120 MB in chunks of 1 MB must not need a tenth of that."""
    path = tmp_path / "long.pcap"
    head, record = nexmon_file(1, 80)[:24], nexmon_file(1, 80)[24:]
    with path.open("wb") as file:
        file.write(head)
        for _ in range(110):
            file.write(record * 1000)
    code = f"""
import resource
from fedapa.csi.reading import read_chunks
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
packets = sum(chunk.packets for chunk in read_chunks({str(path)!r}, size=1 << 20))
assert packets == 110_000, packets
assert (peak() - before) < 24 * 1024, (peak() - before)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_seed_of_the_mutation_run_is_sound(tmp_path):
    for data in [data for family in SEEDS.values() for data in family]:
        assert read_capture(save(tmp_path, data)).skipped in ({}, {"other text": 1})

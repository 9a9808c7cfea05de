import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedapa import CaptureError, read_capture
from tests.csi.capture_bytes import ESP_CLASSIC, ESP_NEWER, ESP_TOOL, esp_line, esp_values

HEADER = (
    "type,id,mac,rssi,rate,sig_mode,mcs,bandwidth,smoothing,not_sounding,aggregation,stbc,"
    "fec_coding,sgi,noise_floor,ampdu_cnt,channel,secondary_channel,local_timestamp,ant,sig_len,"
    "rx_state,len,first_word,data"
)


def save(tmp_path, *lines):
    path = tmp_path / "desk.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def by_subcarrier(values, first, below, count):
    """Tone → value, by the definition: imaginary part first, 0 … below − 1, then the negatives."""
    pairs = values[2 * first : 2 * (first + count)].reshape(-1, 2)
    subcarriers = [*range(below), *range(below - count, 0)]
    return {
        subcarrier: complex(pair[1], pair[0])
        for subcarrier, pair in zip(subcarriers, pairs, strict=True)
    }


@pytest.mark.parametrize(
    ("size", "wide", "stbc", "bandwidth", "first", "below", "count"),
    [
        (128, 0, 0, 20, 0, 32, 64),
        (256, 0, 0, 20, 64, 32, 64),
        (384, 0, 1, 20, 64, 32, 64),
        (384, 1, 0, 40, 64, 64, 128),
        (612, 1, 1, 40, 64, 61, 121),
        (376, 0, 1, 20, 0, 32, 64),
        (380, 0, 1, 20, 0, 32, 64),
    ],
)
@pytest.mark.parametrize("form", [ESP_TOOL, ESP_CLASSIC], ids=["tool", "classic"])
def test_every_buffer_gives_its_best_training_field(
    tmp_path, form, size, wide, stbc, bandwidth, first, below, count
):
    values = esp_values(size, size)
    capture = read_capture(save(tmp_path, esp_line(form, values, wide=wide, stbc=stbc)))
    assert capture.bandwidth == bandwidth
    assert capture.device == ("esp32 ht" if first else "esp32 lltf")
    truth = by_subcarrier(values, first, below, count)
    assert capture.subcarriers.tolist() == sorted(truth)
    np.testing.assert_array_equal(
        capture.csi[0, :, 0, 0], [truth[subcarrier] for subcarrier in capture.subcarriers.tolist()]
    )


@pytest.mark.parametrize("second", [1, 2])
@pytest.mark.parametrize(("size", "first"), [(128, 0), (256, 64), (376, 0), (380, 0)])
def test_twenty_megahertz_beside_a_secondary_channel_rise_from_low_to_high(
    tmp_path, size, first, second
):
    values = esp_values(size, 2)
    capture = read_capture(save(tmp_path, esp_line(ESP_TOOL, values, second=second, stbc=1)))
    pairs = values[2 * first : 2 * first + 128].reshape(64, 2)
    np.testing.assert_array_equal(capture.csi[0, :, 0, 0], pairs[:, 1] + 1j * pairs[:, 0])
    assert capture.subcarriers.tolist() == list(range(-32, 32))


@pytest.mark.parametrize(
    ("size", "bandwidth", "subcarriers"),
    [(106, 20, 53), (114, 20, 57), (128, 20, 64), (234, 40, 117)],
)
def test_newer_chips_report_from_low_to_high(tmp_path, size, bandwidth, subcarriers):
    values = esp_values(size, 1)
    capture = read_capture(save(tmp_path, esp_line(ESP_NEWER, values, number=7)))
    assert (capture.bandwidth, capture.csi.shape[1]) == (bandwidth, subcarriers)
    np.testing.assert_array_equal(capture.csi[0, :, 0, 0], values[1::2] + 1j * values[::2])
    assert capture.sequence.tolist() == [7]


def test_a_header_names_columns_of_any_number(tmp_path):
    """41 columns, as newer builds write: only the header can tell which is which."""
    names = ["type", "mac", "rssi", *(f"extra{i}" for i in range(33)), "bandwidth", "stbc"]
    names += ["timestamp", "len", "data"]
    values = esp_values(128, 3)
    fields = ["CSI_DATA", "aa", "-44", *["0"] * 33, "0", "0", "5000000", "128"]
    line = f'{",".join(fields)},"[{" ".join(map(str, values))}]"'
    capture = read_capture(save(tmp_path, ",".join(names), line))
    assert (capture.rssi[0], capture.timestamps[0]) == (-44, 5.0)
    with pytest.raises(CaptureError, match=r"41 columns without a header that names them \(put it"):
        read_capture(save(tmp_path, line))


STAMP = ",1607774756.965976"


@pytest.mark.parametrize("header", [None, HEADER, HEADER + ",timestamp"])
def test_a_time_of_day_behind_the_buffer_does_no_harm(tmp_path, header):
    """ESP32-CSI-Tool's own listener appends it; its header may name it ``timestamp`` or not."""
    line = esp_line(ESP_CLASSIC, esp_values(128, 1), clock=5_000_000, number=3)
    plain = read_capture(save(tmp_path, line))
    stamped = read_capture(save(tmp_path, *filter(None, [header]), line + STAMP, line))
    np.testing.assert_array_equal(stamped.csi, np.concatenate([plain.csi, plain.csi]))
    assert stamped.timestamps.tolist() == [5.0, 5.0]
    assert (stamped.sequence.tolist(), stamped.skipped) == ([3, 3], {})


@pytest.mark.parametrize("name", ["raw_line", "message"])
@pytest.mark.parametrize("more", ["", ",walking", ',"a, b",3'])
def test_lines_that_a_computer_logged_in_a_column_of_quotes_are_read(tmp_path, name, more):
    """As Python's csv writes them: quotes around the line, and its own ones doubled."""
    lines = [esp_line(ESP_CLASSIC, esp_values(128, i), clock=i, number=i) for i in range(3)]
    plain = read_capture(save(tmp_path, *lines))
    quoted = [line.replace("[", '"[').replace("]", ']"').replace('"', '""') for line in lines]
    rows = [f'2024-05-06 07:08:09,"{line}"{more}' for line in [*quoted, *lines]]
    logged = read_capture(save(tmp_path, f"time,{name}{',label' if more else ''}", *rows))
    np.testing.assert_array_equal(logged.csi, np.concatenate([plain.csi, plain.csi]))
    assert logged.skipped == {"other text": 1}


def test_quotes_around_a_line_that_are_not_doubled_inside_do_no_harm(tmp_path):
    line = esp_line(ESP_CLASSIC, esp_values(128, 1)).replace("[", '"[').replace("]", ']"')
    assert read_capture(save(tmp_path, f'"{line}"', line)).packets == 2


def test_columns_of_the_listener_before_and_behind_the_line_are_named_by_the_header(tmp_path):
    line = esp_line(ESP_CLASSIC, esp_values(128, 1), clock=5_000_000)
    rows = [f'12.5,{line},walking,2024-05-06 07:08:09,"two, in one"']
    capture = read_capture(save(tmp_path, f"time,{HEADER},label,date,remark", *rows))
    assert (capture.timestamps.tolist(), capture.skipped) == ([5.0], {})
    assert read_capture(save(tmp_path, line + ",walking")).packets == 1


@pytest.mark.parametrize("junk", ["x", "]", ",[", ',"', "," + " " * 60_000 + "["])
def test_a_line_with_junk_behind_it_is_garbled(tmp_path, junk):
    line = esp_line(ESP_CLASSIC, esp_values(128, 1))
    capture = read_capture(save(tmp_path, line, line + junk))
    assert capture.skipped == {"cut or garbled line": 1}


def test_more_behind_the_buffer_needs_a_header(tmp_path):
    line = esp_line(ESP_CLASSIC, esp_values(128, 1)) + ",7,8"
    with pytest.raises(CaptureError, match="27 columns without a header that names them"):
        read_capture(save(tmp_path, line))
    assert read_capture(save(tmp_path, HEADER + ",a,b", line)).packets == 1


def test_a_header_with_the_buffer_elsewhere_is_not_believed(tmp_path):
    """26 columns in the header and 26 fields, but the buffer is the 25th: which is which?"""
    line = esp_line(ESP_CLASSIC, esp_values(128, 1), clock=5_000_000) + ",7"
    header = HEADER.replace("type,id", "type,more,id")
    assert read_capture(save(tmp_path, header, line)).timestamps.tolist() == [5.0]


def test_another_name_of_a_column_yields_to_its_own(tmp_path):
    """The console of esp-radar has ``timestamp``, a date, beside ``local_timestamp``."""
    names = HEADER.replace("id,mac", "seq,timestamp,mac").replace(
        "secondary_channel", "channel_secondary"
    )
    line = esp_line(ESP_CLASSIC, esp_values(128, 1), clock=5_000_000, number=3, second=1)
    line = line.replace("CSI_DATA,3,", "CSI_DATA,3,2024-05-06 07:08:09.123,")
    capture = read_capture(save(tmp_path, names, line))
    assert (capture.timestamps.tolist(), capture.sequence.tolist()) == ([5.0], [3])
    pairs = esp_values(128, 1).reshape(64, 2)
    np.testing.assert_array_equal(capture.csi[0, :, 0, 0], pairs[:, 1] + 1j * pairs[:, 0])


def test_bad_lines_do_not_spoil_good_ones(tmp_path):
    good = [esp_line(ESP_CLASSIC, esp_values(128, i), clock=i, number=i) for i in range(5)]
    capture = read_capture(
        save(
            tmp_path,
            "ets Jun  8 2016 00:22:57",
            HEADER,
            good[0],
            good[1][:200],
            good[1][:300] + good[2],
            good[3].replace("[ ", "[ 999 "),
            good[3].replace("-60", "x60"),
            good[4],
            "",
        )
    )
    assert capture.sequence.tolist() == [0, 2, 4]
    assert capture.skipped == {
        "buffer of 129 bytes, 128 announced": 1,
        "cut or garbled line": 2,
        "interrupted line": 1,
        "other text": 1,
    }


def test_the_tool_may_print_only_the_legacy_field(tmp_path):
    line = esp_line(ESP_TOOL, esp_values(128, 0)).replace(",128,[", ",384,[")
    assert read_capture(save(tmp_path, line)).device == "esp32 lltf"


def test_the_clock_is_unwrapped(tmp_path):
    lines = [esp_line(ESP_TOOL, esp_values(128, 0), clock=c) for c in (2**32 - 1000, 1000)]
    np.testing.assert_allclose(np.diff(read_capture(save(tmp_path, *lines)).timestamps), [0.002])


def test_values_beyond_8_bits_are_refused(tmp_path):
    line = esp_line(ESP_TOOL, np.array([128, *[0] * 127]))
    with pytest.raises(CaptureError, match="values that are no 8-bit numbers"):
        read_capture(save(tmp_path, line))


@given(text=st.text(alphabet='CSI_DATA,[]-0123456789 "\r\nx', max_size=400))
def test_any_text_gives_a_capture_or_an_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("text") / "any.csv"
    path.write_text("CSI_DATA," + text, newline="")
    with pytest.raises(CaptureError, match=r"any.csv@0: no usable CSI frame"):
        read_capture(path)

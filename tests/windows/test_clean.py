import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedapa import Capture
from fedapa.csi.subcarriers import all_subcarriers, intel_subcarriers, live, used_subcarriers
from fedapa.errors import CaptureError, DataError
from fedapa.windows.clean import Amplitudes, LowPass, Resampler, clean, occupied
from fedapa.windows.recipe import Recipe


def capture(bandwidth=80, packets=5, device="nexmon 43455c0", links=(1, 1), subcarriers=None):
    subcarriers = all_subcarriers(bandwidth) if subcarriers is None else subcarriers
    rng = np.random.default_rng(0)
    shape = (packets, len(subcarriers), *links)
    csi = 1000 * np.exp(2j * np.pi * rng.random(shape)) * (1 + rng.random(shape))
    return Capture(
        csi=csi.astype(np.complex64),
        timestamps=np.arange(packets) / 100,
        rssi=np.full(packets, -50, np.float32),
        device=device,
        bandwidth=bandwidth,
        subcarriers=np.array(subcarriers, np.int16),
    )


def series(timestamps, values):
    values = np.asarray(values, np.float32)
    return Amplitudes(
        values.reshape(len(values), -1, 1), np.asarray(timestamps, float), np.zeros(1, np.int16)
    )


def joined(stage, cleaned):
    """What a stage makes of a whole recording: one piece for each segment."""
    parts = {}
    for part in [*stage.feed(cleaned), *stage.finish()]:
        parts.setdefault(part.segment, []).append(part)
    return [
        Amplitudes(
            np.concatenate([part.amplitude for part in segment]),
            np.concatenate([part.timestamps for part in segment]),
            cleaned.subcarriers,
        )
        for segment in parts.values()
    ]


def resample(cleaned, *, rate):
    return joined(Resampler(rate=rate, longest_gap=0.5), cleaned)


def low_pass_of(cutoff, rate):
    recipe = Recipe(rate=rate, low_pass=cutoff)
    return LowPass(cutoff=cutoff, rate=rate, reach=recipe.reach)


@pytest.mark.parametrize(
    ("device", "bandwidth", "raw_nulls", "left"),
    [
        ("nexmon 43455c0", 20, [0, *range(28, 36)], 55),
        ("nexmon 4339", 20, [0, *range(29, 36)], 56),
        ("nexmon 43455c0", 40, [0, 1, *range(59, 70), 127], 114),
        ("nexmon 43455c0", 80, [0, 1, *range(123, 134), 255], 242),
        ("esp32 lltf", 20, [0, 1, *range(27, 38)], 51),
        ("esp32 ht", 20, [0, *range(29, 36)], 56),
    ],
)
def test_nulls_by_device_and_width_in_the_order_of_the_fft(device, bandwidth, raw_nulls, left):
    subcarriers = np.array(all_subcarriers(bandwidth))
    kept = np.fft.ifftshift(live(device, bandwidth, subcarriers))
    assert np.flatnonzero(~kept).tolist() == raw_nulls
    assert kept.sum() == left


def test_devices_that_report_no_nulls_keep_all():
    assert live("intel 5300", 20, intel_subcarriers(20)).all()
    assert live("feitcsi vht", 80, used_subcarriers(80)).all()
    assert live("esp32 ht", 40, tuple(range(-58, 59))).sum() == 114


def test_a_width_without_a_table_is_refused():
    with pytest.raises(CaptureError, match="nexmon 4366c0: which subcarriers of 160 MHz"):
        live("nexmon 4366c0", 160, tuple(range(-256, 256)))


def test_eighty_megahertz_leave_242_amplitudes():
    whole = capture(links=(2, 2))
    cleaned = clean(whole)
    assert cleaned.amplitude.shape == (5, 242, 4)
    assert cleaned.amplitude.dtype == np.float32
    place = cleaned.subcarriers.tolist().index(-39)
    np.testing.assert_allclose(
        cleaned.amplitude[0, place, 2], np.abs(whole.csi[0, 128 - 39, 1, 0]), rtol=1e-6
    )


@pytest.mark.parametrize("bandwidth", [40, 80])
def test_frames_with_an_empty_part_are_dropped_and_counted(bandwidth):
    whole = capture(bandwidth)
    upper = whole.subcarriers >= bandwidth * 8 // 5 - 64
    whole.csi[1][upper] *= 0.02
    whole.csi[3] = 0
    assert occupied(whole).tolist() == [True, False, True, False, True]
    cleaned = clean(whole)
    assert len(cleaned.amplitude) == len(cleaned.timestamps) == 3
    assert cleaned.dropped == {f"a 20 MHz part of the {bandwidth} MHz is empty": 2}
    assert clean(whole, gate=0).dropped == {}


def test_junk_in_null_bins_does_not_make_a_part_look_full():
    whole = capture()
    upper = whole.subcarriers >= 64
    whole.csi[:, upper] *= 0.01
    whole.csi[:, whole.subcarriers > 122] = 1e6
    assert not occupied(whole).any()


def test_resampling_follows_a_straight_line():
    """A ramp of 10 a second, sampled unevenly, is the same ramp on the even grid."""
    times = np.array([0, 0.013, 0.02, 0.041, 0.05, 0.071, 0.1])
    (even,) = resample(series(times, 10 * times), rate=100)
    np.testing.assert_allclose(even.timestamps, np.arange(11) / 100, atol=1e-12)
    np.testing.assert_allclose(even.amplitude[:, 0, 0], np.arange(11) / 10, atol=1e-6)


def test_resampling_makes_nothing_up_over_long_gaps():
    times = [0, 0.1, 0.2, 5.0, 9.0, 9.1]
    resampler = Resampler(rate=10, longest_gap=0.5)
    first, second = joined(resampler, series(times, np.arange(6)))
    assert (len(first.timestamps), len(second.timestamps)) == (3, 2)
    assert resampler.dropped == {"alone between two gaps": 1}


def test_resampling_takes_the_last_of_packets_with_one_stamp():
    (even,) = resample(series([0, 0.1, 0.1, 0.2], [0, 7, 1, 2]), rate=10)
    np.testing.assert_allclose(even.amplitude[:, 0, 0], [0, 1, 2])


def test_a_clock_that_was_set_back_is_refused_with_its_place():
    with pytest.raises(DataError, match=r"packet 2 is 0\.500 s older"):
        resample(series([0, 1, 0.5], [0, 0, 0]), rate=10)


@given(
    gaps=st.lists(st.floats(0, 0.4), min_size=2, max_size=40),
    rate=st.floats(1, 249),
)
def test_resampled_values_stay_within_what_was_measured(gaps, rate):
    times = np.cumsum(gaps)
    values = np.sin(np.arange(len(times)))
    for part in resample(series(times, values), rate=rate):
        assert part.timestamps[0] >= times[0]
        assert part.timestamps[-1] <= times[-1] + 1e-5 / rate
        np.testing.assert_allclose(np.diff(part.timestamps), 1 / rate, rtol=1e-6)
        assert part.amplitude.min() >= values.min() - 1e-6
        assert part.amplitude.max() <= values.max() + 1e-6


def test_low_pass_keeps_motion_and_removes_what_is_faster():
    time = np.arange(2000) / 1000
    slow, fast = np.sin(2 * np.pi * 5 * time), np.sin(2 * np.pi * 200 * time)
    (smooth,) = joined(low_pass_of(30, 1000), series(time, slow + fast))
    np.testing.assert_allclose(smooth.amplitude[200:-200, 0, 0], slow[200:-200], atol=0.01)
    np.testing.assert_array_equal(smooth.timestamps, time, "stamps stay with their packets")


def test_a_low_pass_halves_what_is_at_its_cut_off():
    time = np.arange(4000) / 1000
    (smooth,) = joined(low_pass_of(30, 1000), series(time, np.sin(2 * np.pi * 30 * time)))
    assert np.abs(smooth.amplitude[500:-500]).max() == pytest.approx(0.5, abs=0.01)


def test_low_pass_says_what_it_needs():
    with pytest.raises(DataError, match="needs more than 60 packets per second, not 50"):
        Recipe(low_pass=30, rate=50)
    with pytest.raises(DataError, match="needs even packets; give --rate too"):
        Recipe(low_pass=30)
    stage = low_pass_of(3, 50)
    assert joined(stage, series(np.arange(10) / 50, np.arange(10))) == []
    assert stage.dropped == {"too few in a row to low-pass, at least 29 are needed": 10}

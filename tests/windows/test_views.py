"""Views: what they leave out, what they keep, and numbers worked out by hand."""

import numpy as np
import numpy.typing as npt
import pytest

from fedapa.errors import DataError
from fedapa.windows.clean import Amplitudes
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import Windower, window_shape
from fedapa.windows.views import STATISTICS, VIEWS, View, find_view, seen_by
from fedapa.windows.views.spectrum import DOPPLER_EDGES, band_powers, periodogram
from fedapa.windows.views.statistics import Statistics

Floats = npt.NDArray[np.float32]
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
gain_free_view = pytest.mark.parametrize(
    "view",
    [view for name, view in VIEWS.items() if name not in ("amplitude", "profile")],
    ids=lambda v: v.name,
)


def window(packets: int = 64, links: int = 2, subcarriers: int = 12, seed: int = 0) -> Floats:
    """Something that moves a little: positive amplitudes with a different rhythm everywhere."""
    stream = np.random.default_rng(seed)
    time = np.arange(packets)[:, None, None] / 50
    rhythm = stream.uniform(0.5, 8, (1, links, subcarriers))
    moving = 0.2 * np.sin(2 * np.pi * rhythm * time + stream.uniform(0, 6, rhythm.shape))
    noise = 0.02 * stream.standard_normal((packets, links, subcarriers))
    return (stream.uniform(2, 9, rhythm.shape) * np.exp(moving + noise)).astype(np.float32)


@every_view
def test_a_view_has_the_shape_that_it_says(view: View) -> None:
    for packets, links, subcarriers in ((64, 1, 30), (50, 3, 56), (33, 2, 9)):
        made = view(window(packets, links, subcarriers), 50.0)
        assert made.shape == view.shape(packets, links, subcarriers)
        assert made.dtype == np.float32
        assert np.isfinite(made).all()


@every_view
def test_a_view_does_not_change_its_window(view: View) -> None:
    given = window()
    before = given.copy()
    view(given, 50.0)
    np.testing.assert_array_equal(given, before)


@gain_free_view
def test_a_gain_changes_nothing(view: View) -> None:
    """A factor on everything: the receiver turned its amplifier up."""
    given = window()
    np.testing.assert_allclose(view(given * np.float32(7), 50.0), view(given, 50.0), atol=2e-3)


@pytest.mark.parametrize("name", ["level", "motion", "spectrum"])
def test_a_gain_of_every_packet_changes_nothing(name: str) -> None:
    given = window()
    gains = np.exp(np.random.default_rng(1).normal(0, 0.3, (len(given), 2, 1)))
    made = find_view(name)((given * gains).astype(np.float32), 50.0)
    np.testing.assert_allclose(made, find_view(name)(given, 50.0), atol=2e-3)


@pytest.mark.parametrize("name", ["motion", "spectrum"])
def test_a_factor_of_every_subcarrier_changes_nothing(name: str) -> None:
    """Other furniture, other antennas: a channel that stands still multiplies each subcarrier."""
    given = window()
    factors = np.exp(np.random.default_rng(2).normal(0, 0.5, (1, 2, 12)))
    made = find_view(name)((given * factors).astype(np.float32), 50.0)
    np.testing.assert_allclose(made, find_view(name)(given, 50.0), atol=2e-3)


@pytest.mark.parametrize("name", ["amplitude", "level", "motion", "spectrum"])
def test_links_lie_side_by_side_and_do_not_mix(name: str) -> None:
    """Two links swapped are two halves of the columns swapped."""
    given, view = window(), find_view(name)
    made, swapped = view(given, 50.0), view(given[:, ::-1].copy(), 50.0)
    np.testing.assert_allclose(np.roll(made, 12, axis=1), swapped, atol=1e-6)


def test_level_by_hand() -> None:
    """Packets (1, 3) and (6, 2): over their means 2 and 4 that is (½, 3⁄2) and (3⁄2, ½).

    Each subcarrier's mean of that is 1, so nothing more happens.
    """
    given = np.array([[[1, 3]], [[6, 2]]], np.float32)
    expected = [[0.5, 1.5], [1.5, 0.5]]
    np.testing.assert_allclose(find_view("level")(given, 1.0), expected, rtol=1e-6)


def test_motion_by_hand() -> None:
    """Packets (1, e²) and (e³, e): logarithms (0, 2) and (3, 1), without the packets' means
    (−1, 1) and (1, −1), and the subcarriers' means of that are 0."""
    given = np.exp(np.array([[[0, 2]], [[3, 1]]])).astype(np.float32)
    expected = [[-1, 1], [1, -1]]
    np.testing.assert_allclose(find_view("motion")(given, 1.0), expected, atol=1e-6)


def test_several_views_at_once_are_those_one_by_one() -> None:
    given = window(64)
    for name, made in zip(VIEWS, seen_by(list(VIEWS), given, 100.0), strict=True):
        np.testing.assert_array_equal(made, find_view(name)(given, 100.0))


def test_a_profile_by_hand() -> None:
    """The first of twelve subcarriers is 1, but in the last eighth of 32 packets: 5."""
    given = window(32)[:, :1].copy()
    given[:, 0, 0] = 1
    given[28:, 0, 0] = 5
    made = find_view("profile")(given, 100.0)
    deviation = np.sqrt(28 / 32 * 0.5**2 + 4 / 32 * 3.5**2)  # the mean is 1.5
    profile = made[len(STATISTICS) :].reshape(10, 12)
    np.testing.assert_allclose(profile[:, 0], [*[1] * 7, 5, deviation, 4 / 31], rtol=1e-6)
    by_link = find_view("statistics by link")(given, 100.0)
    np.testing.assert_array_equal(made[: len(STATISTICS)], by_link)


def test_a_packet_without_signal_is_faint_and_not_infinite() -> None:
    given = window()
    given[5] = 0
    for view in VIEWS.values():
        assert np.isfinite(view(given, 50.0)).all()


def test_the_periodogram_holds_the_variance() -> None:
    """A sine of amplitude 2 has the variance 2; its power lies at its own frequency.

    128 packets at 64 per second: frequencies are ½ Hz apart, and a sine of 8 Hz under a Hann taper
    lies in three of them, with 1/6, 2/3 and 1/6 of its power.
    """
    time = np.arange(128) / 64
    motion = (2 * np.sin(2 * np.pi * 8 * time)).astype(np.float32)[:, None]
    power = periodogram(motion, 64.0)[:, 0]
    assert power.sum() * 0.5 == pytest.approx(2.0, rel=1e-4)
    np.testing.assert_allclose(power[15:18] * 0.5, [2 / 6, 4 / 3, 2 / 6], rtol=1e-4)


def test_band_powers_by_hand() -> None:
    """Frequencies 0, 1, 2 Hz with powers 0, 6, 2, each for ½ Hz to both sides.

    The band from 1 to 2 Hz is half the one and half the other: 4. The band from 1.6 to 1.8 lies
    within the second frequency: 2. The band from 3 to 4 has none.
    """
    power = np.array([[0], [6], [2]], np.float32)
    made = [
        band_powers(power, 4, 4.0, edges)[0, 0] for edges in ((1.0, 2.0), (1.6, 1.8), (3.0, 4.0))
    ]
    assert made == pytest.approx([4.0, 2.0, 0.0], rel=1e-6)


def test_a_walker_is_in_the_band_of_its_speed() -> None:
    """A tone that swings at 20 Hz shows in the band from 16 to 22.6 Hz, at any packet rate."""
    for rate, packets in ((100.0, 400), (250.0, 1000)):
        time = np.arange(packets)[:, None, None] / rate
        swing = np.zeros((1, 1, 8))
        swing[0, 0, 3] = 0.3
        given = (5 * np.exp(swing * np.sin(2 * np.pi * 20 * time))).astype(np.float32)
        made = find_view("spectrum")(given, rate)
        band = int(made[:, 3].argmax())
        assert DOPPLER_EDGES[band] <= 20 < DOPPLER_EDGES[band + 1]


# ---- statistics ----------------------------------------------------------------------------------


def named(values: Floats) -> dict[str, float]:
    return dict(zip(STATISTICS, values.tolist(), strict=True))


def test_every_number_has_a_name_of_its_own() -> None:
    assert len(set(STATISTICS)) == len(STATISTICS)
    assert find_view("statistics").shape(500, 3, 56) == (len(STATISTICS),)
    assert find_view("statistics by link").shape(500, 3, 56) == (3 * len(STATISTICS),)


def test_furniture_changes_levels_and_nothing_that_moves() -> None:
    """A factor on each subcarrier for the whole window; how much and how fast stay as they were."""
    given = window(400, links=1, subcarriers=56)
    factors = np.exp(np.random.default_rng(2).normal(0, 0.5, (1, 1, 56)))
    before = named(find_view("statistics")(given, 100.0))
    after = named(find_view("statistics")((given * factors).astype(np.float32), 100.0))
    moved = {name for name in before if abs(after[name] - before[name]) > 0.02}
    still = {
        name for name in STATISTICS if "level" in name or ("delay" in name and "Hz" not in name)
    }
    assert moved <= still
    assert len(moved) > 10
    assert len(still) == 33


def test_a_gain_of_every_packet_changes_the_numbers_of_the_gain_alone() -> None:
    given = window(400, links=1, subcarriers=56)
    gains = np.exp(np.random.default_rng(1).normal(0, 0.1, (len(given), 1, 1)))
    before = named(find_view("statistics")(given, 100.0))
    after = named(find_view("statistics")((given * gains).astype(np.float32), 100.0))
    moved = {name for name in before if abs(after[name] - before[name]) > 0.02}
    assert moved == {name for name in STATISTICS if "of the gain" in name}
    assert len(moved) == 7


def test_furniture_changes_the_level_a_little() -> None:
    given = window(400, links=1, subcarriers=56)
    factors = np.exp(np.random.default_rng(2).normal(0, 0.3, (1, 1, 56)))
    before = find_view("level")(given, 100.0)
    after = find_view("level")((given * factors).astype(np.float32), 100.0)
    change = np.abs(after - before).mean() / np.abs(before - 1).mean()
    assert 1e-3 < change < 0.1


def test_links_are_averaged_in_any_order() -> None:
    given, pooled = window(200, links=3), find_view("statistics")
    by_link = find_view("statistics by link")(given, 50.0).reshape(3, -1)
    np.testing.assert_allclose(pooled(given, 50.0), by_link.mean(axis=0), rtol=1e-5, atol=1e-6)
    turned = pooled(given[:, [2, 0, 1]].copy(), 50.0)
    np.testing.assert_allclose(turned, pooled(given, 50.0), rtol=1e-4, atol=1e-5)
    alone = find_view("statistics by link")(given[:, 1:2].copy(), 50.0)
    np.testing.assert_allclose(by_link[1], alone, rtol=1e-4, atol=1e-5)


def swinging(hertz: float, *, rate: float, subcarriers: int) -> Floats:
    """4 s in which every subcarrier swings alike but for its sign, and very little noise."""
    time = np.arange(round(4 * rate))[:, None, None] / rate
    sign = np.where(np.arange(subcarriers) % 2, 1, -1)
    noise = 1e-3 * np.random.default_rng(0).standard_normal((len(time), 1, subcarriers))
    return np.exp(0.1 * sign * np.sin(2 * np.pi * hertz * time) + noise).astype(np.float32)


def test_the_power_lies_where_the_motion_is_for_every_receiver() -> None:
    """Of ±0.1 the variance is 0.005; one movement; 15 Hz lies between 12 and 20."""
    for rate, subcarriers in ((100.0, 30), (125.0, 56), (125.0, 242)):
        values = named(
            find_view("statistics")(swinging(15, rate=rate, subcarriers=subcarriers), rate)
        )
        bands = {name: value for name, value in values.items() if name in PLAIN_BANDS}
        assert max(bands, key=lambda name: bands[name]) == "log power at 12 to 20 Hz"
        assert values["log centre of the Doppler"] == pytest.approx(np.log(15), abs=0.1)
        if subcarriers <= 56:  # more are averaged in groups, and neighbours of unlike sign cancel
            assert values["log variance"] == pytest.approx(np.log(0.005), abs=0.05)


PLAIN_BANDS = [name for name in STATISTICS if name.startswith("log power at") and "," not in name]
PLAIN_BANDS = [name for name in PLAIN_BANDS if "quarter" not in name]


def test_a_step_of_the_amplifier_is_no_person() -> None:
    """Twice the gain from the middle on: nothing changes, not even the variance of the gain."""
    given = window(400, links=1, subcarriers=30)
    stepped = given.copy()
    stepped[200:] *= 2
    before, after = (named(find_view("statistics")(values, 100.0)) for values in (given, stepped))
    for name, value in before.items():
        assert after[name] == pytest.approx(value, abs=0.1), name


# ---- through the windower ------------------------------------------------------------------------


def amplitudes(rows: Floats) -> Amplitudes:
    stored = rows.transpose(0, 2, 1)  # (packets, subcarriers, links)
    return Amplitudes(stored, np.arange(len(rows)) / 50, np.zeros(0, np.int16))


@every_view
def test_a_window_has_the_same_view_alone_and_in_pieces(view: View) -> None:
    recipe = Recipe(window=40, stride=10, links="all", view=view.name, packet_rate=50.0)
    given = window(200)
    at_once = Windower(recipe).feed(amplitudes(given))
    pieces = Windower(recipe)
    parts = [pieces.feed(amplitudes(part)).values for part in np.array_split(given, 23)]
    assert at_once.values.shape == (17, *window_shape(12, 2, recipe))
    np.testing.assert_array_equal(at_once.values, np.concatenate(parts))


def test_faults_are_told_by_what_the_view_needs() -> None:
    recipe = Recipe(window=20, links="all", packet_rate=50.0)
    given = window(100)
    given[20:40, 1] = 0  # a dead link
    given[40:60, 0, 7] = 0  # a dead subcarrier
    given[60:80] = 3
    given[80, 0, 0] = np.nan
    good, link, subcarrier, constant, nan = Windower(recipe).feed(amplitudes(given)).faults
    assert (good, link, subcarrier) == ("", "", "")  # the paper's input takes them as they are
    assert constant.startswith("is constant")
    assert nan == "holds NaN or infinity"
    made = Windower(Recipe(**{**vars(recipe), "view": "motion"})).feed(amplitudes(given))
    good, link, subcarrier, constant, nan = made.faults
    assert good == ""
    assert link == (
        "has a dead link (link 2 of 2 is zero throughout), of which view 'motion' makes nothing"
    )
    assert "zero throughout (8 of 12), of which view 'motion' makes nothing" in subcarrier
    assert constant.startswith("is constant")
    assert np.isfinite(made.values[0]).all()
    assert np.isnan(made.values[1:]).all()


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(window=40, view="spectrum"), "speaks of Hz.*import the captures again with --rate"),
        (
            Recipe(window=4, view="spectrum", packet_rate=1.0),
            "needs 8 packets per window or more, not 4; use a longer window",
        ),
        (
            Recipe(window=40, view="statistics", packet_rate=1.0),
            "needs 10 packets per second or more, not 1; record faster, or use view",
        ),
        (
            Recipe(window=40, view="level", subcarrier_step=12, packet_rate=50.0),
            "needs 2 subcarriers per link or more, not 1; lower data.subcarrier_step, or use view",
        ),
        (
            Recipe(window=40, view="profile", subcarrier_step=6, packet_rate=50.0),
            "needs 3 subcarriers per link or more, not 2; lower data.subcarrier_step",
        ),
    ],
)
def test_a_view_that_can_say_nothing_is_refused(recipe: Recipe, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Windower(recipe).feed(amplitudes(window(100)))


@every_view
def test_the_fewest_subcarriers_give_numbers(view: View) -> None:
    made = view(window()[:, :, : view.fewest_subcarriers], 50.0)
    assert np.isfinite(made).all()
    assert made.std() > 0


def test_an_unknown_view_names_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'motion'"):
        find_view("motoin")


@every_view
def test_places_say_how_a_view_moves_with_the_packets(view: View) -> None:
    """Antennas swapped, time backwards, twice the gain."""
    packets = window(64, links=3)
    seen = view(packets, 50.0)
    places, flat = view.places(seen.shape, 3), seen.ravel()

    def close(changed: Floats, expected: Floats) -> None:
        np.testing.assert_allclose(view(changed, 50.0).ravel(), expected, rtol=2e-3, atol=2e-3)

    order = [2, 0, 1]
    swapped = flat.copy()
    if len(places.links):
        swapped[places.links.ravel()] = flat[places.links[order].ravel()]
    close(packets[:, order], swapped)
    if places.backwards.size and not isinstance(view, Statistics):  # most know no direction
        close(packets[::-1].copy(), flat[places.backwards])
    louder = flat.copy()
    louder[places.gained] *= 2
    close(2 * packets, louder)
    if len(places.subcarriers):
        assert places.subcarriers.shape[0] == 36
        second = packets.copy()
        second[:, 0, 1] *= np.linspace(1, 3, 64, dtype=np.float32)
        changed = np.abs(view(second, 50.0).ravel() - flat) > 1e-3
        assert changed[places.subcarriers[1]].any()


def test_a_profile_backwards_has_its_eighths_in_the_other_order() -> None:
    """By hand: the first subcarrier is 1 … 32 in 32 packets, its eighths 2.5, 6.5, … 30.5."""
    view, numbers = VIEWS["profile"], len(STATISTICS)
    rising = window(32, links=1)
    rising[:, 0, 0] = np.arange(1, 33)
    seen = view(rising, 50.0)
    places = view.places(seen.shape, 1)
    first = places.subcarriers[0]
    assert first.tolist() == [numbers + 12 * part for part in range(10)]
    assert seen[first[:8]].tolist() == [2.5 + 4 * part for part in range(8)]
    backwards = seen[places.backwards]
    assert backwards[first[:8]].tolist() == [30.5 - 4 * part for part in range(8)]
    fallen = view(rising[::-1].copy(), 50.0)
    np.testing.assert_allclose(fallen[numbers:], backwards[numbers:], rtol=1e-5)

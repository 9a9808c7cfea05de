"""Recipe: one value from packet to net, one form on disk, wrong ones refused by name."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedapa.errors import DataError
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe, told_together

FULL = Recipe(
    device="nexmon 43455c0",
    bandwidth=20,
    subcarriers=(-2, -1, 1, 2),
    link_count=2,
    gate=0.2,
    rate=100.0,
    longest_gap=1.0,
    low_pass=20.0,
    window=400,
    stride=100,
    decimate=2,
    subcarrier_step=2,
    links="all",
    bad_windows="drop",
)


@pytest.mark.parametrize("recipe", [Recipe(), FULL, Recipe(source="features")])
def test_the_text_of_a_recipe_gives_it_back(recipe: Recipe) -> None:
    again = Recipe.of_json(recipe.to_json(), place="a store")
    assert again == recipe
    assert again.to_json() == recipe.to_json()


def test_the_normaliser_stands_beside_the_text() -> None:
    normaliser = Normaliser(np.ones(4, np.float32), np.full(4, 2, np.float32))
    recipe = replace(FULL, normaliser=normaliser)
    assert "normaliser" not in recipe.document()
    again = Recipe.of_document(recipe.document(), place="a model", normaliser=normaliser)
    assert again == recipe != FULL
    assert hash(again) == hash(recipe)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"view": "moton"}, "view 'moton' is unknown; did you mean 'motion'"),
        ({"links": "some"}, "links 'some' is unknown"),
        ({"source": "tones"}, "source 'tones' is unknown"),
        ({"window": 0}, "window 0 is no whole number"),
        ({"window": True}, "window True is no whole number"),
        ({"window": "8"}, "window '8' is no whole number"),
        ({"stride": -1}, "stride -1 is no whole number"),
        ({"decimate": 500}, "decimate 500 leaves nothing of a window of 400"),
        ({"subcarriers": [1, 2]}, "no tuple of centred indices"),
        ({"subcarriers": ()}, "no tuple of centred indices"),
        ({"device": 5}, "device 5 is no name"),
        ({"gate": 1.0}, "gate 1 is no share"),
        ({"gate": "a"}, "gate a is no share"),
        ({"rate": 0.0}, "rate 0 is no rate"),
        ({"rate": float("nan")}, "rate nan is no rate"),
        ({"rate": None}, "a longest gap needs a rate"),
        ({"rate": None, "longest_gap": None}, "low-pass at 20 Hz needs even packets"),
        ({"longest_gap": 0.0}, "longest gap 0 is no number of seconds"),
        ({"low_pass": 50.0}, "needs more than 100 packets per second"),
        ({"low_pass": 1e-9}, "looks at more than 10000 packets"),
        ({"low_pass": 10**400}, "low-pass 10000.*… is no cut-off"),
        ({"rate": 10**400}, "rate 10000.*… is no rate"),
        ({"seconds": 10**400}, "seconds 10000.*… is no length"),
        ({"longest_gap": 10**400}, "longest gap 10000.*… is no number of seconds"),
        ({"normaliser": 3}, "normaliser is a int"),
    ],
)
def test_a_recipe_that_cannot_be_says_why(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        replace(FULL, **changes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "its recipe is no JSON"),
        ("[" * 100_000, "its recipe is no JSON"),
        ("[]", "its recipe is .*, no table"),
        ("{}", "recipe version None, this fedapa reads 1"),
        ('{"version": 1, "windw": 8}', "unknown key 'windw'; did you mean 'window'"),
        ('{"version": 1, "window": null, "gate": null}', "gate None is no share"),
        (json.dumps({"version": 1, "subcarriers": ["a"]}), "no tuple of centred indices"),
    ],
)
def test_a_text_that_is_none_says_why(text: str, words: str) -> None:
    with pytest.raises(DataError, match=f"rooms.h5: .*{words}|rooms.h5: {words}"):
        Recipe.of_json(text, place="rooms.h5")


def test_differences_are_named_field_by_field() -> None:
    assert FULL.differences(FULL) == []
    other = replace(FULL, rate=50.0, subcarriers=(1, 2, 3))
    assert other.differences(FULL) == [
        "subcarriers 3 from 1 to 3 instead of 4 from -2 to 2",
        "rate 50 instead of 100",
    ]
    left_out = Recipe(rate=50.0)
    assert left_out.differences(Recipe(rate=50.0, longest_gap=0.5)) == []


def test_the_delay_of_the_filters_is_stated() -> None:
    """Decimation by 2 looks 20 packets ahead; a low-pass at 20 of 100 Hz ⌈1.65 · 5⌉ = 9."""
    assert (FULL.margin, FULL.reach) == (20, 9)
    assert FULL.delay == pytest.approx(0.29)
    assert Recipe(window=5).delay == 0


def test_seconds_become_packets_at_the_receivers_rate() -> None:
    """4 s at 125 per second are 500 packets; three quarters in common leave a stride of 125."""
    asked = Recipe(seconds=4.0, overlap=0.75)
    sized = replace(asked, packet_rate=125.0).sized(longest=1000)
    assert (sized.window, sized.stride, sized.overlap) == (500, 125, 0.0)
    assert sized.sentence() == "windows of 500 packets (4 s at 125 per second), view amplitude"
    assert sized.sized(longest=1000) == sized
    resampled = replace(asked, rate=50.0, packet_rate=125.0).sized()
    assert (resampled.window, resampled.stride) == (200, 50)
    assert resampled.sentence() == (
        "windows of 200 packets (4 s at 50 per second, put onto an even grid), view amplitude"
    )


@pytest.mark.parametrize(
    ("window", "overlap", "stride"),
    [
        (500, 0.8, 100),
        (500, 0.875, 50),  # 62.5 is none; in ten parts there are windows end to end
        (500, 0.5, 250),
        (503, 0.75, 126),  # a prime: neighbours begin 504 apart
        (398, 0.8, 80),  # 400 apart
        (31, 0.8, 4),  # 32 apart, where 7 would be 35
    ],
)
def test_a_stride_leaves_windows_that_lie_end_to_end(
    window: int, overlap: float, stride: int
) -> None:
    assert Recipe(window=window, overlap=overlap).sized().stride == stride


def test_a_window_of_seconds_is_cut_down_to_the_recordings_and_says_so() -> None:
    sized = Recipe(seconds=4.0, packet_rate=100.0, link_count=3, links="all").sized(longest=250)
    assert sized.window == 250
    assert sized.sentence() == (
        "windows of 250 packets (2.5 s at 100 per second; no recordings for 4 s), all of 3 links, "
        "view amplitude"
    )


@pytest.mark.parametrize(
    ("rate", "packets"),
    [
        (99.6, 400),
        (100.0, 400),
        (101.9, 400),
        (125.0, 500),
        (33.37, 133),
        (97.0, 388),
        (1000, 4000),
    ],
)
def test_receivers_that_were_set_to_one_rate_have_one_number_of_packets(
    rate: float, packets: int
) -> None:
    """Within 2 % of a round rate it is the round one; 33.37 and 97 are near none."""
    sized = Recipe(seconds=4.0, packet_rate=rate).sized(longest=5000)
    assert (sized.window, sized.shortened) == (packets, "")


def test_the_recommended_window_is_cut_down_and_one_that_is_asked_for_is_not() -> None:
    assert Recipe().sized(recommended=400, longest=500).window == 400
    assert Recipe(window=300).sized(recommended=400, longest=250).window == 300
    sized = Recipe(packet_rate=125.0).sized(recommended=400, longest=250)
    assert sized.sentence() == (
        "windows of 250 packets (2 s at 125 per second; no recordings for 400 packets), view "
        "amplitude"
    )
    assert not sized.differences(replace(sized, shortened="")), "why is no difference"


def test_packets_that_are_said_stay_however_short_the_recordings() -> None:
    assert Recipe(window=400).sized(longest=250).window == 400


def test_seconds_without_a_rate_are_refused() -> None:
    with pytest.raises(DataError, match="windows of 4 s, and nobody noted how many packets"):
        Recipe(seconds=4.0).sized()


def test_windows_that_are_nearly_alike_are_told_once() -> None:
    rooms = [
        "windows of 398 packets (4 s at 99.53 per second), view level",
        "windows of 400 packets (4.02 s at 99.6 per second), view level",
        "windows of 400 packets (4 s at 100 per second), view level",
    ]
    together = "windows of 398 to 400 packets (4 to 4.02 s at 99.53 to 100 per second), view level"
    assert told_together(rooms) == together
    assert told_together([rooms[0], rooms[0]]) == rooms[0]
    fast = "windows of 500 packets (4 s at 125 per second), view level"
    assert told_together([*rooms, fast, fast]) == f"{together}; {fast}"
    many = [f"windows of {packets} packets" for packets in (10, 20, 40, 80, 160)]
    assert told_together(many) == f"{'; '.join(many[:3])}; and 2 more kinds"

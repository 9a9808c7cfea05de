"""Adaptation: equations by hand, what stays off, and an error that would feed itself."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from fedapa.adaptation import (
    Adaptation,
    Followed,
    Trained,
    begin,
    follow,
    follow_all,
    net_input,
    recentred,
    shift_of,
    taught,
)

_Floats = npt.NDArray[np.float64]


def _line(classes: int = 11, sharpness: float = 8.0) -> Trained:
    """Counts 0, 1, 2 … at 0, 1, 2 … on a line; the classifier is the nearest of them.

    −(z − c)²/2 = z·c − c²/2 but for what all classes share, so W_c = c and b_c = −c²/2.
    """
    people = np.arange(classes, dtype=np.float64)
    return Trained(
        mean=np.zeros(1),
        deviation=np.ones(1),
        prototypes=people[:, None],
        present=np.ones(classes, bool),
        weight=people[:, None],
        bias=-(people**2) / 2,
        temperature=1 / sharpness,
        empty=0,
    )


def _as_it_is(windows: npt.NDArray[np.float32]) -> _Floats:
    return np.asarray(windows, np.float64)


def _counted(how: Adaptation, windows: _Floats) -> list[int]:
    trained = _line()
    told, _ = follow_all(how, trained, begin(trained), windows[:, None], _as_it_is)
    return [int(count) for count in told.argmax(axis=1)]


def test_the_normaliser_by_hand() -> None:
    """μ = 10, σ = 2, ι = 2, memory 4 (φ = ¾); one window of a packet, 16.

    A1: n = 1, s = 16, r = 256. A2: m = (20 + 16)/3 = 12, d² = (2·104 + 256)/3 − 144 = 32/3, so
    d = 3.266. A3: m may reach 12, d may reach 3. A4: (16 − 12)·2/3 + 10 = 12⅔.
    A second window, 8: n = ¾ + 1, s = 12 + 8 = 20, r = 192 + 64 = 256; m = (20 + 20)/3.75 = 10⅔,
    d² = (208 + 256)/3.75 − 10⅔² = 9.956, d = 3.155, at most 3: (8 − 10⅔)·2/3 + 10 = 8.222.
    """
    how = Adaptation(normaliser=True, inertia=2, memory=4)
    trained = replace(_line(2), mean=np.array([10.0]), deviation=np.array([2.0]))
    seen: list[float] = []

    def embed(windows: npt.NDArray[np.float32]) -> _Floats:
        seen.append(float(windows[0, 0, 0]))
        return np.zeros((1, 1))

    windows = np.array([[[16.0]], [[8.0]]])  # (B, packets, F)
    _, state = follow_all(how, trained, begin(trained), windows, embed)
    assert seen == pytest.approx([12 + 2 / 3, 10 - 16 / 9], rel=1e-6)
    assert state.windows == 1.75
    np.testing.assert_allclose(state.inputs, [[20], [256]])


def test_the_shift_of_prototypes_by_hand() -> None:
    """Prototypes 0 and 4, κ = 2; a window at 1 that is ¾ of class 0 and ¼ of class 1.

    A5: N = (¾, ¼), S = (¾, ¼). A6: ¾/2.75 · (1 − 0) = 0.2727, ¼/2.25 · (1 − 4) = −0.3333; the mean
    is −0.0303. The nearest prototypes are 4 apart, so A7 allows 2.
    """
    trained = replace(_line(2), prototypes=np.array([[0.0], [4.0]]))
    state = Followed(0.0, np.zeros((2, 1)), np.array([0.75, 0.25]), np.array([[0.75], [0.25]]), 4.0)
    how = Adaptation(recentre="prototypes")
    assert begin(trained).reach == 4.0
    assert shift_of(how, trained, state)[0] == pytest.approx((0.75 / 2.75 - 3 * 0.25 / 2.25) / 2)
    # The empty room alone: ¾/2.75 · (1 − 0), and no mean over others.
    alone = shift_of(replace(how, recentre="empty"), trained, state)
    assert alone[0] == pytest.approx(0.75 / 2.75)
    # A7: a class that lies at 40 moves no further than 2.
    far = replace(state, places=np.array([[30.0], [0.25]]))
    assert shift_of(how, trained, far)[0] == pytest.approx(2.0)


def test_what_the_net_told_already_is_recentred_alike() -> None:
    """Window for window the same as ``follow``, which asks the net itself."""
    how, trained = Adaptation(recentre="prototypes"), _line()
    alone = both = begin(trained)
    for place in (0.3, 1.4, 2.3, 5.2, 5.4):
        told, alone = follow(how, trained, alone, np.array([place]), _as_it_is)
        plain, _ = follow(Adaptation(), trained, both, np.array([place]), _as_it_is)
        found, both = recentred(how, trained, both, np.array([place]), plain)
        np.testing.assert_allclose(found, told, atol=1e-9)
    assert shift_of(how, trained, both)[0] > 0


def test_the_default_follows_nothing() -> None:
    how, trained = Adaptation(), _line()
    assert how.is_off
    start = begin(trained)
    told, state = follow(how, trained, start, np.array([3.2]), _as_it_is)
    assert state is start
    assert int(told.argmax()) == 3
    assert not Adaptation(normaliser=True).is_off
    assert not Adaptation(recentre="empty").is_off


@pytest.mark.parametrize("recentre", ["empty", "prototypes"])
def test_a_shift_of_the_whole_room_is_found(recentre: str) -> None:
    """Every window lies 0.3 higher than in training, all counts in turn; one window at 1.55.

    Before anything is known it is taken for 2; once the shift is found, for 1.
    """
    how = Adaptation(recentre=recentre)  # type: ignore[arg-type]
    day = np.tile(np.arange(11) + 0.3, 10)
    asked = np.array([1.55])
    assert _counted(how, asked) == [2]
    assert _counted(how, np.concatenate([day, asked]))[-1] == 1


def test_other_counts_than_in_training_are_no_shift() -> None:
    """A day of ten people only, where they were trained: prototypes stay, the normaliser goes."""
    day = np.full(200, 10.0)
    assert _counted(Adaptation(recentre="prototypes"), day)[-1] == 10
    trained = _line()
    how = Adaptation(recentre="prototypes")
    _, state = follow_all(how, trained, begin(trained), day[:, None], _as_it_is)
    assert abs(shift_of(how, trained, state)[0]) < 0.1
    # The normaliser cannot know: that is why it must win on validation days.
    how = Adaptation(normaliser=True)
    _, state = follow_all(how, trained, begin(trained), day[:, None], _as_it_is)
    assert net_input(how, trained, state, np.array([10.0]))[0] < 9.5


def test_an_error_would_feed_itself_without_the_bound() -> None:
    """A room that fills up slowly, from 0 to 10 people over 6000 windows.

    The empty room is the anchor: a window at 0.4 is taken for empty, the anchor goes there, so that
    one at 0.8 is taken for empty next … Without a bound the full room ends as an empty one. With it
    the anchor ends at half the way to one person, and ten people are off by one at most.
    """
    filling = np.linspace(0.0, 10.0, 6000)
    bounded = Adaptation(recentre="empty")
    assert _counted(replace(bounded, margin=math.inf), filling)[-1] == 0
    assert _counted(bounded, filling)[-1] >= 9


def test_the_normaliser_cannot_run_away() -> None:
    """An input that climbs for ever: without bounds the net always sees something usual."""
    climbing = np.linspace(0.0, 100.0, 2000)[:, None]
    trained = _line()
    seen = {}
    for farthest, stretch in ((math.inf, math.inf), (1.0, 1.5)):
        how = Adaptation(normaliser=True, farthest=farthest, stretch=stretch)
        _, state = follow_all(how, trained, begin(trained), climbing, _as_it_is)
        seen[farthest] = float(net_input(how, trained, state, climbing[-1])[0])
    assert seen[math.inf] < 2
    assert seen[1.0] == pytest.approx(99 / 1.5)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_moves_further_than_its_bounds_whatever_comes(seed: int) -> None:
    stream = np.random.default_rng(seed)
    trained = _line()
    how = Adaptation(normaliser=True, recentre="prototypes")
    state = begin(trained)
    for window in 1e3 * stream.standard_cauchy((300, 4, 1)):
        told, state = follow(how, trained, state, window, lambda one: one.mean(axis=1))
        assert np.isfinite(told).all()
        assert np.linalg.norm(shift_of(how, trained, state)) <= 0.5 * trained.margin + 1e-12
        at_mean = net_input(how, trained, state, trained.mean)
        assert (np.abs(at_mean - trained.mean) <= 1.5 * trained.deviation + 1e-9).all()


def test_a_window_that_is_no_number_is_not_remembered() -> None:
    trained, how = _line(), Adaptation(normaliser=True, recentre="prototypes")
    told, state = follow(how, trained, begin(trained), np.array([np.nan]), _as_it_is)
    np.testing.assert_allclose(told, 1 / 11)
    assert state.windows == 0
    told, state = follow(how, trained, state, np.array([3.0]), _as_it_is)
    assert np.isfinite(told).all()
    assert np.isfinite(state.inputs).all()


def test_states_are_returned_not_changed() -> None:
    trained, how = _line(), Adaptation(normaliser=True, recentre="prototypes")
    first = begin(trained)
    _, second = follow(how, trained, first, np.array([3.0]), _as_it_is)
    assert first.windows == 0
    assert not first.inputs.any()
    assert not first.members.any()
    assert second.windows == 1
    assert second.members.sum() == pytest.approx(1)


def test_without_an_empty_class_the_empty_room_is_no_anchor() -> None:
    trained, how = replace(_line(), empty=None), Adaptation(recentre="empty")
    told, state = follow_all(how, trained, begin(trained), np.array([[0.4], [0.4]]), _as_it_is)
    assert not state.members.any()
    assert [int(count) for count in told.argmax(axis=1)] == [0, 0]


def test_labelled_windows_by_hand() -> None:
    """Two windows of class 1, at 1.75: v = 2·0.75/(2 + 2) = 0.375, so they lie at 1.375 and 1.55.

    A window at 1.6 was taken for 2 and lies at 1.225 now. The step leaves that answer alone and
    makes class 1 more probable where it was said to be.
    """
    trained = _line(4)
    given = np.array([[1.75], [1.75]])
    tuned = taught(trained, given, np.array([1, 1]))

    def told(counter: Trained, place: float) -> _Floats:
        start = begin(counter)
        return follow(Adaptation(), counter, start, np.array([place]), _as_it_is)[0]

    assert int(told(trained, 1.6).argmax()) == 2
    assert int(told(tuned, 1.6).argmax()) == 1
    assert (
        told(tuned, 1.75)[1]
        > told(replace(trained, bias=trained.bias - 0.375 * trained.weight[:, 0]), 1.75)[1]
    )
    assert taught(trained, np.zeros((0, 1)), np.zeros(0, np.int64)) is trained

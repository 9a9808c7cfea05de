"""How good a room is by now: takes left out in turn, beside the floor; or too few to tell."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedapa.service.calibration import Take, save_take
from fedapa.service.room_quality import Quality, Score, _scored, _spread, room_quality
from fedapa.windows.normalise import Normaliser
from tests.service.takes import moving, quiet


def store_of(path: Path, takes: list[tuple[int, float]]) -> Path:
    """Takes of 13 s, each a count and how deep its waves are; 3 windows of 4 s each."""
    for number, (count, depth) in enumerate(takes):
        capture = moving(13, depth=depth, seed=number) if depth else quiet(13, seed=number)
        save_take(
            path, "den", Take(count, "d", f"take {number}", capture, 13.0, 50.0, stillness=None)
        )
    return path


def test_counts_that_differ_are_told_apart_in_takes_that_were_left_out(tmp_path: Path) -> None:
    """Four takes of each of two counts: empty is still, 3 people make waves."""
    store = store_of(tmp_path / "den.h5", [(0, 0.0), (3, 0.2)] * 4)
    quality = room_quality(store, "den")
    assert quality.takes == {0: 4, 3: 4}
    assert quality.windows == 24
    assert [one.takes for one in quality.curve] == [1, 2, 3]
    assert quality.curve[-1] == Score(3, accuracy=1.0, mae=0.0)
    assert (quality.floor_accuracy, quality.floor_mae, quality.commonest) == (0.5, 1.5, 0)
    assert "100 % of 24 windows right" in quality.sentence()
    assert "always answering 0: 50 %, 1.5 off" in quality.sentence()
    assert "not clearly better" not in quality.sentence()


def test_counts_that_are_alike_are_not_called_good(tmp_path: Path) -> None:
    """All takes are noise, whatever they are called: chance, and the sentence says so."""
    store = store_of(tmp_path / "den.h5", [(0, 0.0), (1, 0.0), (2, 0.0)] * 3)
    quality = room_quality(store, "den")
    assert quality.curve[-1].accuracy < 0.6
    assert "not clearly better: more takes are needed" in quality.sentence()


@pytest.mark.parametrize(
    ("takes", "said"),
    [
        ([(0, 0.0)], "takes of one count only"),
        ([(0, 0.0), (1, 0.2)], "one take of 0, 1"),
        ([(0, 0.0), (0, 0.0), (1, 0.2)], "one take of 1"),
    ],
)
def test_too_few_takes_are_too_few(
    tmp_path: Path, takes: list[tuple[int, float]], said: str
) -> None:
    quality = room_quality(store_of(tmp_path / "den.h5", takes), "den")
    assert said in quality.too_few
    assert quality.sentence().startswith("too few to tell how good the room is")
    assert quality.curve == ()


def test_a_take_that_is_left_out_is_not_normalised_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four takes of two windows: six windows teach, and the normaliser knows no others."""
    taught: list[list[int]] = []
    real = Normaliser.of

    def of(rows: npt.NDArray[np.float32], index: npt.NDArray[np.int64]) -> Normaliser:
        taught.append(index.tolist())
        return real(rows, index)

    monkeypatch.setattr(Normaliser, "of", of)
    rows = np.arange(16, dtype=np.float32).reshape(8, 2)
    takes, labels = np.repeat(np.arange(4), 2), np.repeat([0, 1, 0, 1], 2)
    _scored(Quality({0: 2, 1: 3}, 8, ""), rows, labels, takes, np.array([0, 1]))
    left_out = [[2 * take, 2 * take + 1] for take in range(4)]
    assert taught[-4:] == [[row for row in range(8) if row not in out] for out in left_out]


def test_the_spread_is_by_takes() -> None:
    """Of four takes two are all right and two are all wrong: ½ ± √(1/3)/√4 = 0.29, by hand."""
    right, takes = np.repeat([1, 1, 0, 0], 5).astype(bool), np.repeat(np.arange(4), 5)
    assert _spread(right, takes) == pytest.approx(np.sqrt(1 / 3) / 2)
    # All right in four takes is no certainty: one more might be wrong.
    assert _spread(np.ones(20, bool), takes) == pytest.approx(0.5 / 4 / 2)


def test_a_quality_says_what_more_takes_brought() -> None:
    curve = (Score(1, 0.4, 0.9), Score(3, 0.6, 0.5))
    quality = Quality({0: 4, 1: 4}, 40, "", curve, 0.5, 0.5, 0, 0.02)
    assert "by takes of each count: 1: 40 %, 3: 60 %" in quality.sentence()

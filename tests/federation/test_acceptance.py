"""What the server believes: forms, norms and counts, beside those of others and of before."""

import numpy as np
import pytest

from fedapa.algorithms.algorithm import Form
from fedapa.algorithms.fedavg import weights_form
from fedapa.algorithms.prototype_sets import set_forms
from fedapa.errors import PayloadError
from fedapa.federation.acceptance import Sizes, implausible, sizes_of, summary_of, take
from fedapa.payload import Tree, encode
from fedapa.rooms.card import RoomCard
from tests.conftest import MakeRooms

SET = ("prototypes", "present×8")


def sizes(norm: float, windows: float = 40.0) -> Sizes:
    return Sizes({SET: norm}, {"windows": windows})


def test_a_norm_is_that_of_the_largest_row() -> None:
    """Rows (3, 4) and (0, 1) have the norms 5 and 1; a vector is one row: √(1 + 4 + 4) = 3."""
    upload: Tree = {
        "prototypes": np.array([[3, 4], [0, 1]], np.float32),
        "weights": {"bias": np.array([1, 2, 2], np.float32), "none": np.zeros((0, 2), np.float32)},
        "present": np.array([True, True]),
        "temperature": 2.5,
        "accuracy": 0.5,
        "windows": 40,
    }
    forms = {
        "prototypes": Form(("present", 2)),
        "weights/bias": Form((3,)),
        "weights/none": Form((0, 2)),
        "present": Form((2,), ("bool",)),
        "temperature": Form(),
        "accuracy": Form(least=0, most=1),
        "windows": Form(least=40, most=40, counted=True),
    }
    measured = sizes_of(upload, forms)
    assert measured.norms == {
        ("prototypes", "present×2"): 5.0,
        ("weights/bias", "3"): 3.0,
        ("weights/none", "0×2"): 0.0,
        ("temperature", ""): 2.5,
    }
    assert measured.counts == {"windows": 40.0}
    assert summary_of(measured) == {"prototypes": 5.0, "weights": 3.0, "temperature": 2.5}


def test_what_float32_cannot_square_is_beyond_the_ceiling() -> None:
    upload = {"prototypes": np.full((1, 8), 1e30, np.float32)}
    measured = sizes_of(upload, {"prototypes": Form((1, 8))})
    assert "no honest one has 1e+08" in implausible({"alone": measured}, {})["alone"]


def test_a_whole_number_is_measured_as_any_other() -> None:
    """It may have any number of digits."""
    measured = sizes_of({"temperature": 10**30}, {"temperature": Form()})
    assert "no honest one" in implausible({"a": measured}, {})["a"]


def test_a_norm_is_compared_with_what_is_usual_in_the_round() -> None:
    """The lower median of 4, 5 and 600 is 5: 500 is believed, 600 is not."""
    assert implausible({"a": sizes(4), "b": sizes(5), "c": sizes(500)}, {}) == {}
    (reason,) = implausible({"a": sizes(4), "b": sizes(5), "c": sizes(600)}, {}).values()
    assert "prototypes has the norm 600, usual among the rooms is 5; more than 100 times" in reason
    assert list(implausible({"a": sizes(600), "b": sizes(4)}, {})) == ["a"]


def test_norms_below_a_hundred_are_never_too_large() -> None:
    """Biases begin at 0, and rooms that hardly trained are no measure for others."""
    assert implausible({"a": sizes(0), "b": sizes(1e-6), "c": sizes(99)}, {}) == {}


def test_arrays_of_other_shapes_are_not_compared() -> None:
    small = Sizes({("weights/head", "3×8"): 1.0}, {})
    large = Sizes({("weights/head", "3×99"): 150.0, ("weights/first", "9"): 2000.0}, {})
    assert "weights has the norm 2e+03" in implausible({"a": small, "b": large}, {})["b"]
    assert implausible({"a": Sizes({("weights/head", "3×8"): 30.0}, {}), "b": large}, {}) == {}


def test_a_room_that_is_alone_in_a_round_is_compared_with_earlier_ones() -> None:
    before = {"a": {"prototypes": 5.0}, "b": {"prototypes": 4.0}, "c": {"prototypes": 6.0}}
    reasons = implausible({"a": sizes(700)}, before)
    assert "usual among the rooms so far is 6" in reasons["a"]
    assert implausible({"a": sizes(90)}, before) == {}


def test_a_room_is_compared_with_its_own_last_upload() -> None:
    """From 2 to 350: more than a hundred times, and not what others send (40); 300 would be."""
    before = {room: {"prototypes": norm} for room, norm in {"a": 2.0, "b": 30.0, "c": 45.0}.items()}
    others = {"b": sizes(30), "c": sizes(30)}
    assert "its own last one had 2" in implausible({"a": sizes(350), **others}, before)["a"]
    assert implausible({"a": sizes(300), **others}, before) == {}
    assert implausible({"a": sizes(150)}, {"a": {"prototypes": 2.0}}) == {}
    assert "its own last one" in implausible({"a": sizes(250)}, {"a": {"prototypes": 2.0}})["a"]


def test_a_number_of_windows_that_would_outweigh_all_is_not_believed() -> None:
    others = {"a": sizes(1, windows=30), "b": sizes(1, windows=50)}
    assert implausible({**others, "c": sizes(1, windows=400_000)}, {}) == {}
    reason = implausible({**others, "c": sizes(1, windows=600_000)}, {})["c"]
    assert "windows is 600000, usual among the rooms is 50" in reason


@pytest.fixture
def card(make_rooms: MakeRooms) -> RoomCard:
    return make_rooms([(0, 1, 2)], windows_per_class=8)[0].card


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ([1, 1, 0], "not above 0 exactly where present"),
        ([1, 0, 0], "not above 0 exactly where present"),
        ([9, 0, 8], "has the sum 17; expected 16 at most"),
        ([-1, 0, 1], "from -1 to 1; expected 0"),
    ],
)
def test_counts_belong_to_the_prototypes_and_to_the_card(
    card: RoomCard, counts: list[int], complaint: str
) -> None:
    """Classes 0 and 2 are there, the card has so many train windows."""
    held = np.array([True, False, True])
    assert card.windows == 16
    upload = {
        "prototypes": np.ones((2, card.width), np.float32),
        "present": held,
        "counts": np.array(counts),
    }
    forms = set_forms(card, with_counts=True)
    with pytest.raises(PayloadError, match=complaint):
        take(encode(upload), card, forms)
    assert take(encode({**upload, "counts": np.array([8, 0, 8])}), card, forms)


def test_a_mask_of_integers_is_none(card: RoomCard) -> None:
    counts = np.array([8, 0, 8])
    upload = {"prototypes": np.ones((2, card.width), np.float32), "counts": counts}
    with pytest.raises(PayloadError, match="present is no mask"):
        take(encode({**upload, "present": counts}), card, set_forms(card, with_counts=True))


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("norm.running_var", np.array([1, -1e-3], np.float32), "expected 0 to any"),
        ("norm.running_mean", np.array([1, 2]), "is int64; expected float32"),
        ("norm.num_batches_tracked", np.array([1.5, 2], np.float32), "float32; expected int64"),
        ("norm.num_batches_tracked", np.array([1, 2**62]), "expected 0 to 9007199254740992"),
    ],
)
def test_statistics_that_would_spoil_a_merged_net_are_rejected(
    card: RoomCard, name: str, value: np.ndarray, complaint: str
) -> None:
    """A variance below 0 answers NaN; one array of integers would round the mean of all rooms."""
    with pytest.raises(PayloadError, match=complaint):
        take(encode({name: value}), card, {name: weights_form(name, (2,))})


def test_an_upload_of_many_values_is_rejected_before_it_is_unpacked(card: RoomCard) -> None:
    upload = {str(number): number for number in range(100)}
    with pytest.raises(PayloadError, match="100 values; expected 64 at most"):
        take(encode(upload), card, {})


def test_a_number_longer_than_a_float_is_rejected(card: RoomCard) -> None:
    with pytest.raises(PayloadError, match="temperature holds NaN or infinity"):
        take(encode({"temperature": 10**400}), card, {"temperature": Form(least=0)})

"""What is merged in place of uploads that lie."""

import numpy as np
import pytest

from fedapa.algorithms.algorithm import Payload, Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedavg import FedAvg
from fedapa.errors import PlanError
from fedapa.federation.defence import NAMED, Defence, defend
from fedapa.federation.plan import Plan
from fedapa.payload import decode, encode
from fedapa.randomness import Key

ROUND = Round(1, 3, Key(0))
GUARD = Defence(**NAMED["guard"])


def of_weights(values: dict[str, list[float]]) -> dict[str, Payload]:
    return {
        room: {"weights": {"bias": np.array(own, np.float32)}, "windows": 10}
        for room, own in values.items()
    }


def of_prototypes(rows: dict[str, list[list[float]]]) -> dict[str, Payload]:
    return {
        room: {"prototypes": np.array(own, np.float32), "present": np.ones(len(own), bool)}
        for room, own in rows.items()
    }


def nets(uploads: dict[str, Payload]) -> dict[str, str]:
    return dict.fromkeys(uploads, "counter")


def test_without_a_defence_nothing_is_touched() -> None:
    uploads = of_weights({"a": [1.0], "b": [2.0], "c": [100.0]})
    made = defend(Defence(), uploads, nets(uploads), {})
    assert made.uploads is uploads
    assert not made.memory
    assert not made.suspects


def test_the_mean_of_what_the_median_leaves_is_the_median() -> None:
    """1, 2 and 100: FedAvg's mean is 34.3, that of what is merged 2."""
    uploads = of_weights({"a": [1.0], "b": [2.0], "c": [100.0]})
    made = defend(Defence(rule="median"), uploads, nets(uploads), {})
    state = {"slots": {room: {"bias": "bias"} for room in uploads}, "merged": {}}
    merged = FedAvg().merge(state, made.uploads, ROUND)["merged"]
    assert merged["bias"].tolist() == [2.0]  # type: ignore[index,call-overload,union-attr]
    assert uploads["c"]["weights"]["bias"].tolist() == [100.0]  # type: ignore[index,call-overload,union-attr]


def test_weights_are_clipped_as_one_vector() -> None:
    """(0, 0), (3, 4), (−3, −4), (60, 80), (0, 0): the middle is (0, 0), distances 0, 5, 5, 100, 0
    with median 5. With clip = 2 at most 10 is left: (6, 8), a tenth of its way."""
    values = {"a": [0.0, 0.0], "b": [3.0, 4.0], "c": [-3.0, -4.0], "d": [60.0, 80.0]}
    uploads = of_weights({**values, "e": [0.0, 0.0]})
    made = defend(Defence(clip=2.0), uploads, nets(uploads), {})
    assert made.uploads["d"]["weights"]["bias"] == pytest.approx([6.0, 8.0])  # type: ignore[index,call-overload]
    assert made.uploads["b"]["weights"]["bias"].tolist() == [3.0, 4.0]  # type: ignore[index,call-overload,union-attr]
    assert made.trust["d"] == pytest.approx(0.1)
    assert list(made.suspects) == ["d"]
    assert "clipped to 10 %" in made.suspects["d"]


def test_exchanged_prototypes_are_named_and_replaced_by_the_middle() -> None:
    """Four rooms have class 0 at (5, 1) and class 1 at (5, −1); one has them the other way round.
    Their cosines by themselves are 0.92, since all have 5 in common; without the mean of the two
    they are 1 and −1."""
    honest = [[5.0, 1.0], [5.0, -1.0]]
    uploads = of_prototypes({**dict.fromkeys("abcd", honest), "liar": honest[::-1]})
    made = defend(Defence(cosine=3.0), uploads, nets(uploads), {})
    assert made.uploads["liar"]["prototypes"].tolist() == honest  # type: ignore[union-attr]
    assert "prototypes are elsewhere, 40.0 usual spreads off" in made.suspects["liar"]
    assert "cosine -1.00" in made.suspects["liar"]
    assert list(made.suspects) == ["liar"]
    assert made.trust == {**dict.fromkeys("abcd", 1.0), "liar": 0.0}


def test_what_is_scaled_points_where_the_others_point_and_is_replaced_all_the_same() -> None:
    """In the first round nobody knows where weights began: ten times as large is cosine 1."""
    honest = {"a": [1.0, 1.0], "b": [1.1, 0.9], "c": [0.9, 1.1], "d": [1.05, 1.0], "e": [1.0, 0.9]}
    uploads = of_weights({**honest, "liar": [10.0, 10.0]})
    made = defend(GUARD, uploads, nets(uploads), {})
    assert list(made.suspects) == ["liar"]
    assert "times the usual distance" in made.suspects["liar"]
    assert made.uploads["liar"]["weights"]["bias"] == pytest.approx([1.01, 0.98])  # type: ignore[index,call-overload]
    sets = of_prototypes(
        {room: [[5 * x, y], [5 * x, -y]] for room, (x, y) in {**honest, "liar": (9.0, 9.0)}.items()}
    )
    assert list(defend(GUARD, sets, nets(sets), {}).suspects) == ["liar"]


def test_a_reputation_is_lost_fast_and_comes_back_slowly() -> None:
    """β = 0.5: lies in two rounds give 0.5 and 0.25. Honest again: a sixth of 0.5 of what it
    lacks comes back, 0.25 + 0.75/12 = 0.3125, and it stays replaced. From 0.52 it is 0.56, and
    it is heard like anybody else."""
    honest = [[5.0, 1.0], [5.0, -1.0]]
    lies = of_prototypes({**dict.fromkeys("abcd", honest), "liar": honest[::-1]})
    true = of_prototypes({**dict.fromkeys("abcd", honest), "liar": [[5.0, 2.0], [5.0, -2.0]]})
    how = Defence(cosine=3.0, reputation=0.5)
    memory = defend(how, lies, nets(lies), {}).memory
    memory = defend(how, lies, nets(lies), memory).memory
    assert memory["reputation"]["liar"] == 0.25  # type: ignore[index,call-overload]
    kept = defend(how, true, nets(true), memory)
    assert kept.trust["liar"] == 0.0
    assert "its reputation is 0.31" in kept.suspects["liar"]
    again = defend(how, true, nets(true), {"reputation": {"liar": 0.52}, "ended": {}})
    assert again.memory["reputation"]["liar"] == pytest.approx(0.56)  # type: ignore[index,call-overload]
    assert again.trust["liar"] == 1.0
    assert again.uploads["liar"]["prototypes"][0].tolist() == [5.0, 2.0]  # type: ignore[index,union-attr]


def test_direction_and_distance_speak_together() -> None:
    """In the second round, from (0, 0) on, six rooms have gone around (1, 0). A seventh that went
    further in this direction, or as far as the others and somewhat elsewhere, is believed; one that
    went further and elsewhere is not."""
    others = {"a": (1.0, -1.0), "b": (1.0, -0.6), "c": (1.2, -0.2)}
    others |= {"d": (0.8, 0.2), "e": (1.0, 0.6), "f": (1.0, 1.0)}
    began = of_weights({room: [0.0, 0.0] for room in [*others, "g"]})
    memory = defend(GUARD, began, nets(began), {}).memory
    for own, named in (((3.0, 0.0), []), ((0.4, -1.2), []), ((0.0, -2.0), ["g"])):
        uploads = of_weights({room: list(ends) for room, ends in {**others, "g": own}.items()})
        made = defend(GUARD, uploads, nets(uploads), memory)
        assert list(made.suspects) == named, own


def test_a_distance_says_nothing_where_nobody_knows_the_way() -> None:
    """In the first round nobody knows where the others began, and the rows of all classifiers are
    alike: who has the most windows has gone three times as far, and is believed all the same. Later
    its steps point where the others' point, and it is believed, too; not so eight times as far."""
    how = Defence(cosine=4.0)
    bias = [0.9, 1.1, 1.0, 1.0]

    def sent(gone: dict[str, float]) -> dict[str, Payload]:
        rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], np.float32)
        return {
            room: {
                "weights": {
                    "encoder.bias": far * np.array(bias, np.float32),
                    "classifier.weight": (1 + 0.1 * far) * rows,
                },
                "windows": 10,
            }
            for room, far in gone.items()
        }

    near = {"a": 0.5, "b": 0.8, "c": 1.0, "d": 1.2, "e": 1.4}
    first = defend(how, uploads := sent({**near, "many": 2.5}), nets(uploads), {})
    assert not first.suspects
    ended = (sum(near.values()) + 2.5) / 6
    went = {room: ended + far for room, far in {**near, "many": 2.5}.items()}
    second = defend(how, uploads := sent(went), nets(uploads), first.memory)
    assert not second.suspects
    third = defend(how, uploads := sent({**near, "many": 12.0}), nets(uploads), {})
    assert list(third.suspects) == ["many"]
    assert "times the usual distance, believed up to 8" in third.suspects["many"]


def test_who_is_not_trusted_has_no_say_where_nobody_compares() -> None:
    """Class 2 is held by a and the liar, class 3 by the liar alone. The liar exchanges classes 0
    and 1; its class 2 becomes a's, its class 3 is taken out."""
    honest = [[5.0, 1.0], [5.0, -1.0]]
    uploads = of_prototypes({**dict.fromkeys("abcd", honest), "liar": honest[::-1]})
    for room, own in uploads.items():
        rows = list(own["prototypes"].tolist())  # type: ignore[union-attr]
        held = {"a": [1, 1, 1, 0], "liar": [1, 1, 1, 1]}.get(room, [1, 1, 0, 0])
        rows += [[-90.0, 2.0], [7.0, 7.0]] if room == "liar" else [[3.0, 4.0]] * (sum(held) - 2)
        uploads[room] = {
            "prototypes": np.array(rows, np.float32),
            "present": np.array(held, bool),
            "counts": 9 * np.array(held),
        }
    made = defend(GUARD, uploads, nets(uploads), {})
    assert list(made.suspects) == ["liar"]
    lie = made.uploads["liar"]
    assert lie["prototypes"].tolist() == [*honest, [3.0, 4.0]]  # type: ignore[union-attr]
    assert lie["present"].tolist() == [True, True, True, False]  # type: ignore[union-attr]
    assert lie["counts"].tolist() == [9, 9, 9, 0]  # type: ignore[union-attr]
    assert made.uploads["a"]["prototypes"].tolist() == [*honest, [3.0, 4.0]]  # type: ignore[union-attr]


def test_weights_that_two_rooms_have_are_the_others_where_one_is_not_trusted() -> None:
    """The liar is known by its prototypes; its net is that of a alone."""
    honest = [[5.0, 1.0], [5.0, -1.0]]
    uploads = of_prototypes({**dict.fromkeys("abcd", honest), "liar": honest[::-1]})
    for number, (room, own) in enumerate(uploads.items()):
        uploads[room] = {**own, "weights": {"bias": np.array([number], np.float32)}}
    known = {"a": "rare", "liar": "rare", **dict.fromkeys("bcd", "counter")}
    made = defend(GUARD, uploads, known, {})
    assert list(made.suspects) == ["liar"]
    assert made.alone == {"weights": ["a"]}, "the liar's do not count as they came"
    assert made.uploads["liar"]["weights"]["bias"].tolist() == [0.0]  # type: ignore[index,call-overload,union-attr]
    assert made.uploads["a"]["weights"]["bias"].tolist() == [0.0]  # type: ignore[index,call-overload,union-attr]


def test_a_single_class_that_three_share_is_asked_for_its_direction() -> None:
    """There is no middle of other classes to take away: the cosines are 1, 1, 1 and −1. Turned
    round it is three times as far off as the farthest of the others, which by itself is nothing."""
    rows = {"a": [[3.0, 1.0]], "b": [[2.0, 2.0]], "c": [[1.0, 3.0]], "turned": [[-2.0, -2.0]]}
    made = defend(GUARD, uploads := of_prototypes(rows), nets(uploads), {})
    assert list(made.suspects) == ["turned"]
    assert "cosine -1.00 with the middle" in made.suspects["turned"]


def test_steps_are_not_counted_from_where_a_mean_was_before_it_was_lost_sight_of() -> None:
    """Two rooms alone take part in the second round: what they end with is not seen."""
    uploads = of_weights({"a": [1.0, 1.0], "b": [1.2, 1.0], "c": [1.0, 1.2]})
    first = defend(GUARD, uploads, nets(uploads), {})
    assert len(first.memory["ended"]) == 1  # type: ignore[arg-type]
    two = {room: uploads[room] for room in "ab"}
    assert not defend(GUARD, two, nets(two), first.memory).memory["ended"]
    other = dict.fromkeys("abc", "other")
    assert len(defend(GUARD, uploads, other, first.memory).memory["ended"]) == 2  # type: ignore[arg-type]
    both = {"bias": np.ones(2, np.float32), "more": np.ones(2, np.float32)}
    apart = {
        **{room: {"weights": both} for room in "abc"},
        "d": {"weights": {"bias": both["bias"]}},
    }
    first = defend(GUARD, apart, nets(apart), {})
    assert len(first.memory["ended"]) == 2  # type: ignore[arg-type]
    two = {room: apart[room] for room in "ab"}
    assert not defend(GUARD, two, nets(two), first.memory).memory["ended"]


def test_rooms_of_which_nothing_is_compared_are_told_once() -> None:
    uploads = of_weights({"a": [1.0], "b": [2.0], "c": [3.0], "d": [4.0]})
    known = {"a": "rare", **dict.fromkeys("bcd", "counter")}
    first = defend(GUARD, uploads, known, {})
    assert first.alone == {"weights": ["a"]}
    assert sorted(first.trust) == ["b", "c", "d"]
    assert decode(encode(first.memory), "memory") == first.memory
    again = defend(GUARD, uploads, known, first.memory)
    assert not again.alone["weights"]
    assert again.memory["alone"] == {"weights": {"a": True}}


def test_rooms_that_say_the_same_are_not_blamed_for_being_cut_off() -> None:
    """Somebody has to be: by their names the first and the last would be."""
    uploads = of_weights({f"r{number}": [1.0, 0.0, 2.0] for number in range(10)})
    for how in (Defence(rule="trimmed"), Defence(**NAMED["guard-trimmed"])):
        assert not defend(how, uploads, nets(uploads), {}).suspects


def test_whole_numbers_are_kept_near_the_median_like_any_other() -> None:
    """Temperatures 0.05 and windows 10, five times either way; half of the rooms have none."""
    temperatures = dict[str, float](a=0.05, b=0.05, c=0.05, d=10**6)
    uploads = of_weights({room: [1.0] for room in temperatures})
    for room, own in uploads.items():
        uploads[room] = {**own, "temperature": temperatures[room]}
    made = defend(Defence(clip=5.0), uploads, nets(uploads), {})
    assert made.uploads["d"]["temperature"] == pytest.approx(0.25)
    windows = {"a": 0, "b": 0, "c": 0, "d": 10, "e": 10, "f": 10**6}
    uploads = of_weights({room: [float(own > 0)] for room, own in windows.items()})
    for room, own in uploads.items():
        uploads[room] = {**own, "windows": windows[room]}
    made = defend(Defence(clip=5.0), uploads, nets(uploads), {})
    assert [own["windows"] for own in made.uploads.values()] == [0, 0, 0, 10, 10, 50]
    nothing = {room: {**own, "windows": 0} for room, own in uploads.items()}
    assert defend(GUARD, nothing, nets(nothing), {}).uploads.keys() == nothing.keys()


def test_rows_of_the_classifier_under_other_labels_are_named() -> None:
    """Rows (1, 0), (0, 1) of all but one, who has them the other way round: without the mean row
    (½, ½) their cosines with the middle are 1 and −1. Its encoder is like everybody's."""
    rows = np.eye(2, dtype=np.float32)
    uploads: dict[str, Payload] = {
        room: {
            "weights": {"body": np.ones(3, np.float32), "classifier.weight": own},
            "windows": 10,
        }
        for room, own in {**dict.fromkeys("abcd", rows), "liar": rows[::-1]}.items()
    }
    made = defend(Defence(cosine=2.0), uploads, nets(uploads), {})
    assert list(made.suspects) == ["liar"]
    assert "rows of the classifier are elsewhere, 40.0 usual spreads off" in made.suspects["liar"]
    merged = made.uploads["liar"]["weights"]["classifier.weight"]  # type: ignore[index,call-overload]
    assert merged.tolist() == rows.tolist()  # type: ignore[union-attr]


def test_who_is_known_to_lie_has_no_part_in_the_middle() -> None:
    """0, 2, 4 and a known liar's 100: the middle of the believed is 2, their usual distance 2, so
    they stay as they came. With the liar in it the middle would be 3, and 0 would be clipped."""
    uploads = of_weights({"a": [0.0], "b": [2.0], "c": [4.0], "liar": [100.0]})
    how = Defence(cosine=100.0, reputation=0.5, clip=1.0)
    made = defend(how, uploads, nets(uploads), {"reputation": {"liar": 0.1}, "ended": {}})
    merged = {room: own["weights"]["bias"].tolist() for room, own in made.uploads.items()}  # type: ignore[index,call-overload,union-attr]
    assert merged == {"a": [0.0], "b": [2.0], "c": [4.0], "liar": [2.0]}
    assert made.trust == {"a": 1.0, "b": 1.0, "c": 1.0, "liar": 0.0}


def test_who_is_found_at_first_sight_has_no_part_in_the_middle_either() -> None:
    """The same without a reputation: 100 is 48 usual distances off at first sight, too."""
    uploads = of_weights({"a": [0.0], "b": [2.0], "c": [4.0], "liar": [100.0]})
    made = defend(Defence(cosine=100.0, clip=1.0), uploads, nets(uploads), {})
    assert made.uploads["a"]["weights"]["bias"].tolist() == [0.0]  # type: ignore[index,call-overload,union-attr]
    assert made.uploads["liar"]["weights"]["bias"].tolist() == [2.0]  # type: ignore[index,call-overload,union-attr]


def test_steps_are_counted_from_the_mean_that_was_merged() -> None:
    """1 of ten windows, 5 of thirty and 1 of ten: FedAvg's mean is 170/50 = 3.4, and there the next
    round begins. The plain mean is 2.33."""
    uploads = of_weights({"a": [1.0], "b": [5.0], "c": [1.0]})
    uploads["b"] = {**uploads["b"], "windows": 30}
    made = defend(Defence(cosine=100.0), uploads, nets(uploads), {})
    (ended,) = made.memory["ended"].values()  # type: ignore[union-attr]
    state = {"slots": {room: {"bias": "bias"} for room in uploads}, "merged": {}}
    merged = FedAvg().merge(state, made.uploads, ROUND)["merged"]
    assert ended["bias"] == pytest.approx([3.4])  # type: ignore[index,call-overload]
    assert merged["bias"] == pytest.approx([3.4])  # type: ignore[index,call-overload]


def test_who_tells_a_single_class_is_judged_by_it() -> None:
    """Class 0 at (5, 1), class 1 at (5, −1), both (5, 0) on average. Who tells class 0 alone, at
    (5, −1), points the other way from there: cosine −1."""
    honest = [[5.0, 1.0], [5.0, -1.0]]
    uploads = of_prototypes(dict.fromkeys("abcd", honest))
    one = {"prototypes": np.array([[5.0, -1.0]], np.float32), "present": np.array([True, False])}
    uploads["liar"] = one
    made = defend(Defence(cosine=2.0), uploads, nets(uploads), {})
    assert list(made.suspects) == ["liar"]
    assert "cosine -1.00" in made.suspects["liar"]
    assert made.uploads["liar"]["prototypes"].tolist() == [[5.0, 1.0]]  # type: ignore[union-attr]


def test_rooms_of_other_nets_and_pairs_are_left_alone() -> None:
    uploads = of_weights({"a": [1.0], "b": [2.0], "c": [100.0]})
    made = defend(GUARD, uploads, {"a": "one", "b": "one", "c": "other"}, {})
    assert {room: own["weights"] for room, own in made.uploads.items()} == {
        room: own["weights"] for room, own in uploads.items()
    }
    assert not made.suspects


def test_nets_of_one_name_and_other_shapes_are_not_compared() -> None:
    small = of_weights({"a": [1.0], "b": [2.0], "c": [9.0]})
    uploads = {**small, **of_weights({"d": [5.0, 5.0]})}
    made = defend(Defence(rule="median"), uploads, nets(uploads), {})
    assert made.uploads["c"]["weights"]["bias"].tolist() == [2.0]  # type: ignore[index,call-overload,union-attr]
    assert made.uploads["d"]["weights"]["bias"].tolist() == [5.0, 5.0]  # type: ignore[index,call-overload,union-attr]


def test_liars_do_not_escape_by_an_array_more_than_others_have() -> None:
    """Three of eight have an array that nobody else has: the others are averaged with the rest."""
    uploads = of_weights(
        {**{room: [1.0, 1.0] for room in "abcde"}, **{room: [-9.0, 3.0] for room in "xyz"}}
    )
    for room in "xyz":
        uploads[room]["weights"]["more"] = np.zeros(2, np.float32)  # type: ignore[index,call-overload]
    made = defend(GUARD, uploads, nets(uploads), {})
    assert sorted(made.suspects) == ["x", "y", "z"]
    for room in "xyz":
        assert made.uploads[room]["weights"]["bias"].tolist() == [1.0, 1.0]  # type: ignore[index,call-overload,union-attr]
        assert made.uploads[room]["weights"]["more"].tolist() == [0.0, 0.0]  # type: ignore[index,call-overload,union-attr]


@pytest.mark.parametrize("liars", ["x", "xyz"])
def test_liars_do_not_escape_by_a_net_of_their_own(liars: str) -> None:
    """Prototypes are mixed whatever the nets, so they are compared whatever the nets."""
    honest = [[5.0, 1.0], [5.0, -1.0]]
    uploads = of_prototypes(
        {**dict.fromkeys("abcde", honest), **dict.fromkeys(liars, honest[::-1])}
    )
    named = {**nets(uploads), **dict.fromkeys(liars, "a net of his own")}
    made = defend(GUARD, uploads, named, {})
    assert sorted(made.suspects) == sorted(liars)
    for room in liars:
        assert made.uploads[room]["prototypes"].tolist() == honest  # type: ignore[union-attr]


def test_a_room_without_a_set_does_not_switch_the_defence_of_sets_off() -> None:
    honest = [[5.0, 1.0], [5.0, -1.0]]
    uploads = of_prototypes({**dict.fromkeys("abcd", honest), "liar": honest[::-1]})
    uploads["silent"] = {"windows": 10}
    made = defend(GUARD, uploads, nets(uploads), {})
    assert list(made.suspects) == ["liar"]
    assert made.uploads["silent"] == {"windows": 10}


def test_a_room_counts_no_more_than_five_times_as_much_as_usual() -> None:
    """Near enough to be trusted, and ten thousand times the windows: it would be the mean."""
    uploads = of_weights({"a": [1.0], "b": [1.1], "c": [1.2], "d": [1.3]})
    uploads["d"] = {**uploads["d"], "windows": 100_000}
    made = defend(GUARD, uploads, nets(uploads), {})
    assert [made.uploads[room]["windows"] for room in "abcd"] == [10, 10, 10, 50]
    sets = of_prototypes({room: [[5.0, 1.0], [5.0, -1.0]] for room in "abcd"})
    for room, own in {"a": [4, 0], "b": [4, 9], "c": [4, 9], "d": [900, 900]}.items():
        sets[room]["counts"] = np.array(own)  # type: ignore[index]
    made = defend(GUARD, sets, nets(sets), {})
    assert made.uploads["a"]["counts"].tolist() == [4, 0]  # type: ignore[union-attr]
    assert made.uploads["d"]["counts"].tolist() == [20, 45]  # type: ignore[union-attr]


def test_a_temperature_is_near_that_of_the_others() -> None:
    uploads = of_weights({room: [1.0] for room in "abcd"})
    for room, own in {"a": 1.0, "b": 1.0, "c": 1e300, "d": 1e-300}.items():
        uploads[room] = {**uploads[room], "temperature": own}
    made = defend(GUARD, uploads, nets(uploads), {})
    assert [made.uploads[room]["temperature"] for room in "abcd"] == [1.0, 1.0, 5.0, 0.2]


def test_the_order_of_rooms_does_not_matter_and_memory_survives_the_codec() -> None:
    stream = np.random.default_rng(0)
    rows = {room: stream.normal(size=(3, 4)).tolist() for room in "abcde"}
    uploads = {
        room: {**own, "weights": {"bias": stream.normal(size=4).astype(np.float32)}, "windows": 9}
        for room, own in of_prototypes(rows).items()
    }
    one = defend(GUARD, uploads, nets(uploads), {})
    other = defend(GUARD, dict(reversed(uploads.items())), nets(uploads), {})
    assert encode(one.memory) == encode(other.memory)
    for room in uploads:
        assert encode(one.uploads[room]) == encode(other.uploads[room])
        assert set(one.uploads[room]) == set(uploads[room])
    assert encode(decode(encode(one.memory))) == encode(one.memory)


def test_a_mixture_of_fedapa_follows_the_defended_sets() -> None:
    """τ = ∞ is the mean over holders: 1, 2 and 9 give 4, behind the median 2."""
    uploads = of_prototypes({"a": [[1.0]], "b": [[2.0]], "c": [[9.0]]})
    made = defend(Defence(rule="median"), uploads, nets(uploads), {})
    algorithm = FedAPA(aggregation_temperature=float("inf"))
    state = {
        "rooms": {"a": 0, "b": 1, "c": 2},
        "prototypes": np.zeros((3, 1, 1), np.float32),
        "counts": np.zeros((3, 1), np.int64),
        "present": np.zeros((3, 1), bool),
        "age": np.full(3, -1),
    }
    mixture = algorithm.merge(state, made.uploads, ROUND)["mixture"]
    assert mixture[:, 0, 0].tolist() == [2.0, 2.0, 2.0]  # type: ignore[index,call-overload,union-attr]


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_plan_takes_a_defence_by_its_name_and_spells_it_out(name: str) -> None:
    plan = Plan.of({"defence": name})
    assert plan.defence == Defence(**NAMED[name])
    assert Plan.of(plan.document()) == plan


def test_plans_without_a_defence_are_what_they_were() -> None:
    assert not {"defence", "attack"} & set(Plan().document())
    with pytest.raises(PlanError, match="defence: 'gard' is unknown; did you mean 'guard'"):
        Plan.of({"defence": "gard"})
    with pytest.raises(PlanError, match="clipp"):
        Plan.of({"defence": {"clipp": 2.0}})


def test_a_setting_changes_the_named_defence_before_it() -> None:
    plan = Plan.of({"defence": "guard"}, {"defence": {"clip": 3.0}})
    assert plan.defence == Defence(cosine=4.0, reputation=0.7, clip=3.0)
    assert Plan.of({"defence": {"clip": 3.0}}, {"defence": "guard"}).defence == GUARD


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"reputation": 0.7}, "nobody can lose any where defence.cosine is 0"),
        ({"trim": 0.1}, "nothing is trimmed where defence.rule is 'mean'"),
        (1, 'defence: is a section: set its keys, for example defence = "guard"'),
    ],
)
def test_settings_that_do_nothing_are_refused(given: object, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Plan.of({"defence": given})

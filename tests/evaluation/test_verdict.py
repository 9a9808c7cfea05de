"""The answer in one sentence: who counts best, against the simple models and guessing."""

from fedapa.evaluation.results import Row, Setting
from fedapa.evaluation.verdict import in_short
from tests.report.made import outcome


def setting(levels: dict[str, list[float]]) -> Setting:
    groups = {"constant": "blind", "forest": "control"}
    titles = {"forest": "Random forest", "fedapa": "FedAPA", "local": "Local"}
    rows = [
        Row(
            name,
            titles.get(name, name),
            groups.get(name, "paper"),
            [outcome(seed, {10: level}) for seed, level in enumerate(accuracies)],
        )
        for name, accuracies in levels.items()
    ]
    return Setting("s", "S", 10, [10], rows, {"classes": [0, 1, 2], "rooms": {}})


def test_one_seed_says_that_it_may_be_chance() -> None:
    told = in_short(
        setting({"local": [0.5], "fedapa": [0.52], "forest": [0.44], "constant": [0.16]}), 10
    )
    assert told == (
        "FedAPA is right in 52.0 % of the test windows and within one person in 76.0 %: 8.0 points "
        "above Random forest, 2.0 points above Local, guessing reaches 16.0 %; one seed, so a few "
        "points may be chance."
    )


def test_several_seeds_say_what_is_clear() -> None:
    """8 points in each of three seeds are clear; −1, 0 and +4 are not."""
    told = in_short(
        setting(
            {"fedapa": [0.5, 0.52, 0.54], "local": [0.51, 0.52, 0.5], "forest": [0.42, 0.44, 0.461]}
        ),
        10,
    )
    assert told is not None
    assert "8.0 points above Random forest, clearly" in told
    assert "1.0 points above Local, not clearly" in told
    assert "chance" not in told


def test_a_forest_that_is_better_is_told_as_such() -> None:
    told = in_short(setting({"local": [0.37], "forest": [0.44]}), 10)
    assert told is not None
    assert "7.0 points below Random forest" in told


def test_without_methods_there_is_nothing_to_say() -> None:
    assert in_short(setting({"constant": [0.2]}), 10) is None

"""The answer in one sentence: who counts best, against the simple models and guessing."""

from dataclasses import replace

from fedapa.evaluation.results import Results, Row, Setting
from fedapa.evaluation.verdict import answers, in_short
from fedapa.report.tables.comparison import by_value
from tests.report.made import data as made_data
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


def test_of_many_methods_the_next_best_the_reference_and_the_controls_are_named() -> None:
    levels = {name: [0.3 + place / 100] for place, name in enumerate("abcdef")}
    told = in_short(setting({**levels, "fedapa": [0.2], "forest": [0.1]}), 10)
    assert told == (
        "Of 7 methods f is right in 35.0 % of the test windows and within one person in 67.5 %: "
        "25.0 points above Random forest, 1.0 points above e, 15.0 points above FedAPA; one seed, "
        "so a few points may be chance."
    )


def test_lines_of_a_sweep_are_compared_at_its_largest_value() -> None:
    made = setting({"local-1": [0.3], "local-2": [0.4], "fedapa-1": [0.5], "fedapa-2": [0.35]})
    lines = [
        replace(row, group=row.name[:-2].title(), value=int(row.name[-1])) for row in made.rows
    ]
    swept = Results("x", "X", "", [replace(made, rows=lines)], [0], {}, parameter="recordings")
    (told,) = answers(swept)
    assert told.startswith("At 2 recordings: Local is right in 40.0 % of the test windows")
    assert "5.0 points above Fedapa" in told


def test_an_answer_that_is_not_served_is_never_the_best() -> None:
    told = in_short(setting({"fedapa": [0.5], "fedapa.nearest": [0.9], "local": [0.4]}), 10)
    assert told is not None
    assert told.startswith("FedAPA is right in 50.0 %")
    assert "90.0" not in told
    made = setting({"fedapa-2": [0.5], "fedapa-2.nearest": [0.9], "local-2": [0.4]})
    lines = [replace(row, group=row.name.partition("-")[0], value=2) for row in made.rows]
    (told,) = answers(Results("x", "X", "", [replace(made, rows=lines)], [0], {}, parameter="y"))
    assert told.startswith("At 2 y: fedapa is right in 50.0 %")


def test_one_line_of_a_sweep_compares_no_methods() -> None:
    made = setting({"a": [0.3], "b": [0.4]})
    rows = [replace(row, group="sweep", value=place) for place, row in enumerate(made.rows)]
    assert in_short(replace(made, rows=rows), 10) is None


def test_several_settings_are_told_apart() -> None:
    made = setting({"local": [0.5]})
    both = Results("x", "X", "", [made, replace(made, title="T")], [0], {})
    assert [said[:2] for said in answers(both)] == ["S:", "T:"]


def test_equal_rows_are_no_points_apart() -> None:
    told = in_short(setting({"local": [0.5], "fedapa": [0.5]}), 10)
    assert told is not None
    assert "as often as FedAPA" in told


def test_days_that_nothing_was_chosen_on_are_summed() -> None:
    """Day 3 chose; days 5 and 6 count: (50 + 60)/2 = 55 % against (40 + 44)/2 = 42 %."""
    by_day = {
        "Nothing": {3: 0.9, 5: 0.4, 6: 0.44},
        "Chosen": {5: 0.5, 6: 0.6},
    }
    rows = [
        Row(f"{line}-{day}", line, line, [outcome(0, {10: level})], value=day)
        for line, levels in by_day.items()
        for day, level in levels.items()
    ]
    data = {"classes": [0, 1, 2], "rooms": {}}
    followed = Setting("s", "S", 10, [10], rows, data, reference="Chosen", final=[5, 6])
    assert in_short(followed, 10, "day") == (
        "Chosen: right in 55.0 % of the windows of day 5, 6: 13.0 points above Nothing."
    )
    table = by_value(replace(followed, data=made_data()), "day")
    assert table.headings[1:5] == ["day 3", "day 5", "day 6", "day 5, 6"]
    assert [row[:5] for row in table.rows] == [
        ["Nothing", "90.0", "40.0", "44.0", "42.0"],
        ["Chosen", "–", "50.0", "60.0", "55.0"],
    ]
    assert in_short(replace(followed, reference="nobody"), 10, "day") is None

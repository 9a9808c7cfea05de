"""Tables of results: figures derived by hand, honest notes, and signs that survive."""

import re
from dataclasses import replace

import pytest

from fedapa.evaluation.results import Outcome, Row, Setting, target_accuracies
from fedapa.evaluation.verdict import in_short
from fedapa.report.captions import caption
from fedapa.report.tables import comparison
from fedapa.report.tables.table import Table, html_table, latex, markdown, rich_table
from tests.report import made


def by_title(table: Table) -> dict[str, list[str]]:
    assert all(len(row) == len(table.headings) for row in table.rows)
    assert sum(width for _, width in table.spans) in (0, len(table.headings))
    return {row[0]: list(row[1:]) for row in table.rows}


def test_overall_is_mean_and_deviation_over_seeds() -> None:
    """Local at 20: seeds 0.58, 0.60, 0.62, so mean 60, s = 2 (n − 1); F1 five points below.

    FedAvg moves 80 kB a round with two rooms: 40 KB per round and room.
    """
    table = comparison.overall(made.setting(), 20)
    rows = by_title(table)
    maes = ["0.30 ± 0.02", "0.40 ± 0.02"]  # of the median, and of the most probable class
    assert rows["Local"] == ["60.0 ± 2.0", "55.0 ± 2.0", *maes, "80.0 ± 1.0", "0.0"]
    assert rows["FedAvg_100 % & <co>"][-1] == "40.0"
    assert rows["Pooled"][-1] == "–"
    assert table.headings[1:4] == ["Accuracy (%)", "Macro F1 (%)", "MAE (people)"]
    assert table.headings[4] == "MAE, most probable"


def test_both_errors_stand_in_every_table_that_has_one() -> None:
    results = made.results()
    tables = [
        comparison.overall(made.setting(), 20),
        comparison.in_paper_layout(results),
        comparison.rooms(made.setting(), ["local"]),
    ]
    for table in tables:
        assert table is not None
        first = next(at for at, heading in enumerate(table.headings) if "MAE" in heading)
        assert table.headings[first] in ("MAE (people)", "MAE")
        assert "most probable" in table.headings[first + 1]


def test_results_without_a_median_have_the_other_error_by_its_name() -> None:
    """As results were before: no column is wrong, one is absent."""
    setting = made.setting()
    for row in setting.rows:
        for outcome in row.outcomes:
            for figures in outcome.at.values():
                for values in (figures["mean"], figures["std"], *figures["rooms"].values()):
                    del values["mae_median"]
    for table in (comparison.overall(setting, 20), comparison.rooms(setting, ["local"])):
        errors = [heading for heading in table.headings if "MAE" in heading]
        assert errors
        assert all("most probable" in heading for heading in errors)
    assert comparison.over_time(setting) is None


def test_counting_over_time_has_a_column_for_every_time_that_was_reached() -> None:
    """Local at 20 rounds: MAE 0.30 after one window, 0.15 after 30 s; nothing after 10 or 60 s."""
    assert comparison.over_time(made.setting()) is None
    table = comparison.over_time(made.with_time(made.setting()))
    assert table is not None
    assert table.headings == ["Method", "one window", "30 s"]
    assert list(table.spans) == [("", 1), ("MAE (people)", 2)]
    rows = by_title(table)
    assert rows["Local"] == ["0.30 ± 0.02", "0.15 ± 0.01"]
    assert "Always the commonest class" in rows
    assert "Of test recordings that are long enough" in table.note
    assert comparison.over_time(made.with_time(made.setting()), ["accuracy"]) is None


def test_the_calibration_error_has_a_table_of_its_own() -> None:
    setting = made.setting(seeds=[0])
    assert comparison.calibration(setting) is None
    for row in setting.rows:
        row.outcomes[0].at["20"]["mean"]["ece"] = 0.125
    assert "Calibration error (%)" not in comparison.overall(setting, 20).headings
    table = comparison.calibration(setting)
    assert table is not None
    assert table.headings == ["Method", "Calibration error (%)"]
    assert by_title(table)["Always the commonest class"] == ["12.5"]
    assert "20 test windows" in table.note


def with_presence(setting: Setting, areas: int | None = None) -> Setting:
    """The same with a presence of 90 % and an area of 80 %, of so many rooms where given."""

    def added(outcome: Outcome) -> Outcome:
        few = {} if areas is None else {"fewer_rooms": {"presence_auc": areas}}
        at = {
            horizon: {
                **figures,
                **few,
                "mean": {**figures["mean"], "presence": 0.9, "presence_auc": 0.8},
                "std": {**figures["std"], "presence": 0.01, "presence_auc": 0.02},
            }
            for horizon, figures in outcome.at.items()
        }
        return replace(outcome, at=at)

    rows = [replace(row, outcomes=[added(one) for one in row.outcomes]) for row in setting.rows]
    return replace(setting, rows=rows)


def test_presence_has_a_table_of_its_own() -> None:
    """Of one seed each figure has its deviation over rooms beside it."""
    assert comparison.presence(made.setting()) is None, "as results of before"
    setting = with_presence(made.setting(seeds=[0]))
    assert not [one for one in comparison.overall(setting, 20).headings if "Presence" in one]
    table = comparison.presence(setting)
    assert table is not None
    assert table.headings == ["Method", "Presence (%)", "±", "Presence AUC (%)", "±"]
    rows = by_title(table)
    assert rows["Local"] == ["90.0", "± 1.0", "80.0", "± 2.0"]
    assert "Always the commonest class" in rows
    assert "lack" not in table.note
    swept = comparison.presence(with_presence(made.sweep().settings[0]), parameter="width D")
    assert swept is not None
    assert swept.headings[:2] == ["Method", "width D"]
    assert all(len(row) == len(swept.headings) for row in swept.rows)


def test_a_mean_over_fewer_rooms_says_so_in_every_table_that_has_it() -> None:
    """One of two rooms has an area, and both in another row: one to two."""
    told = "Some rooms lack a metric, its mean is over the others: Presence AUC: 1 of 2 rooms"
    table = comparison.presence(with_presence(made.setting(), 1))
    assert table is not None
    assert told in table.note
    mixed = [*with_presence(made.setting(), 1).rows[:1], *with_presence(made.setting()).rows[1:]]
    table = comparison.presence(replace(made.setting(), rows=mixed))
    assert table is not None
    assert "Presence AUC: 1 to 2 of 2 rooms" in table.note
    setting = made.with_time(made.setting(seeds=[0]))
    for row in setting.rows:
        row.outcomes[0].at["20"]["fewer_rooms"] = dict.fromkeys(
            ("mae_30s", "mae_one_window", "mae_median", "within_one"), 1
        )
    found = made.results([setting, made.setting("model")])
    over_time, side_by_side = comparison.over_time(setting), comparison.in_paper_layout(found)
    differences = comparison.differences(setting, metric="mae_median")
    assert over_time is not None and side_by_side is not None and differences is not None
    assert "MAE after one window and MAE after 30 s: 1 of 2 rooms" in over_time.note
    assert side_by_side.note.count("MAE: 1 of 2 rooms") == 1
    assert "MAE: 1 to 2 of 2 rooms" in differences.note, "one at 20 rounds, two at others"
    assert "MAE and Within ±1: 1 of 2 rooms" in comparison.overall(setting, 20).note
    assert "lack" not in comparison.overall(setting, 10).note
    said = in_short(setting, 20)
    assert said is not None
    assert "within one" not in said, "a sentence would not say of how many rooms"
    assert "within one" in str(in_short(made.setting(seeds=[0]), 20))


def test_counting_over_time_says_which_recordings_it_is_of() -> None:
    setting = made.with_time(made.setting())
    rooms = {
        name: {**about, "continuous": 30, "recordings": {"test": 4, "continuous": 2}}
        for name, about in setting.data["rooms"].items()
    }
    table = comparison.over_time(replace(setting, data={**setting.data, "rooms": rooms}))
    assert table is not None
    assert "Of 60 windows of 4 continuous recordings" in table.note
    assert "20 test windows of 8 recordings with seed 0" in table.note


def test_every_table_tells_how_much_was_tested() -> None:
    """Two rooms of 10 test windows; what is not known of recordings is not said."""
    assert "split recording, 20 test windows with seed 0 ·" in caption(made.setting())
    assert "split recording, 20 test windows ·" in caption(made.setting(seeds=[3]))


def test_groups_are_apart_and_blind_rows_last() -> None:
    table = comparison.overall(made.setting(), 20)
    assert [row[0] for row in table.rows][-1] == "Always the commonest class"
    assert list(table.breaks) == [4, 5, 7]  # 4 of the paper, 1 more, 2 controls, 1 blind


def test_every_table_names_data_split_seeds_rounds_and_commit() -> None:
    found = made.results()
    setting = found.settings[0]
    made_tables = [
        comparison.overall(setting, 20),
        comparison.in_paper_layout(found),
        comparison.horizons(setting),
        comparison.differences(setting),
        comparison.reach(setting),
        comparison.rooms(setting, ["local", "fedapa"]),
        comparison.overall(made.sweep().settings[0], parameter="width D"),
    ]
    for table in made_tables:
        assert table is not None
        for word in ("SIMULATED", "'made'", "split recording", "seeds 0, 1, 2", "20 rounds"):
            assert word in table.note, (table.title, word)
        assert "commit 0123456789" in table.note
        assert "mean of the last 5" in table.note or "means of 5 rounds" in table.note


def test_real_data_is_called_real_and_named_without_its_folder() -> None:
    text = caption(made.setting(synthetic=False))
    assert text.startswith("real data: real.h5 ·")
    assert "SIMULATED" not in text


def test_a_row_too_short_for_a_horizon_is_left_out_by_name() -> None:
    table = comparison.overall(made.setting(), 40)
    assert set(by_title(table)) == {"Local", "FedAPA", "Self", "Always the commonest class"}
    assert "No figure at this horizon: FedAvg_100 % & <co>; WiFed; FedProto; Pooled" in table.note


def test_horizons_show_each_and_a_dash_where_not_run() -> None:
    table = comparison.horizons(made.setting())
    assert table.headings == ["Method", "5 (¼)", "10 (½)", "20 (all)", "40 (long)"]
    assert by_title(table)["FedAvg_100 % & <co>"] == [
        "30.0 ± 2.0",
        "40.0 ± 2.0",
        "50.0 ± 2.0",
        "–",
    ]


def test_horizons_tell_whether_local_has_stopped_improving() -> None:
    """Rounds 21 to 30 and 31 to 40 of Local are both at 0.7: a rise of nothing."""
    note = comparison.horizons(made.setting()).note
    assert "Local has stopped improving: +0.0 points" in note
    rising = made.row("local", "paper", {10: 0.2, 20: 0.3, 30: 0.4, 40: 0.5}, title="Local")
    setting = made.Setting(**{**vars(made.setting()), "rows": [rising]})
    assert "Local is still improving: +10.0 points" in comparison.horizons(setting).note


def test_differences_are_paired_with_their_interval() -> None:
    """FedAPA 69, 70, 71 minus Local 58, 60, 62 at 20 rounds: 11, 10, 9.

    Mean 10, s = 1, half width 4.303 · 1/√3 = 2.48. Rooms run parallel: FedAPA leads all 6 pairs.
    """
    table = comparison.differences(made.setting())
    assert table is not None
    local = by_title(table)["Local"]
    assert local[4:6] == ["+10.0 [+7.5, +12.5] *", "6/6"]
    # At 40 rounds 70, 71, 72 against 68, 70, 72: 2, 1, 0, which ± 2.48 may be nothing.
    assert local[6:8] == ["+1.0 [−1.5, +3.5]", "4/6"]
    assert by_title(table)["FedProto"][6:8] == ["–", "–"]
    assert "t = 4.30" in table.note
    assert "FedAPA" not in by_title(table)
    # 4 rows at all horizons, 3 more at three of them: 3 · 4 + 4 · 3 = 24, a twentieth is about 1.
    assert "about 1 of these 24 would still be clear" in table.note


def test_differences_of_mae_say_which_side_is_good() -> None:
    table = comparison.differences(made.setting(), metric="mae")
    assert table is not None
    assert by_title(table)["Local"][2] == "−0.10 [−0.12, −0.08] *"
    assert "below zero is better" in table.title


def test_one_seed_has_neither_deviation_nor_interval() -> None:
    setting = made.setting(seeds=[7])
    assert by_title(comparison.overall(setting, 20))["Local"][0] == "60.0"
    table = comparison.differences(setting)
    assert table is not None
    assert by_title(table)["Local"][4] == "+10.0"
    assert "One seed" in table.note
    assert "*" not in "".join(cell for row in table.rows for cell in row)
    assert "· seed 7 ·" in table.note


def test_lines_of_a_sweep_are_compared_at_equal_values() -> None:
    """Ours 60, 80 minus Local's 50, 75 with 1 and 4 labels: 10 and 5, not 60 − 75.

    The other answer of ours with one label has 58, and a row without a value is compared with ours
    with one label: 60 − 20.
    """

    def row(name: str, group: str, value: int | None, level: float) -> Row:
        return made.row(name, group, {20: level}, seeds=[0], value=value)

    rows = [
        *(row("ours-1", "Ours", 1, 0.6), row("ours-1.other", "Ours", 1, 0.58)),
        *(row("ours-4", "Ours", 4, 0.8), row("local-1", "Local", 1, 0.5)),
        *(row("local-4", "Local", 4, 0.75), row("prior", "blind", None, 0.2)),
    ]
    setting = replace(made.setting(seeds=[0]), rows=rows, horizons=[20], reference="ours-1")
    table = comparison.differences(setting)
    assert table is not None
    assert {title: cells[0] for title, cells in by_title(table).items()} == {
        "local-1": "+10.0",
        "local-4": "+5.0",
        "ours-1.other": "+2.0",
        "prior": "+40.0",
    }
    assert "Ours minus each other row" in table.title
    assert "against Ours at its own value; one without a value against ours-1" in table.note
    alone = replace(setting, rows=[rows[0], rows[2], rows[5]])
    assert (alone_table := comparison.differences(alone)) is not None
    assert by_title(alone_table)["ours-4"][0] == "−20.0", "one line: against the reference itself"


def test_without_the_reference_there_are_no_differences() -> None:
    assert comparison.differences(made.setting(), reference="fedavg-2") is None


def test_categories_have_no_mae() -> None:
    setting = made.setting(people=False)
    for table in (comparison.overall(setting, 20), comparison.rooms(setting, ["local"])):
        assert not [heading for heading in table.headings if "MAE" in heading or "±1" in heading]


def test_targets_lie_between_blind_and_best_evenly() -> None:
    """Above 21 up to 71: 25, 30 … 70 are ten, every second from the top five."""
    assert target_accuracies(made.setting()) == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7])


def test_reach_counts_rounds_bytes_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAPA's seeds begin at 49, 50, 51: two of them have 49.5 at round 5, the first mean of five.

    The first is at 59 from round 6: (4·49 + 59)/5 = 51 at round 6. Mean (6 + 5 + 5)/3 = 5.3, with
    4 kB a round 0.02 MB. FedAvg is at 48, 50, 52 from round 11, ten points lower before: the first
    seed never has 49.5; the second when all five are at 50, in round 15; the third has
    (42 + 4·52)/5 = 50 in round 14. Mean 14.5, with 80 kB a round 1.16 MB.
    """
    monkeypatch.setattr(comparison, "target_accuracies", lambda _: [0.495, 0.9])
    table = comparison.reach(made.setting())
    assert table is not None
    rows = by_title(table)
    assert rows["FedAPA"] == ["5.3", "0.02", "–", "–"]
    assert rows["FedAvg_100 % & <co>"] == ["14.5 (2 of 3)", "1.16", "–", "–"]
    assert rows["Pooled"] == ["14.5 (2 of 3)", "–", "–", "–"]
    assert "WiFed" not in rows  # scored at few rounds: nobody knows when it got there
    assert "Always the commonest class" not in rows


def test_sweeps_list_values_with_their_metrics() -> None:
    found = made.sweep()
    table = comparison.overall(found.settings[0], parameter=found.parameter)
    assert table.headings[:3] == ["Method", "width D", "Accuracy (%)"]
    assert [row[1] for row in table.rows] == ["64", "128", "256", "own %_"]
    assert table.rows[1][2] == "60.0 ± 2.0"


def test_selections_are_groups_of_a_sweep() -> None:
    found = made.participation()
    table = comparison.overall(found.settings[0], parameter=found.parameter)
    assert list(table.breaks) == [3, 6]


def test_the_paper_layout_has_both_settings_side_by_side() -> None:
    table = comparison.in_paper_layout(made.results())
    assert table is not None
    assert list(table.spans) == [("", 1), ("Statistical data", 4), ("Model architecture", 4)]
    assert by_title(table)["FedAPA"] == 2 * [
        *("70.0 ± 1.0", "65.0 ± 1.0"),
        *("0.20 ± 0.01", "0.30 ± 0.01"),
    ]
    assert comparison.in_paper_layout(made.sweep()) is None


@pytest.mark.parametrize("accuracy", [0.8725, 87.25])
def test_published_figures_read_as_printed(accuracy: float) -> None:
    table = comparison.published_table(
        made.setting(), {"fedapa": {"accuracy": accuracy, "mae": 0.23}, "other": {"mae": 2.0}}
    )
    assert table.rows == [["FedAPA", "87.25", "0.23"], ["other", "–", "2.00"]]
    assert "private" in table.note
    assert "lead" not in table.note, "Local is not among them"


def test_published_figures_tell_the_lead_over_local_and_over_the_next_best() -> None:
    """87.25 − 72.06 = 15.19 over Local, 87.25 − 77.60 = 9.65 over CARING."""
    accuracy = {"local": 0.7206, "caring": 0.7760, "fedavg": 0.5946, "fedapa": 0.8725}
    figures = {name: {"accuracy": value} for name, value in accuracy.items()}
    note = comparison.published_table(made.setting(), figures).note
    lead = "FedAPA's lead in accuracy there is 15.19 points over Local and 9.65 points over caring"
    assert f"{lead}, the next best" in note
    assert "80 % of the data for training" in note
    assert "what was drawn (windows or recordings), rounds and seeds are not told" in note


def test_latex_escapes_what_it_would_misread() -> None:
    text = latex(comparison.overall(made.setting(), 20))
    assert r"FedAvg\_100 \% \& $<$co$>$ & 50.0 $\pm$ 2.0" in text
    assert r"Accuracy (\%)" in text
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == 6, line
    assert not set("±−–·×¼½<>") & set(re.sub(r"\$[<>]\$", "", text))


def test_latex_has_the_spans_and_lines_of_the_paper() -> None:
    table = comparison.in_paper_layout(made.results())
    assert table is not None
    text = latex(table)
    assert r" & \multicolumn{4}{c}{Statistical data} & \multicolumn{4}{c}{Model" in text
    assert r"\begin{tabular}{lrrrrrrrr}" in text
    assert text.count(r"\hline") == 3 + len(table.breaks)
    assert text.count("{") == text.count("}")


def test_markdown_and_html_keep_odd_names() -> None:
    table = comparison.overall(made.setting(), 20)
    assert r"| FedAvg\_100 % & \<co\> |" in markdown(table)
    assert "FedAvg_100 % &amp; &lt;co&gt;" in html_table(table)
    assert markdown(table).count("\n| ") == 2 + len(table.rows) - 1 + 1
    assert html_table(table).count("class=group") == 3


def test_a_cell_is_one_printable_line_wherever_the_table_goes() -> None:
    """Labels and names come from strangers' files and from other rooms."""
    table = Table("a\x1b[2J", ["room\r"], [["x\n| y"]], note="one\ntwo\x07")
    assert (table.title, list(table.headings), table.note) == ("a [2J", ["room "], "one\ntwo ")
    assert markdown(table).splitlines()[4] == r"| x \| y |"


def test_spans_stand_before_headings_where_there_is_one_line_only() -> None:
    table = comparison.reach(made.setting())
    assert table is not None
    assert "| Method | 30 %: rounds | 30 %: MB |" in markdown(table)
    assert rich_table(table).columns[1].header == "30 %: rounds"


def test_horizons_of_few_rounds_are_named_by_their_share() -> None:
    def labels(rounds: int, *horizons: int) -> list[str]:
        few = replace(made.setting(), rounds=rounds, horizons=list(horizons))
        return [few.horizon_label(each) for each in horizons]

    assert labels(1, 1) == ["1 (all)"]
    assert labels(2, 1, 2) == ["1 (½)", "2 (all)"]
    assert labels(3, 1, 2, 3) == ["1 (¼)", "2 (½)", "3 (all)"]
    assert labels(30, 8, 15, 30, 120) == ["8 (¼)", "15 (½)", "30 (all)", "120 (long)"]


def test_a_caption_does_not_claim_five_rounds_where_there_were_fewer() -> None:
    few = replace(made.setting(), rounds=3, horizons=[1, 2, 3])
    assert "after 1 round ·" in caption(few, 1)
    assert "or of all where there were fewer" in caption(few)
    assert "fewer" not in caption(made.setting())


def test_a_table_of_many_columns_is_set_smaller() -> None:
    narrow, wide = (Table("T", ["A"] * number, [["1"] * number]) for number in (10, 11))
    assert "class=dense" not in html_table(narrow)
    assert "class=dense" in html_table(wide)


@pytest.mark.parametrize(("apart", "shown"), [(0.0, False), (0.02, True)])
def test_a_second_macro_f1_is_a_column_where_it_says_something_else(
    apart: float, shown: bool
) -> None:
    setting = made.setting()

    def with_both(row: Row) -> Row:
        outcomes = []
        for outcome in row.outcomes:
            at = {
                horizon: {
                    **held,
                    "mean": {
                        **held["mean"],
                        "macro_f1_answered": held["mean"]["macro_f1"] - apart,
                    },
                }
                for horizon, held in outcome.at.items()
            }
            outcomes.append(replace(outcome, at=at))
        return replace(row, outcomes=outcomes)

    both = replace(setting, rows=[with_both(row) for row in setting.rows])
    headings = comparison.overall(both).headings
    assert ("Macro F1, answered too (%)" in headings) == shown
    assert "Macro F1 (%)" in headings

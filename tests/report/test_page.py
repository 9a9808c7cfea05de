"""Figures and the report of an experiment: readable, self-contained, the same every time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedapa import Plan, run
from fedapa.errors import RunError
from fedapa.evaluation.embedding import Embedding, project
from fedapa.evaluation.results import Outcome, Results, Row, Setting
from fedapa.federation.prepare import prepare_rooms
from fedapa.federation.run import Run
from fedapa.report.figures.curves import convergence, room_curves
from fedapa.report.figures.embedding import embedding_map, embedding_of
from fedapa.report.figures.presence import presence_rocs
from fedapa.report.figures.reliability import reliability_diagrams
from fedapa.report.figures.rooms import confusion_matrices, room_bars, weights_over_time
from fedapa.report.figures.sweeps import sweep
from fedapa.report.page import write_index, write_report
from fedapa.report.style import families, svg
from tests.conftest import MakeStore
from tests.report import made

Runs = dict[tuple[str, str, int], Run]
SIX = ("bedroom", "conference room", "hall_2 & <lab>", "laboratory", "living room", "50 % café")


def check_text(figure: Figure) -> None:
    """No text reaches out of the figure, and no two texts lie over each other."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    whole, hidden = figure.bbox, _hidden_ticks(figure)
    boxes: list[tuple[str, Bbox]] = []
    for text in figure.findobj(Text):
        shown = text.get_visible() and text.get_text().strip() and id(text) not in hidden
        if not shown or (text.axes is not None and not text.axes.get_visible()):
            continue
        box = text.get_window_extent(renderer)
        assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1, text.get_text()
        assert box.y0 >= whole.y0 - 1 and box.y1 <= whole.y1 + 1, text.get_text()
        boxes.append((text.get_text(), box))
    for (one, first), (two, second) in combinations(boxes, 2):
        met = Bbox.intersection(first, second)
        assert met is None or min(met.width, met.height) < 1.5, (one, two)


def _hidden_ticks(figure: Figure) -> set[int]:
    """Ticks beyond an axis' limits, or left from an earlier layout, are kept but not drawn."""
    hidden = set()
    for axes in figure.findobj(Axes):
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            drawn = {*map(id, axis.get_major_ticks()), *map(id, axis.get_minor_ticks())}
            for tick in (*axis.majorTicks, *axis.minorTicks):
                inside = min(limits) - 1e-9 <= tick.get_loc() <= max(limits) + 1e-9
                if id(tick) not in drawn or not inside:
                    hidden |= {id(tick.label1), id(tick.label2)}
    return hidden


def many() -> Setting:
    """Sixteen rows, six rooms."""
    base = made.setting()
    rows = [
        made.row(
            name,
            group,
            {5: 0.2 + number / 50, 10: 0.3 + number / 50, 20: 0.4 + number / 50},
            title=title,
            rooms=SIX,
        )
        for number, (name, title, group) in enumerate(
            [
                ("local", "Local", "paper"),
                ("fedavg", "FedAvg", "paper"),
                ("caring", "CARING", "paper"),
                ("fedapa", "FedAPA", "paper"),
                *((f"more-{each}", f"Another method {each}", "more") for each in range(8)),
                ("fedapa-self", "Self-prototypes", "control"),
                ("local-more-epochs", "Local, equal epochs", "control"),
                ("pooled", "Pooled", "control"),
                ("constant", "Always the commonest class", "blind"),
            ]
        )
    ]
    return replace(base, rows=rows, horizons=[5, 10, 20], data=made.data(rooms=SIX))


def far_horizon() -> Setting:
    """Horizons 2, 4, 8 and 400, of which one row runs to the last."""
    levels = {2: 0.2, 4: 0.3, 8: 0.4}
    rows = [
        made.row("local", "paper", {**levels, 400: 0.7}, title="Local"),
        made.row("fedapa", "paper", levels, title="FedAPA"),
    ]
    return replace(made.setting(), rows=rows, rounds=8, horizons=[2, 4, 8, 400])


@pytest.fixture
def runs(make_store: MakeStore, tmp_path: Path) -> Runs:
    """Local and FedAPA on two small rooms, seed 0, under the names of both settings."""
    found: Runs = {}
    for name, done in made.trained(make_store, tmp_path / "runs").items():
        for setting in ("statistical", "model"):
            found[setting, name, 0] = done
    return found


def drawings(runs: Mapping[tuple[str, str, int], Run]) -> dict[str, Figure]:
    widths, words, shares = made.sweep(), made.sweep(people=False), made.participation()
    ours, local = runs["model", "fedapa", 0], runs["model", "local", 0]
    weights = weights_over_time(ours, "FedAPA")
    assert weights is not None
    return {
        "curves": convergence(made.setting()),
        "curves by room": room_curves({"local": ("Local", [local])}, "Rooms"),
        "many curves": convergence(many()),
        "far horizon": convergence(far_horizon()),
        "one seed": convergence(made.setting(seeds=[3])),
        "bars": room_bars(made.setting(), ["local", "fedapa"]),
        "many bars": room_bars(
            many(), ["local", "fedavg", "local-more-epochs", "fedapa-self", "fedapa"]
        ),
        "sweep": sweep(widths, widths.settings[0]),
        "sweep of categories": sweep(words, words.settings[0]),
        "participation": sweep(shares, shares.settings[0]),
        "confusion": confusion_matrices({"Local": [local], "FedAPA": [ours, ours]}),
        "weights": weights,
    }


def test_no_text_overlaps_or_leaves_its_figure(runs: Runs) -> None:
    for name, figure in drawings(runs).items():
        try:
            check_text(figure)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_every_figure_names_its_data_split_and_seeds(runs: Runs) -> None:
    for name, figure in drawings(runs).items():
        said = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
        for word in ("SIMULATED", "split r", "seed"):
            assert word in said, (name, word)


def test_equal_results_have_equal_pictures() -> None:
    one, two = (svg(convergence(made.setting())) for _ in range(2))
    assert one == two


def test_a_far_horizon_makes_the_axis_logarithmic() -> None:
    assert convergence(far_horizon()).axes[0].get_xscale() == "log"
    assert convergence(made.setting()).axes[0].get_xscale() == "linear"


def test_rows_scored_at_few_rounds_are_marks_there() -> None:
    axes = convergence(made.setting()).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "WiFed")
    assert list(line.get_xdata()) == [4, 5, 9, 10, 19, 20]
    assert line.get_linestyle() == "None"


def test_curves_are_means_of_five_rounds_over_seeds() -> None:
    """FedAPA is at 50 up to round 5 and at 60 after: round 7 has (3·50 + 2·60)/5 = 54."""
    axes = convergence(made.setting()).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "FedAPA")
    assert np.asarray(line.get_ydata())[6] == pytest.approx(54)


def test_the_default_of_a_sweep_has_a_ring() -> None:
    found = made.sweep()
    axes = sweep(found, found.settings[0]).axes[0]
    rings = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert [list(ring.get_xdata()) for ring in rings] == [[1]]


def test_what_lies_far_from_a_sweep_is_said_and_not_drawn() -> None:
    """A line at 1 % below points from 40 % on would press them together."""
    found = made.participation()
    setting = found.settings[0]
    blind = made.row("constant", "blind", dict.fromkeys(setting.horizons, 0.01), title="Constant")
    far = replace(setting, rows=[*(row for row in setting.rows if row.value is not None), blind])
    figure = sweep(found, far)
    check_text(figure)
    accuracy, people = figure.axes
    assert accuracy.get_ylim()[0] > 1
    assert accuracy.get_title(loc="left") == "below: constant, 1.0 %"
    level = np.mean(blind.metrics(setting.rounds, "mae_median"))
    assert people.get_title(loc="left") == f"above: constant, {level:.2f}"


def test_participation_has_a_line_a_selection() -> None:
    found = made.participation()
    figure = sweep(found, found.settings[0])
    assert [text.get_text() for text in figure.legends[0].texts] == ["uniform", "diverse", "stale"]


def test_confusions_add_up_rooms_and_seeds(runs: Runs) -> None:
    local = runs["model", "local", 0]
    small = replace(local, data={**local.data, "classes": ["a", "b"]})
    one = replace(small, summary={**local.summary, "confusion": {"r": [[3, 1], [0, 0]]}})
    two = replace(small, summary={**local.summary, "confusion": {"r": [[1, 3], [0, 0]]}})
    axes = confusion_matrices({"Local": [one, two]}).axes[0]
    share = axes.images[0].get_array()
    assert share is not None
    assert np.asarray(share[0]).tolist() == [50, 50]
    assert np.ma.getmaskarray(share)[1].all() or np.isnan(np.asarray(share[1])).all()


def test_reliability_adds_up_rooms_and_seeds(runs: Runs) -> None:
    """One seed: 4 windows at 75 %, 3 right. Another: 4 at 79 %, 1 right. Together 77 % and half.

    So far off are 27 points.
    """
    local = runs["model", "local", 0]

    def one(confidence: float, right: int) -> Run:
        table = np.zeros((10, 3))
        table[7] = 4, 4 * confidence, right
        return replace(local, summary={**local.summary, "reliability": {"r": table.tolist()}})

    figure = reliability_diagrams({"Local": [one(0.75, 3), one(0.79, 1)]}, "About")
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title() == "Local: 27.0 points off"
    (points,) = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    np.testing.assert_allclose(points[0].get_xydata(), [[77, 50]])
    assert [text.get_text() for text in axes.texts] == ["8"]


def test_runs_that_tell_no_reliability_have_no_diagram(runs: Runs) -> None:
    """As those of before."""
    local = runs["model", "local", 0]
    assert local.summary["reliability"]
    before = {key: told for key, told in local.summary.items() if key != "reliability"}
    old = replace(local, summary=before)
    assert reliability_diagrams({"Local": [old]}) is None
    both = reliability_diagrams({"Old": [old], "Local": [local]})
    assert both is not None
    assert [axes.get_title().partition(":")[0] for axes in both.axes] == ["Local"]
    for titles in (["One"], ["One", "Two"], ["One", "Two", "Three", "A title that is long"]):
        figure = reliability_diagrams({title: [local] for title in titles}, "About")
        assert figure is not None
        check_text(figure)


def test_the_roc_adds_up_seeds_and_has_a_line_for_every_room(runs: Runs) -> None:
    """At one half one seed notices 3 of 4 with 1 of 2 false alarms, another 1 of 4 with none.

    Together 50 % with 25 %: the area of (0, 0), (25, 50), (100, 100) is 1/16 + 9/16 = 62.5 %.
    """
    local = runs["model", "local", 0]

    def one(alarms: int, hits: int) -> Run:
        tables = {
            "r": [[2, 4]] * 10 + [[alarms, hits]] + [[0, 0]] * 10,
            "never empty": [[0, 4]] * 21,
        }
        return replace(local, summary={**local.summary, "roc": tables})

    figure = presence_rocs({"Local": [one(1, 3), one(0, 1)]}, "About")
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "Local"
    _, line = axes.lines
    assert line.get_label() == "r, 62.5 %"
    assert np.unique(line.get_xydata(), axis=0).tolist() == [[0, 0], [25, 50], [100, 100]]


def test_many_rooms_are_one_line_and_runs_of_before_have_none(runs: Runs) -> None:
    local = runs["model", "local", 0]
    assert local.summary["roc"]
    before = {key: told for key, told in local.summary.items() if key != "roc"}
    old = replace(local, summary=before)
    assert presence_rocs({"Local": [old]}) is None
    both = presence_rocs({"Old": [old], "Local": [local]})
    assert both is not None
    assert [axes.get_title(loc="left") for axes in both.axes] == ["Local"]
    table = [[6, 9]] * 10 + [[1, 8]] * 11
    for rooms, lines in ((2, 2), (16, 16), (17, 1)):
        roc = {f"a long name of room {number}": table for number in range(rooms)}
        run = replace(
            local,
            summary={**local.summary, "roc": roc},
            data={**local.data, "rooms": dict.fromkeys(roc, local.data["rooms"]["cafe"])},
        )
        for titles in (["One"], ["One", "Two"], ["One", "Two", "A title that is rather long"]):
            figure = presence_rocs({title: [run] for title in titles}, "About")
            assert figure is not None
            check_text(figure)
            shown = [axes for axes in figure.axes if axes.get_visible()]
            assert [len(axes.lines) for axes in shown] == [1 + lines] * len(titles)
            alike = shown[0].lines[1::10]  # the same colour comes again after ten rooms
            assert len({line.get_linestyle() for line in alike}) == len(alike)


def test_classes_that_are_numbers_stand_in_their_order(runs: Runs) -> None:
    local = runs["model", "local", 0]
    small = replace(local, data={**local.data, "classes": ["1", "10", "2"]})
    counted = [[1, 0, 0], [0, 2, 2], [0, 1, 3]]
    one = replace(small, summary={**local.summary, "confusion": {"r": counted}})
    axes = confusion_matrices({"Local": [one]}).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "10"]
    assert np.asarray(axes.images[0].get_array()).tolist() == [
        [100, 0, 0],
        [0, 75, 25],
        [0, 50, 50],
    ]


def test_maps_order_classes_as_numbers_too() -> None:
    points, labels = np.asarray([[0.0, 0], [1, 0], [2, 0]]), np.asarray([0, 1, 2])
    panel = Embedding(
        "Local", points, labels, ["r"] * 3, ["1", "10", "2"], np.empty((0, 2)), labels[:0], []
    )
    figure = embedding_map([panel], "SIMULATED")
    assert np.asarray(figure.axes[0].collections[0].get_array()).tolist() == [0, 2, 1]
    bar = figure.axes[-1]
    assert [tick.get_text() for tick in bar.get_yticklabels()] == ["1", "2", "10"]


def test_a_row_has_one_colour_in_all_figures_and_none_twice_in_a_panel() -> None:
    curves, bars = convergence(many()), room_bars(many(), ["fedavg", "local"])
    seen = {
        each.get_label(): each.patches[0].get_facecolor()
        for each in bars.axes[0].containers
        if isinstance(each, BarContainer)
    }
    assert set(seen) == {"FedAvg", "Local"}
    for axes in curves.axes:
        colours = {
            line.get_label(): line.get_color() for line in axes.lines if line.get_xydata().size > 4
        }
        named = {label: colour for label, colour in colours.items() if not label.startswith("_")}
        assert len(set(named.values())) == len(named)
        for label in seen.keys() & named.keys():
            assert to_rgba(named[label]) == seen[label]


def test_a_floor_far_below_the_curves_is_said_instead_of_drawn() -> None:
    controls = many().rows[-4:-1]  # between 40 and 70 %
    near, far = (
        replace(many(), rows=[*controls, made.row("constant", "blind", {20: floor}, title="Guess")])
        for floor in (0.37, 0.01)
    )
    for setting, drawn in ((near, True), (far, False)):
        said = [text.get_text() for text in convergence(setting).axes[0].get_legend().texts]
        assert ("guess" in said) is drawn
        assert ("(below: guess, 1.0 %)" in said) is not drawn


def test_no_weights_no_figure(runs: Runs) -> None:
    assert weights_over_time(runs["model", "local", 0]) is None


def test_the_map_holds_every_test_window_and_prototype(runs: Runs) -> None:
    done = runs["model", "fedapa", 0]
    rooms = prepare_rooms(done.plan)
    one, two = (embedding_of(done, rooms, "FedAPA") for _ in range(2))
    assert len(one.points) == sum(len(room.split.test) for room in rooms) == len(one.rooms)
    assert len(one.prototypes) == 5  # three classes in the cafe, two in the hall
    assert np.array_equal(one.points, two.points)
    check_text(embedding_map([one, two], "SIMULATED"))


def test_nets_of_other_data_have_no_map(runs: Runs) -> None:
    done = runs["model", "fedapa", 0]
    rooms = prepare_rooms(Plan.of(done.plan.document(), {"seed": 1}))
    with pytest.raises(RunError, match="its data changed"):
        embedding_of(done, rooms, "FedAPA")


@pytest.mark.parametrize("number", [1, 2, 3, 11, 12, 40])
def test_any_number_of_vectors_has_points(number: int) -> None:
    vectors = np.linspace(0, 1, number * 8).reshape(number, 8) ** 2
    points = project(vectors)
    assert points.shape == (number, 2)
    assert np.isfinite(points).all()
    assert np.array_equal(points, project(vectors))


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def check_page(text: str) -> None:
    assert "<script" not in text
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text)
    assert not re.findall(r"url\((?!#)", text)
    assert "@import" not in text
    for address in re.findall(r'https?://[^"<\s]*', text):
        assert "w3.org" in address, address  # names of XML vocabularies


def test_a_report_is_complete_and_self_contained(runs: Runs, tmp_path: Path) -> None:
    published = {"statistical": {"fedapa": {"accuracy": 87.25, "macro_f1": 85.91, "mae": 0.23}}}
    page = write_report(tmp_path / "one", made.results(), runs, published=published)
    assert page == tmp_path / "one" / "index.html"
    text = page.read_text()
    check_page(text)
    for word in (
        "SIMULATED rooms",
        "Accuracy at every horizon",
        "Differences, paired over seeds",
        "Rounds and bytes to reach an accuracy",
        "Room by room",
        "Confusion matrices",
        "Can the probabilities be believed",
        "Is anybody there",
        "Who learns from whom (FedAPA)",
        "Embedding map",
        "not ours",
        "fedapa reproduce table1 --preset smoke",
        "0123456789abcdef0123456789abcdef01234567",
        "torch 2.13.0",
        "FedAvg_100 % &amp; &lt;co&gt;",
        "Plan of FedAPA",
    ):
        assert word in text, word
    assert text.count("<aside") == 1
    # curves, bars, curves by room, confusion, reliability, ROC, weights and map of each setting
    assert text.count("<svg") == 16
    files = read(tmp_path / "one")
    assert {name for name in files if name.endswith(".png")} == {
        name.replace(".svg", ".png") for name in files if name.endswith(".svg")
    }
    for name in ("statistical-overall-20.tex", "model-differences.tex", "settings.tex"):
        assert name in files
    said = files["results.md"].decode()
    for link in re.findall(r"\]\(([^)]*)\)", said):
        assert link in files
    assert "SIMULATED" in said and "87.25" in said


def test_a_report_names_uploads_that_were_not_taken(runs: Runs, tmp_path: Path) -> None:
    """Those of 22 rounds: twenty are told one by one, and how many more there are."""
    (place, one), *_ = runs.items()
    lines = [{**one.records[0], "rejected": {"hall": "its norm is 1e+20"}}] * 22
    lines += [{**one.records[0], "diverged": {"lab": "its loss is nan"}}]
    spoilt = {**runs, place: replace(one, records=lines)}
    page = write_report(tmp_path / "spoilt", made.results([made.setting()]), spoilt)
    said = page.read_text()
    assert "Uploads that were not taken" in said
    assert f"{place[1]}, seed {place[2]}, round 1: the upload of room &#x27;hall&#x27; was" in said
    assert "and 3 more, see rounds.jsonl" in said
    usual = write_report(tmp_path / "usual", made.results([made.setting()]), runs)
    assert "Uploads that were not taken" not in usual.read_text()


def test_a_report_names_suspected_rooms_and_whether_they_lied(runs: Runs, tmp_path: Path) -> None:
    (place, one), *_ = runs.items()
    first = one.records[0]
    rooms = {room: {**own, "trust": 0.0} for room, own in first["rooms"].items()}
    room = next(iter(rooms))
    line = {**first, "rooms": rooms, "suspects": {room: "it points elsewhere"}}
    note = "exchange 1: the defence cannot compare the weights of any room: that takes three"
    summary = {**one.summary, "notes": ["exchange 1: another note", note]}
    records = [line, {**line, "attackers": [room]}]
    judged = {**runs, place: replace(one, records=records, summary=summary)}
    said = write_report(tmp_path / "one", made.results([made.setting()]), judged).read_text()
    assert "Rooms that lie or are suspected" in said
    assert f"attackers by its plan (): {room}" in said
    assert "in 2 of 2 rounds (an attacker of this experiment: yes): it points elsewhere" in said
    assert note in said


def test_equal_reports_have_equal_bytes(runs: Runs, tmp_path: Path) -> None:
    found = made.results([made.setting()])
    for name in ("one", "two"):
        write_report(tmp_path / name, found, runs)
    assert read(tmp_path / "one") == read(tmp_path / "two")


def test_a_map_that_cannot_be_drawn_is_explained(runs: Runs, tmp_path: Path) -> None:
    for path in (runs["model", "fedapa", 0].folder / "models").iterdir():
        path.unlink()
    page = write_report(tmp_path / "one", made.results([made.setting()]), runs)
    assert "There is no map: " in page.read_text()


@pytest.mark.parametrize(
    ("found", "figures"),
    [
        (made.sweep(), 2),
        (made.sweep(people=False), 2),
        (made.participation(), 2),
        (made.results([made.setting(people=False)]), 2),
        (made.results([made.setting(seeds=[0])]), 2),
        (made.results([made.setting(synthetic=False)]), 2),
    ],
    ids=["sweep", "words", "participation", "categories", "one seed", "real"],
)
def test_parts_that_do_not_apply_are_left_out(found: Results, figures: int, tmp_path: Path) -> None:
    text = write_report(tmp_path, found, {}).read_text()
    check_page(text)
    assert text.count("<svg") == figures
    for word in ("Confusion matrices", "Who learns from whom", "Embedding map", "aside"):
        assert word not in text.partition("</style>")[2]
    assert ("SIMULATED rooms" in text) == found.synthetic
    compared = any(setting.row("fedapa") is not None for setting in found.settings)
    assert ("Differences" in text) == compared
    if not all(isinstance(label, int) for label in found.settings[0].data["classes"]):
        assert "MAE" not in text


def test_rows_without_rounds_do_not_stop_a_report(tmp_path: Path) -> None:
    """Blind rows may have no curve and no bytes."""
    base = made.setting()
    bare = [replace(each, curve={}, bytes=[]) for each in base.rows[-1].outcomes]
    blind = Row(**{**vars(base.rows[-1]), "outcomes": bare})
    found = made.results([replace(base, rows=[*base.rows[:-1], blind])])
    assert "Always the commonest class" in write_report(tmp_path, found, {}).read_text()


def test_rounds_without_a_score_are_gaps_of_a_report_and_null_in_its_data(tmp_path: Path) -> None:
    """Rounds 1 and 4 of the first row, and all of the second's at the first horizon."""
    base = made.setting()
    first, second, *others = base.rows
    early = min(base.horizons)

    def gappy(outcome: Outcome, absent: Sequence[int]) -> Outcome:
        values = outcome.curve["accuracy"]
        curve = [None if at in absent else value for at, value in enumerate(values, start=1)]
        return replace(outcome, curve={"accuracy": curve}, over_rooms=curve)

    holes = [replace(first, outcomes=[gappy(outcome, (1, 4)) for outcome in first.outcomes])]
    silent = []
    for outcome in second.outcomes:
        unknown: dict[str, Any] = {"mean": {}, "std": {}, "rooms": {}}
        at = {**outcome.at, str(early): unknown}
        silent.append(replace(gappy(outcome, range(1, early + 1)), at=at))
    holes.append(replace(second, outcomes=silent))
    for seeds in (3, 1):
        rows = [replace(row, outcomes=row.outcomes[:seeds]) for row in (*holes, *others)]
        results = made.results([replace(base, rows=rows)])
        folder = tmp_path / str(seeds)
        check_page(write_report(folder, results, {}).read_text())
        results.save(folder / "again.json")
        again = Results.load(folder / "again.json")
        assert again.settings[0].rows[0].outcomes[0].curve["accuracy"][0] is None
        assert "NaN" not in (folder / "again.json").read_text()
        assert "nan" not in (folder / "results.md").read_text()


def test_one_index_holds_all_pages(tmp_path: Path) -> None:
    pages = {
        name: (found.title, write_report(tmp_path / name, found, {}))
        for name, found in (("fig8a", made.sweep()), ("table1", made.results([made.setting()])))
    }
    text = write_index(tmp_path, pages).read_text()
    check_page(text)
    assert text.count("<main>") == 1
    assert text.count("<svg") == 4
    for name in pages:
        assert f'href="#{name}"' in text
        assert f'id="{name}"' in text


def test_a_dollar_in_a_name_is_a_dollar() -> None:
    """Matplotlib would read "$1_{x$" as a formula, and fail after all runs are done."""
    odd = replace(made.setting(), data={**made.data(), "source": "R&D $1_{x$ 50 %.h5"})
    assert "$1_{x$" in svg(convergence(odd))


def test_a_room_whose_name_begins_with_a_line_is_in_the_legend(
    make_store: MakeStore, tmp_path: Path
) -> None:
    counts: dict[int | str, int] = {0: 3, 1: 3}
    store = make_store({"_a": counts, "b": counts}, packets=32)
    plan = Plan.of(
        {"rounds": 1, "data": {"file": str(store), "window": 16, "split": "random"}},
        {"model": {"architecture": "tiny", "width": 16}, "training": {"batch_size": 4}},
    )
    figure = weights_over_time(run(plan, out=tmp_path / "run", workers=0))
    assert figure is not None
    (legend,) = [each for part in figure.subfigs for each in part.legends]
    assert [text.get_text().strip() for text in legend.get_texts()][:2] == ["_a", "b"]


def test_lines_across_a_sweep_are_named() -> None:
    found = made.sweep()
    level = dict.fromkeys(found.settings[0].horizons, 0.4)
    blind = made.row("constant", "blind", level, title="Always the commonest class")
    setting = replace(found.settings[0], rows=[*found.settings[0].rows, blind])
    (legend,) = sweep(found, setting).legends
    assert blind.title in {text.get_text() for text in legend.get_texts()}


def test_several_lines_over_words_leave_other_answers_out() -> None:
    """Two lines at "lower" and "upper"; a second answer of a net would bend its line."""
    found = made.participation()
    setting = found.settings[0]
    level = dict.fromkeys(setting.horizons, 0.4)
    rows = [
        replace(made.row(f"{group}-{value}{answer}", group, level), value=value)
        for group in ("Local", "FedJoin")
        for value in ("lower", "upper")
        for answer in ("", ".prototypes")
    ]
    figure = sweep(found, replace(setting, rows=rows))
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["lower", "upper"]
    lines = [container.lines[0] for container in axes.containers]
    assert [len(line.get_xdata()) for line in lines] == [2, 2]


def test_beside_lines_a_method_with_one_value_is_left_to_the_table() -> None:
    found = made.participation()
    setting = found.settings[0]
    level = dict.fromkeys(setting.horizons, 0.4)
    rows = [
        replace(made.row(f"{group}-{value}", group, level), value=value)
        for group, values in (("Local", (1, 2)), ("FedJoin", (1, 2)), ("MOON", (1,)))
        for value in values
    ]
    figure = sweep(found, replace(setting, rows=rows))
    assert [text.get_text() for text in figure.legends[0].texts] == ["Local", "FedJoin"]
    assert "1 method with one value" in " ".join(figure.texts[-1].get_text().split())


def test_the_reference_is_among_the_few_rows_that_are_shown_room_by_room(tmp_path: Path) -> None:
    setting = replace(many(), reference="more-7")
    write_report(tmp_path, made.results([setting]), {})
    rooms = (tmp_path / f"{setting.name}-rooms.tex").read_text()
    assert "Another method 7" in rooms
    assert "FedAvg" in rooms
    few = [row for row in many().rows if row.name in ("fedapa", "local") or row.group == "more"]
    write_report(tmp_path, made.results([replace(many(), rows=few)]), {})
    rooms = (tmp_path / f"{setting.name}-rooms.tex").read_text()
    assert all(f"Another method {number}" in rooms for number in range(3)), "five rows in all"


def test_an_earlier_report_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in (
        "model-overall-15.tex",
        "model-horizons.tex",
        "features-rooms.png",
        "settings.tex",
    ):
        (tmp_path / name).write_text("of other rounds, settings or data")
    (tmp_path / "mine.tex").write_text("not ours")
    write_report(tmp_path, made.results([made.setting()]), {})
    left = {path.name for path in tmp_path.iterdir()}
    assert {"mine.tex", "statistical-horizons.tex"} <= left
    assert not {name for name in left if name.startswith(("model-", "features-", "settings"))}


def test_a_letter_that_no_font_has_is_no_warning() -> None:
    """Warnings are errors here; of a user they would be lines of our source."""
    odd = replace(made.setting(), data={**made.data(), "source": "\U0010fffd.h5"})
    assert "\U0010fffd" in svg(convergence(odd))


def test_fonts_for_other_scripts_come_after_the_usual_one() -> None:
    assert families(["Malgun Gothic", "Arial"]) == ["DejaVu Sans", "Malgun Gothic"]

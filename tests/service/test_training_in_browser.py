"""The training view in a real browser: a run that goes on is followed, and can be read."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fedapa.service.training import training_router
from tests.browser import (
    DESK,
    PHONE,
    check_contrast,
    check_width,
    chromium,
    in_each_scheme,
    opened,
)
from tests.service.telling import Site, Telling, document_of
from tests.service.test_training import begin, record, write

pytestmark = [pytest.mark.browser, pytest.mark.network]

SOON = 20_000
"""ms; a view looks every 3 s, and machines are busy."""
_COLOURS = """() => [...document.querySelectorAll(".training .scatterlayer .js-line")]
  .map(line => getComputedStyle(line).stroke)"""
_SWATCHES = """() => [...document.querySelectorAll(".training .swatch line")]
  .map(line => getComputedStyle(line).stroke)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two of five rounds; the hall was away in the second."""
    folder = begin(tmp_path / "ours")
    away = record(2, missing={"upload": ["hall"]})
    away["server"]["weights"] = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.05, 0.35, 0.6]]
    write(folder, record(1), away)
    return folder


@pytest.fixture
def site(run: Path) -> Iterator[Site]:
    rooms = Telling([document_of("cafe", synthetic=True)])
    with Site(rooms, routers=[training_router(run)]) as started:
        yield started


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_the_view_fits_is_readable_and_asks_this_machine_alone(
    browser: Browser, site: Site, pictures: Path, size: tuple[int, int]
) -> None:
    with opened(browser, f"{site.address}#/training", size=size) as (page, heard):
        expect(page.locator(".training .js-plotly-plot")).to_have_count(3, timeout=SOON)
        answer = page.locator(".training .answer")
        expect(answer).to_contain_text("2 of 5 rounds done: right in 21.0 % of the test windows")
        expect(answer).to_contain_text("off by 2.80 people")
        source = page.locator(".training .note").first
        expect(source).to_contain_text("SIMULATED data: rooms.h5.")
        expect(source).to_contain_text("split day, on days that a room did not train on")
        expect(page.locator(".training .badge")).to_be_visible()
        for scheme in in_each_scheme(page):
            page.screenshot(path=pictures / f"training-{size[0]}-{scheme}.png", full_page=True)
            check_width(page)
            check_contrast(page, skipped=".unseen, noscript, .square svg")
            drawn, named = page.evaluate(_COLOURS), page.evaluate(_SWATCHES)
            assert len(drawn) == 4 and drawn == named, "lines look as the table says"
        heard.check()


def test_a_phone_scrolls_the_table_and_not_the_page(browser: Browser, site: Site) -> None:
    with opened(browser, f"{site.address}#/training", size=PHONE) as (page, _):
        table = page.get_by_role("region", name="Rooms")
        expect(table).to_be_visible(timeout=SOON)
        assert table.evaluate("box => box.scrollWidth > box.clientWidth")
        table.focus()
        page.keyboard.press("ArrowRight")
        while not table.evaluate("box => box.scrollLeft"):  # scrolling is smooth
            page.wait_for_timeout(50)
        first = table.locator("tbody th").first
        inside, box = first.bounding_box(), table.bounding_box()
        assert inside is not None and box is not None
        assert inside["x"] == pytest.approx(box["x"], abs=1)


def test_a_run_that_goes_on_is_followed_to_its_end(browser: Browser, site: Site, run: Path) -> None:
    with opened(browser, site.address) as (page, heard):
        page.get_by_role("link", name="Training").click(timeout=SOON)
        answer = page.locator(".training .answer")
        expect(answer).to_contain_text("2 of 5 rounds done")
        expect(page.locator(".training")).to_contain_text("It has stopped: its process is no more;")
        missing = page.locator("section").filter(has_text="Who was absent")
        expect(missing).to_contain_text("hall")
        expect(missing).to_contain_text("did not answer, so nothing of it was learned")
        write(run, record(3))
        expect(answer).to_contain_text("3 of 5 rounds done: right in 31.0 %", timeout=SOON)
        matrix = page.locator("section").filter(has_text="Who learns from whom")
        expect(matrix).to_contain_text("3 of 3")
        slider = page.get_by_role("slider", name="Round")
        slider.focus()
        page.keyboard.press("ArrowLeft")
        expect(matrix).to_contain_text("2 of 3")
        expect(matrix).to_contain_text("Most between two rooms: lab takes 35 % from hall.")
        page.get_by_role("button", name="MAE", exact=True).click()
        expect(page.get_by_text("MAE, the mean absolute error")).to_be_visible()
        lab = page.get_by_role("button", name="lab")
        lab.press("Enter")
        expect(lab).to_have_attribute("aria-pressed", "true")
        write(run, record(4), record(5))
        (run / "summary.json").write_text("{}")
        expect(page.locator(".training")).to_contain_text("It has finished.", timeout=SOON)
        expect(matrix).to_contain_text("2 of 5")  # where the reader put it
        expect(lab).to_be_focused()
        page.clock.install()
        page.get_by_role("link", name="Rooms", exact=True).click()
        expect(page.locator(".training")).to_have_count(0)
        heard.check()
        asked = len([one for one in heard.requests if one.endswith("api/training")])
        page.clock.fast_forward(60_000)  # twice as long as between two looks at a finished run
        page.wait_for_timeout(1200)  # the view looks at the clock every second
        after = len([one for one in heard.requests if one.endswith("api/training")])
        assert after == asked, "a view that was left asks nobody"


def test_a_page_without_rooms_is_the_training_and_waits_for_it(
    browser: Browser, tmp_path: Path
) -> None:
    with Site(Telling([]), routers=[training_router(tmp_path / "later")]) as site:
        with opened(browser, f"{site.address}#/training") as (page, heard):
            expect(page.get_by_text("No run has begun here yet.")).to_be_visible(timeout=SOON)
            write(begin(tmp_path / "later"), record(1))
            answer = page.locator(".training .answer")
            expect(answer).to_contain_text("1 of 5 rounds done", timeout=SOON)
            heard.check()
        with opened(browser, site.address) as (page, _):
            expect(page.locator(".training")).to_be_visible(timeout=SOON)


def test_names_of_rooms_are_text_and_damage_is_a_sentence(
    browser: Browser, site: Site, run: Path
) -> None:
    odd = "<b onclick=alert(1)>%{y}</b> & co"
    told = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**told, "rooms": {odd: {}, **told["rooms"]}}))
    line = record(3)
    line["rooms"][odd] = line["rooms"]["cafe"]
    write(run, line, end="\nno record\n")
    with opened(browser, f"{site.address}#/training") as (page, heard):
        expect(page.get_by_role("button", name=odd)).to_be_visible(timeout=SOON)
        expect(page.locator(".training .problem")).to_contain_text("line 4 is no record of a round")
        assert page.locator(".training b").count() == 0
        heard.check()

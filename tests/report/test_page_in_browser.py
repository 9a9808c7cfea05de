"""The page of a report as people see it: on a desk and on a phone, light and dark."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from fedapa.report.page import write_report
from tests.browser import PHONE, SCREENS, check_contrast, check_width, chromium, opened
from tests.report import made

pytestmark = pytest.mark.browser

_COVERED = """box => {
  box.scrollLeft = box.scrollWidth;
  const first = box.querySelector("tbody tr .first").getBoundingClientRect();
  return first.left - box.getBoundingClientRect().left;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    published = {"statistical": {"fedapa": {"accuracy": 87.25, "macro_f1": 85.91, "mae": 0.23}}}
    folder = tmp_path_factory.mktemp("report")
    return write_report(folder, made.results(), {}, published=published).as_uri()


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_a_page_fits_is_readable_and_asks_nobody(
    browser: Browser, address: str, size: tuple[int, int], scheme: str, tmp_path: Path
) -> None:
    look = {"size": size, "scheme": scheme}
    with opened(browser, address, **look, picture=tmp_path / "page.png") as (page, heard):
        check_width(page)
        check_contrast(page, skipped="figure")
        heard.check()
        assert heard.requests == [address]


def test_what_is_wider_than_a_phone_scrolls_visibly_and_keeps_its_first_column(
    browser: Browser, address: str
) -> None:
    with opened(browser, address, size=PHONE) as (page, _):
        boxes = page.locator(".wide, figure").all()
        wide = [box for box in boxes if box.evaluate("box => box.scrollWidth > box.clientWidth")]
        tables = [box for box in wide if box.locator("table").count()]
        assert len(tables) > 5 and len(wide) > len(tables)
        for box in wide:
            assert box.evaluate("box => getComputedStyle(box).overflowX") == "auto"
            assert box.get_attribute("tabindex") == "0"
            assert box.get_attribute("aria-label")
        shaded = _pixels(tables[0].screenshot())[:, -2].mean()
        assert shaded < 0.8 * 255, "a shade at the right end says that there is more"
        for box in tables:
            assert box.evaluate(_COVERED) == pytest.approx(0, abs=1)
        plain = _pixels(tables[0].screenshot())[:, -2].mean()
        assert plain > shaded + 20, "at the end there is no more"


def test_a_keyboard_scrolls_a_table(browser: Browser, address: str) -> None:
    with opened(browser, address, size=PHONE) as (page, _):
        table = page.locator(".wide").first
        while not table.evaluate("box => box === document.activeElement"):
            page.keyboard.press("Tab")
            assert not page.evaluate("document.activeElement === document.body")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelector('.wide').scrollLeft > 0")


def test_figures_are_dark_on_a_dark_page(browser: Browser, address: str) -> None:
    with opened(browser, address, scheme="dark") as (page, _):
        figure = page.locator("figure").first
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        pixels = _pixels(figure.screenshot())
        assert ground == "rgb(22, 22, 22)"
        assert np.median(pixels) == 22
        assert pixels.max() > 200, "letters are bright"
    with opened(browser, address) as (page, _):
        assert np.median(_pixels(page.locator("figure").first.screenshot())) == 255


def _pixels(screenshot: bytes) -> np.ndarray:
    """[height, width] from 0, black, to 255, white."""
    return np.asarray(Image.open(io.BytesIO(screenshot)).convert("L"), np.float64)

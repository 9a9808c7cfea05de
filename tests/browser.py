"""A real browser without a window, and what holds for every page that people open."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

__all__ = [
    "DESK",
    "PHONE",
    "SCREENS",
    "Heard",
    "check_contrast",
    "check_width",
    "chromium",
    "in_each_scheme",
    "opened",
]

PHONE, DESK = (390, 844), (1280, 900)
SCREENS = [(size, scheme) for size in (DESK, PHONE) for scheme in ("light", "dark")]
"""Width and height in pixels, and what the reader's system asks for."""
_READABLE = 4.5
"""WCAG 2, level AA."""
_DRAWN = "svg:not(.main-svg)"
"""Figures; the text of live charts is checked."""

_CONTRASTS = """skipped => {
  const parts = colour => {
    const found = colour.match(/[\\d.]+/g).map(Number);
    return [found[0], found[1], found[2], found.length > 3 ? found[3] : 1];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(value => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const over = (top, below) => [0, 1, 2].map(n => top[n] * top[3] + below[n] * (1 - top[3]));
  const ground = element => {
    if (!element) return parts(getComputedStyle(document.body).backgroundColor).slice(0, 3);
    const own = parts(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, ground(element.parentElement));
  };
  const told = [];
  for (const element of document.querySelectorAll("body, body *:not(script, style)")) {
    const text = [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE)
      .map(node => node.textContent.trim()).join("");
    if (!text || !element.checkVisibility() || element.closest(skipped)) continue;
    const behind = ground(element);
    const style = getComputedStyle(element);
    const ink = over(parts(element.closest("svg") ? style.fill : style.color), behind);
    const [dim, bright] = [light(ink), light(behind)].sort((a, b) => a - b);
    told.push([(bright + 0.05) / (dim + 0.05), text.slice(0, 60)]);
  }
  return told;
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium; a test that asks for it is skipped where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed; on Debian: apt-get install chromium")
    quiet = ["background-networking", "component-update", "gpu", "sync"]
    arguments = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Heard:
    """What a page asked for and complained about."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Refuse complaints, and requests that leave this machine."""
        assert self.complaints == []
        outside = [
            address
            for address in self.requests
            if urlsplit(address).scheme not in ("file", "data", "blob")
            and urlsplit(address).hostname != "127.0.0.1"
        ]
        assert outside == []


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    size: tuple[int, int] = DESK,
    scheme: str = "light",
    picture: Path | None = None,
    **settings: Any,
) -> Iterator[tuple[Page, Heard]]:
    """A page on a screen, and what is heard of it; ``picture`` keeps how it looked in the end.

    More settings are those of the reader, e.g. ``timezone_id``.
    """
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        **settings,
    )
    heard = Heard()
    page.on("request", lambda request: heard.requests.append(request.url))
    page.on("pageerror", lambda error: heard.complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            heard.complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    try:
        page.goto(address)
        yield page, heard
        if picture is not None:
            page.screenshot(path=picture, full_page=True)
    finally:
        page.close()


_REDRAWN = """() => [...document.querySelectorAll(".js-plotly-plot .xtick text")]
  .every((text) => getComputedStyle(text).fill === getComputedStyle(document.body).color)"""


def in_each_scheme(page: Page) -> Iterator[str]:
    """The page light and dark, one after the other, with its charts drawn anew: it loads once."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.wait_for_function(_REDRAWN)
        yield scheme


def check_width(page: Page) -> None:
    """The document itself never scrolls sideways."""
    needed, there = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert needed <= there


def check_contrast(page: Page, skipped: str = _DRAWN) -> None:
    """All text can be read but that in ``skipped``, a selector: where the ground is a picture."""
    contrasts = page.evaluate(_CONTRASTS, skipped)
    assert contrasts
    worst, text = min(contrasts)
    assert worst >= _READABLE, text

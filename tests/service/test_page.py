"""The live page in a real browser: what people see, and what they never see."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fastapi import APIRouter
from playwright.sync_api import Browser, Page, expect

from fedapa.service.counter import CounterSettings
from fedapa.service.model_watch import ServedModel
from fedapa.service.serving import RoomServer, ServedRoom
from fedapa.service.sources import Piece, Statistics
from tests.browser import (
    DESK,
    PHONE,
    Heard,
    check_contrast,
    check_width,
    chromium,
    in_each_scheme,
    opened,
)
from tests.service.made import RATE, level_model, packets
from tests.service.telling import Site, Telling, document_of, silent

pytestmark = [pytest.mark.browser, pytest.mark.network]

ZONE = "Asia/Tokyo"
SIMULATED = {"synthetic": True, "true_people": 5, "source": "SIMULATED bus"}
LAST_COUNT = """count => [...document.querySelectorAll(".js-plotly-plot")]
  .some((chart) => chart.data[1]?.y.at(-1) === count)"""
OUTLINED = """() => {
  const style = getComputedStyle(document.activeElement, "::after");
  const own = getComputedStyle(document.activeElement);
  return [style, own].some((each) => each.outlineStyle !== "none" && each.outlineWidth !== "0px");
}"""


expect.set_options(timeout=15_000)  # busy machines are slow, not wrong


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@contextmanager
def visit(
    browser: Browser, address: str, *, outage: bool = False, **look: Any
) -> Iterator[tuple[Page, Heard]]:
    """A visitor in Tokyo. Nothing may leave this machine, and nothing fail but in an outage."""
    with opened(browser, address, timezone_id=ZONE, locale="en-GB", **look) as (page, heard):
        yield page, heard
        if outage:  # what the browser itself says of an address that does not answer
            failed = re.compile("net::ERR_|status of 401")
            heard.complaints = [each for each in heard.complaints if not failed.search(each)]
        heard.check()


def card(page: Page, room: str) -> Any:
    return page.locator(".card", has=page.get_by_role("link", name=room, exact=True))


def six_rooms() -> list[dict[str, Any]]:
    """Every state, simulated or not."""
    twenty = [0.02] * 5 + [0.05, 0.06, 0.09, 0.12, 0.11, 0.1, 0.08, 0.07, 0.06, 0.04, 0.04, 0.03]
    far = "1.9 times as far from every prototype as this room's windows are"
    unsure = {"state": "unsure", "reason": far, "count": 8, "lo": 5, "hi": 13, "confidence": 0.12}
    odd = {"out of order": 12, "64 subcarriers, the model counts 242": 3}
    return [
        document_of("bus", **{**SIMULATED, "count": 4, "lo": 3, "hi": 6, "confidence": 0.62}),
        document_of(
            "classroom",
            **{**SIMULATED, **unsure, "true_people": 11},
            people=list(range(17)),
            belief=twenty,
        ),
        document_of("conference room", **silent()),
        document_of("hotel room", count=1, lo=1, hi=1, confidence=0.97, skipped=odd),
        document_of("living room of a house with a very long name", count=0, lo=0, hi=1),
        document_of("会議室", count=2, lo=2, hi=3),
    ]


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(Telling([document_of("bus"), document_of("cafe")])) as started:
        yield started


# ---- what is said -------------------------------------------------------------------------------


def test_cards_follow_the_events(browser: Browser, site: Site) -> None:
    with visit(browser, site.address) as (page, _):
        bus = card(page, "bus")
        expect(bus.locator(".number")).to_have_text("3")
        expect(bus.locator(".detail")).to_have_text("2 to 4 people confidence 55\u00a0%")
        expect(bus.locator(".state")).to_have_text("counting")
        summary = page.locator(".summary")
        expect(summary).to_have_text("2 rooms: 2 counting. 6 people counted in all.")
        site.service.tell("bus", count=1, lo=1, hi=1, confidence=0.9)
        expect(bus.locator(".number")).to_have_text("1")
        expect(bus.locator(".unit")).to_have_text("person")
        expect(bus.locator(".detail")).to_have_text("1 person confidence 90\u00a0%")
        site.service.tell("bus", state="unsure", reason="the count is less than 10 % probable")
        expect(bus.locator(".state")).to_have_text("unsure: the count is less than 10 % probable")
        site.service.tell("bus", **silent())
        expect(bus.locator(".number")).to_have_text("–")
        expect(bus.locator(".state")).to_have_text("unavailable: no packets for 10 s")
        expect(bus.locator(".detail")).to_be_hidden()
        expect(card(page, "cafe").locator(".number")).to_have_text("3")
        expect(summary).to_contain_text("1 counting, 1 unavailable. 3 people")
        earlier = time.time() - 30  # the clock of the service was set back
        site.service.tell("bus", state="counting", reason="", count=2, lo=2, hi=2, time=earlier)
        expect(bus.locator(".number")).to_have_text("2")


def test_state_changes_are_read_out_and_numbers_are_not(browser: Browser, site: Site) -> None:
    with visit(browser, site.address) as (page, _):
        expect(card(page, "bus").locator(".number")).to_have_text("3")
        read_out = page.get_by_role("status")
        expect(read_out).to_have_attribute("aria-live", "polite")
        site.service.tell("bus", count=5)
        expect(card(page, "bus").locator(".number")).to_have_text("5")
        site.service.tell("cafe", **silent())
        expect(read_out).to_have_text("cafe: unavailable, no packets for 10 s")
        model = {**site.service.rooms["bus"].told["model"], "round": 21}
        site.service.tell("bus", model=model)
        expect(read_out).to_have_text("bus counts with the model of round 21")


def test_simulated_rooms_are_marked_with_their_true_number(browser: Browser) -> None:
    told = [document_of("bus", **SIMULATED), document_of("cafe")]
    with Site(Telling(told)) as site, visit(browser, site.address) as (page, _):
        bus, cafe = card(page, "bus"), card(page, "cafe")
        expect(bus.locator(".badge")).to_have_text("SIMULATED")
        expect(bus.locator(".truth")).to_have_text("5 true")
        expect(cafe.locator(".badge")).to_be_hidden()
        expect(cafe.locator(".truth")).to_be_hidden()
        expect(page.locator("#simulated")).to_contain_text("SIMULATED. 1 of 2 rooms are computed")
        page.get_by_role("link", name="bus").click()
        expect(page.locator("h1 + .badge")).to_be_visible()
        for chart in page.locator(".chart").all():
            expect(chart.locator(".annotation", has_text="SIMULATED")).to_be_visible()
            assert chart.get_attribute("aria-label").startswith("SIMULATED.")


def test_times_are_the_visitors(browser: Browser, site: Site) -> None:
    with visit(browser, site.address) as (page, _):
        there = datetime.fromtimestamp(site.service.started, ZoneInfo(ZONE))
        expect(page.locator("#service")).to_contain_text(f"running since {there:%H:%M}, history")
        expect(card(page, "bus").locator(".age")).to_have_text(re.compile(r"^counted \d+ s ago$"))


def test_what_rooms_are_called_is_never_markup(browser: Browser) -> None:
    name = "<img src=x onerror=alert(1)>"
    told = document_of(name, state="unsure", reason="<b>far</b>", skipped={"<i>odd</i>": 4})
    with Site(Telling([told])) as site, visit(browser, site.address) as (page, _):
        expect(card(page, name).locator(".state")).to_have_text("unsure: <b>far</b>")
        page.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page.get_by_role("rowheader", name="<i>odd</i>")).to_be_visible()
        assert page.locator("main img, main b, main i").count() == 0


# ---- what is never said -------------------------------------------------------------------------


class Trickle:
    """Stands for a source: three people, until it stops."""

    name, ended, synthetic = "test", False, False

    def __init__(self) -> None:
        self.statistics = Statistics()
        self.stopped = False
        self._last: float | None = None

    def poll(self, now: float) -> list[Piece]:
        self._last = now if self._last is None else self._last
        due = 0 if self.stopped else int((now - self._last) * RATE)
        if not due:
            return []
        capture = packets([3] * due, start=self._last + 1 / RATE)
        self._last += due / RATE
        return [Piece(capture, self._last)]

    def close(self) -> None:
        pass


class OneModel:
    """Stands for a watch on a model file that never changes."""

    problem = ""

    def __init__(self) -> None:
        self._new: ServedModel | None = ServedModel(
            level_model(), Path("cafe.safetensors"), "0" * 64, "local", 3
        )

    def newer(self) -> ServedModel | None:
        new, self._new = self._new, None
        return new


def test_a_source_that_stops_turns_its_room_unavailable(browser: Browser) -> None:
    source, watch = Trickle(), OneModel()
    settings = CounterSettings(every=0.5, timeout=2.0)
    room = ServedRoom("cafe", watch, source, settings)  # type: ignore[arg-type]
    server = RoomServer([room])
    with server, Site(server) as site, visit(browser, site.address) as (page, _):
        cafe = card(page, "cafe")
        expect(cafe.locator(".number")).to_have_text("3", timeout=15_000)
        expect(cafe.locator(".state")).to_have_text("counting")
        source.stopped = True
        expect(cafe.locator(".state")).to_contain_text("unavailable: no packets", timeout=15_000)
        expect(cafe.locator(".number")).to_have_text("–")


def test_a_lost_connection_takes_every_count_away(
    browser: Browser, site: Site, pictures: Path
) -> None:
    with visit(browser, site.address, outage=True) as (page, _):
        expect(page.locator(".number")).to_have_text(["3", "3"])
        expect(page.locator("#connection")).to_have_text("live")
        site.down()
        expect(page.locator(".number")).to_have_text(["–", "–"])
        expect(page.locator(".card .word")).to_have_text(["no connection", "no connection"])
        expect(page.locator("#connection")).to_have_text("no connection")
        expect(page.locator("#lost")).to_contain_text("No counts are shown until it is back.")
        expect(page.get_by_role("status")).to_have_text("Connection lost. No counts are shown.")
        expect(page).to_have_title("no connection · Rooms · FedAPA")
        page.screenshot(path=pictures / "lost.png")
        readable(page)
        site.service.tell("bus", count=2)
        again = page.get_by_role("button", name="Try now")
        expect(again).to_be_visible()
        site.up()
        again.evaluate("button => button.click()")  # the page may have been sooner
        expect(page.locator(".number")).to_have_text(["2", "3"])
        expect(page.locator("#lost")).to_be_hidden()
        expect(page.get_by_role("status")).to_have_text("Connected again")


def test_a_connection_that_hangs_is_found_out(browser: Browser, site: Site) -> None:
    """The stream never ends, but nothing is heard for three counts, and nobody answers."""
    with visit(browser, site.address, outage=True) as (page, _):
        page.clock.install()
        page.reload()
        expect(page.locator(".number")).to_have_text(["3", "3"])
        page.route("**/api/rooms", lambda route: route.abort())
        page.clock.fast_forward(200_000)
        expect(page.locator(".number")).to_have_text(["–", "–"])
        expect(page.locator("#connection")).to_have_text("no connection")


def test_a_count_that_nobody_renews_is_taken_away(browser: Browser, site: Site) -> None:
    """The stream is open, but the room's last count is three counts old."""
    site.service.rooms["bus"].told |= {"every": 5.0, "time": time.time() - 12}
    with visit(browser, site.address) as (page, _):
        expect(card(page, "bus").locator(".number")).to_have_text("3")
        expect(card(page, "bus").locator(".number")).to_have_text("–", timeout=10_000)
        expect(card(page, "bus").locator(".state")).to_contain_text("nothing was heard of it for")
        expect(card(page, "cafe").locator(".number")).to_have_text("3")


def test_a_token_that_is_gone_is_asked_for(browser: Browser) -> None:
    token = "a-token-that-nobody-guesses"
    with (
        Site(Telling([document_of("bus")]), token=token) as site,
        visit(browser, f"{site.address}?token={token}", outage=True) as (page, _),
    ):
        expect(page.locator(".number")).to_have_text("3")
        page.context.clear_cookies()
        site.down()
        site.up()
        expect(page.locator("#lost")).to_contain_text("access token")
        expect(page.locator(".number")).to_have_text("–")


# ---- how it looks, and who can use it -----------------------------------------------------------


def readable(page: Page) -> None:
    check_contrast(page)
    check_width(page)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(Telling(six_rooms()), tmp_path_factory.mktemp("history") / "counts.db") as started:
        for room in ("bus", "classroom", "hotel room"):
            started.remember(room, 24.0, simulated=room != "hotel room")
        yield started


@pytest.mark.parametrize("size", [DESK, PHONE], ids=str)
def test_every_view_can_be_read_on_a_desk_and_a_phone_light_and_dark(
    browser: Browser, house: Site, pictures: Path, size: tuple[int, int]
) -> None:
    for told in six_rooms():
        house.service.tell(**told)
    with visit(browser, house.address, size=size) as (page, _):
        expect(page.locator(".card")).to_have_count(6)
        expect(card(page, "bus").locator(".line")).to_have_attribute("d", re.compile("^M.*L"))
        for scheme in in_each_scheme(page):
            page.screenshot(path=pictures / f"rooms-{size[0]}-{scheme}.png", full_page=True)
            readable(page)
        card(page, "classroom").click()
        expect(page.locator(".heatmaplayer image")).to_be_visible()
        expect(page.locator(".scatterlayer .trace").first).to_be_attached()
        expect(page.locator(".barlayer .point").first).to_be_attached()
        for scheme in in_each_scheme(page):
            page.screenshot(path=pictures / f"room-{size[0]}-{scheme}.png", full_page=True)
            readable(page)


@pytest.mark.parametrize("many", [0, 1, 20])
def test_no_room_one_and_twenty(browser: Browser, pictures: Path, many: int) -> None:
    told = [document_of(f"room {number}") for number in range(many)]
    with Site(Telling(told)) as site, visit(browser, site.address) as (page, heard):
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator(".card")).to_have_count(many)
        expect(page.locator(".empty")).to_be_visible(visible=many == 0)
        for width, height in (DESK, PHONE):
            page.set_viewport_size({"width": width, "height": height})
            page.screenshot(path=pictures / f"{many}-rooms-{width}.png", full_page=True)
            readable(page)
        assert not any("plotly" in address for address in heard.requests)


def test_every_card_can_be_reached_by_keyboard_and_back(browser: Browser) -> None:
    names = [f"room {number}" for number in range(20)]
    with (
        Site(Telling([document_of(name) for name in names])) as site,
        visit(browser, site.address) as (page, _),
    ):
        expect(page.locator(".card")).to_have_count(20)
        reached = []
        for _ in range(22):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent"))
            assert page.evaluate(OUTLINED), reached
        assert reached == ["Skip to the rooms", "Rooms", *names]
        for name in (names[18], names[17]):
            page.keyboard.press("Shift+Tab")
            assert page.evaluate("document.activeElement.textContent") == name
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        expect(page.get_by_role("heading", level=1)).to_have_text("room 17")
        expect(page).to_have_title("room 17 · FedAPA")
        tools = []
        for _ in range(5):
            page.keyboard.press("Tab")
            tools.append(page.evaluate("document.activeElement.textContent"))
        assert tools == ["As numbers", "Hour", "Day", "Week", "Pause"]
        for _ in range(6):
            page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="room 17")).to_be_focused()


def test_the_skip_link_leads_past_the_header(browser: Browser, site: Site) -> None:
    with visit(browser, site.address) as (page, _):
        expect(page.locator(".card")).to_have_count(2)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "bus"


# ---- one room -----------------------------------------------------------------------------------


def test_a_room_shows_its_day_its_packets_and_its_model(browser: Browser, house: Site) -> None:
    for told in six_rooms():
        house.service.tell(**told)
    with visit(browser, f"{house.address}#/rooms/hotel%20room") as (page, heard):
        expect(page.locator(".heatmaplayer image")).to_be_visible()
        history, lost, model, waterfall = (
            page.locator("section", has=page.get_by_role("heading", name=name))
            for name in ("Counts over time", "Packets", "Model", "CSI amplitude, live")
        )
        expect(history).to_contain_text("in the last 24 h.")
        for people in (5, 0):  # drawn long before the whole day is asked for again
            house.service.tell("hotel room", count=people, lo=people, hi=people)
            page.wait_for_function(LAST_COUNT, arg=people, timeout=15_000)
        expect(lost).to_contain_text("99.6 packets/s")
        expect(lost.get_by_role("row", name="out of order 12")).to_be_visible()
        expect(lost).to_contain_text("15 (1.2 %)")
        expect(model).to_contain_text("Round20")
        page.get_by_role("button", name="Hour").click()
        expect(history).to_contain_text("in the last 60 min.")
        house.service.tell("hotel room", count=2, lo=1, hi=3, belief=[0, 0.1, 0.8, 0.1, 0, 0])
        expect(page.locator(".now .number")).to_have_text("2")
        page.get_by_text("As numbers").click()
        expect(page.get_by_role("row", name="2 80\u00a0%")).to_be_visible()
        expect(page.locator("[aria-label^='Most probable: 2 people 80']")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        expect(waterfall).to_contain_text("Paused at")
        page.wait_for_timeout(300)
        before = len([address for address in heard.requests if "waterfall" in address])
        page.wait_for_timeout(1500)  # it is asked for every second
        assert before == len([address for address in heard.requests if "waterfall" in address])


def test_without_history_the_room_shows_what_was_heard(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.address}#/rooms/bus") as (page, _):
        words = page.locator("section").filter(has_text="Counts over time")
        first = site.service.rooms["bus"].told["time"]  # not that at which the chart begins
        since = f"{datetime.fromtimestamp(first, ZoneInfo(ZONE)):%H:%M}"
        expect(words).to_contain_text(f"3 people since {since}. History is not kept:")


def test_an_address_of_no_room_says_so(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.address}#/rooms/attic") as (page, _):
        expect(page.get_by_text('There is no room "attic" here.')).to_be_visible()
        page.get_by_role("link", name="All rooms").click()
        expect(page.locator(".card")).to_have_count(2)


@pytest.mark.parametrize("followed", [True, False])
def test_training_is_offered_where_a_run_is_followed(browser: Browser, followed: bool) -> None:
    router = APIRouter()
    router.add_api_route("/api/training", lambda: {"runs": []})
    told = [document_of("bus")]
    with (
        Site(Telling(told), routers=[router] if followed else []) as site,
        visit(browser, site.address) as (page, _),
    ):
        with page.expect_response("**/api/training"):
            expect(page.locator(".card")).to_have_count(1)
        expect(page.get_by_role("link", name="Training")).to_be_visible(visible=followed)

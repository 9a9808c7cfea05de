// Every room as a card: its count now, and the last hour as a small chart drawn by hand, so that
// cards are there at once and without the chart library.

import { drawing, element, say, set } from "./element.js";
import { Panel } from "./panel.js";
import { clock, plural } from "./words.js";

const HOUR = 3600;
const POINTS = 180;
const AT_ONCE = 3; // browsers open six connections to one host, and the stream has one of them
const GAP = 90;
const SHORTEST = 300; // s that a chart shows at least
const [WIDTH, HEIGHT] = [240, 48];

/** Fills `main` with cards; answers with what ends it. */
export function showRooms(main, live) {
  const cards = new Map();
  const heading = element("h1", { tabindex: "-1" }, "Rooms");
  const summary = element("p", { class: "summary" });
  const list = element("ul", { class: "cards" });
  const empty = element(
    "div",
    { class: "empty" },
    element("p", {}, "No rooms are served yet."),
    element("p", { class: "note" }, "A room comes with a trained model and a source of packets: ", element("code", {}, "fedapa serve --run RUN --source simulator")),
  );
  main.replaceChildren(heading, summary, list, empty);
  let waiting = [];
  let asking = 0;

  const arrange = () => {
    for (const [name, card] of cards) {
      if (!live.rooms.has(name)) {
        card.node.remove();
        cards.delete(name);
      }
    }
    for (const name of live.rooms.keys()) {
      if (cards.has(name)) continue;
      const card = new Card(name);
      cards.set(name, card);
      list.append(card.node);
      if (live.connection === "open") waiting.push(name);
      card.update(live);
    }
    summarise();
    fetchNext();
  };
  const fetchNext = () => {
    while (asking < AT_ONCE && waiting.length > 0) {
      const card = cards.get(waiting.shift());
      if (card === undefined) continue;
      asking += 1;
      card.load(live).finally(() => {
        asking -= 1;
        fetchNext();
      });
    }
  };
  const summarise = () => {
    empty.hidden = live.rooms.size > 0 || live.service === null;
    summary.hidden = live.rooms.size === 0;
    say(summary, summaryOf(live));
  };
  const update = (event) => {
    cards.get(event.detail)?.hear(live);
    summarise();
  };
  const second = () => {
    for (const card of cards.values()) card.update(live);
    summarise();
  };
  const connection = () => {
    if (live.connection === "open") waiting = [...cards.keys()];
    second();
    fetchNext();
  };

  arrange();
  return listening(live, { rooms: arrange, count: update, second, connection });
}

/** Listens until the function that it answers with is called. */
export function listening(live, heard) {
  for (const [what, listener] of Object.entries(heard)) live.addEventListener(what, listener);
  return () => {
    for (const [what, listener] of Object.entries(heard)) live.removeEventListener(what, listener);
  };
}

/** "6 rooms: 4 counting, 1 unsure, 1 unavailable. 12 people counted." */
function summaryOf(live) {
  if (live.connection !== "open") return `${plural(live.rooms.size, "room", "rooms")}: no connection, so no counts.`;
  const views = [...live.rooms.keys()].map((name) => live.view(name));
  const states = ["counting", "unsure", "unavailable"]
    .map((state) => [views.filter((view) => view.state === state).length, state])
    .filter(([many]) => many > 0)
    .map(([many, state]) => `${many} ${state}`);
  const counted = views.filter((view) => view.count !== null);
  const total = counted.reduce((sum, view) => sum + view.count, 0);
  const told = counted.length > 0 ? ` ${plural(total, "person", "people")} counted in all.` : "";
  return `${plural(views.length, "room", "rooms")}: ${states.join(", ")}.${told}`;
}

class Card {
  constructor(name) {
    this.name = name;
    this.panel = new Panel();
    this.chart = new Sparkline();
    this.badge = element("span", { class: "badge", hidden: true }, "SIMULATED");
    const link = element("a", { href: `#/rooms/${encodeURIComponent(name)}` }, name);
    const head = element("div", { class: "head" }, element("h2", {}, link), this.badge);
    const [count, detail, state, age] = this.panel.nodes;
    this.node = element("li", { class: "card" }, head, count, detail, state, this.chart.node, age);
  }

  update(live) {
    const view = live.view(this.name);
    set(this.node, "data-state", view.state);
    this.badge.hidden = !view.synthetic;
    this.panel.update(view, live);
    this.chart.draw(live.now());
  }

  /** A document of this room came. */
  hear(live) {
    this.chart.add(live.rooms.get(this.name).points.at(-1));
    this.update(live);
  }

  /** The last hour, as the service has kept it. */
  async load(live) {
    try {
      this.chart.take(await live.history(this.name, live.now() - HOUR, POINTS));
    } catch {
      return; // the chart goes on with what it hears; the connection has its own words
    }
    this.chart.draw(live.now());
  }
}

/** The last hour: the count as a line, its interval as a band, simulated people as dashes. */
class Sparkline {
  #points = [];
  #drawn = 0;

  constructor() {
    this.band = drawing("path", { class: "band" });
    this.truth = drawing("path", { class: "true-line" });
    this.line = drawing("path", { class: "line" });
    this.svg = drawing(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": "Nothing yet" },
      drawing("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      this.band,
      this.truth,
      this.line,
    );
    this.top = element("span", { class: "top" });
    this.from = element("span");
    this.node = element(
      "div",
      { class: "hour" },
      element("div", { class: "scale", "aria-hidden": "true" }, this.top, element("span", {}, "0")),
      this.svg,
      element("div", { class: "hours", "aria-hidden": "true" }, this.from, element("span", {}, "now")),
    );
  }

  take(points) {
    this.#points = points;
    this.#drawn = 0;
  }

  add(point) {
    if (point.time === this.#points.at(-1)?.time) return;
    this.#points.push(point);
    this.#drawn = 0;
  }

  draw(now) {
    if (Math.abs(now - this.#drawn) < 10) return;
    this.#drawn = now;
    this.#points = this.#points.filter((point) => point.time >= now - HOUR);
    const since = begin(this.#points, now, HOUR);
    const last = this.#points.at(-1);
    const holds = last && now - last.time < GAP; // until something else is heard
    const points = holds ? [...this.#points, { ...last, time: now }] : this.#points;
    const top = Math.max(1, ...points.map((point) => Math.max(point.hi ?? 0, point.truth ?? 0)));
    const x = (point) => (WIDTH * (point.time - since)) / (now - since);
    const y = (value) => HEIGHT - 2 - ((HEIGHT - 4) * value) / top;
    const rows = unbroken(points, (point) => point.count);
    set(this.line, "d", rows.map((row) => steps(row.map((point) => [x(point), y(point.count)]))).join(""));
    set(this.band, "d", rows.map((row) => `${steps(row.map((p) => [x(p), y(p.hi)]))}${steps(row.map((p) => [x(p), y(p.lo)]), true)}Z`).join(""));
    const truth = unbroken(points, (point) => point.truth);
    set(this.truth, "d", truth.map((row) => steps(row.map((point) => [x(point), y(point.truth)]))).join(""));
    say(this.top, top);
    say(this.from, clock(since, { precise: false }));
    const counts = points.filter((point) => point.count !== null).map((point) => point.count);
    const range = `between ${Math.min(...counts)} and ${plural(Math.max(...counts), "person", "people")}`;
    const told = counts.length > 0 ? `${range} counted` : "no counts";
    set(this.svg, "aria-label", `Since ${clock(since, { precise: false })}: ${told}`);
  }
}

/** Where a chart begins: so many seconds ago, or with the first count of a young service. */
export function begin(points, now, seconds) {
  const first = points[0]?.time ?? now;
  return Math.min(Math.max(first, now - seconds), now - Math.min(SHORTEST, seconds));
}

/** Rows of points that have a value, broken where one has none or a gap is. */
function unbroken(points, value) {
  const rows = [];
  let before = null;
  for (const point of points) {
    if (value(point) !== null && value(point) !== undefined) {
      if (before === null || point.time - before > GAP) rows.push([]);
      rows.at(-1).push(point);
      before = point.time;
    } else before = null;
  }
  return rows;
}

/** A line that holds each value until the next; backwards, to close a band. */
function steps(places, backwards = false) {
  const corners = places.flatMap(([x, y], place) => (place === 0 ? [[x, y]] : [[x, places[place - 1][1]], [x, y]]));
  if (backwards) corners.reverse();
  const written = corners.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`);
  return (backwards ? "L" : "M") + written.join("L");
}

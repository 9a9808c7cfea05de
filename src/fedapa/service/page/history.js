// Counts of a room over an hour, a day or a week.

import { begin } from "./cards.js";
import { colour, forget, paint } from "./charts.js";
import { element, say, section, set } from "./element.js";
import { clock, number, people, percent, span } from "./words.js";

const SPANS = [
  { name: "Hour", seconds: 3600, again: 60 },
  { name: "Day", seconds: 86400, again: 300 },
  { name: "Week", seconds: 604800, again: 900 },
];
const POINTS = 500;
const EMPTY = { count: null, lo: null, hi: null, truth: null, state: "unavailable" };

/** The chart, with buttons for the time that it shows. */
export class HistoryChart {
  #span = SPANS[1];
  #history = null;
  #asked = 0;
  #stale = false; // whether more is known than is drawn

  constructor(live, name) {
    this.live = live;
    this.name = name;
    this.words = element("p", { class: "note" });
    this.legend = element("ul", { class: "legend", "aria-label": "Legend" });
    this.chart = element("div", { class: "chart" });
    this.buttons = SPANS.map((each) => element("button", { type: "button", "aria-pressed": String(each === this.#span) }, each.name));
    this.buttons.forEach((button, place) => button.addEventListener("click", () => this.#choose(place)));
    const group = element("div", { class: "buttons", role: "group", "aria-label": "Time shown" }, ...this.buttons);
    this.node = section("Counts over time", [group], this.words, this.legend, this.chart);
  }

  /** Asks again if it is time to, or draws what was heard meanwhile. */
  second() {
    if (Date.now() / 1000 - this.#asked >= this.#span.again) this.load();
    else if (this.#stale) this.draw();
  }

  /** A document of the room came: the chart goes on with it, without asking for all of it again. */
  hear() {
    const history = this.#history;
    const point = this.live.rooms.get(this.name)?.points.at(-1);
    const last = history?.points.at(-1);
    if (history === null || point === undefined || point.time <= (last?.time ?? 0)) return;
    const { points, chosen } = history;
    const part = (history.until - history.since) / POINTS; // as the service has it: one count of each
    if (points.length > 1 && point.time - points.at(-2).time < part) points.pop();
    points.push(point);
    const now = this.live.now();
    const news = ["count", "lo", "hi", "state", "truth"].some((key) => point[key] !== last?.[key]);
    if (!news && now - history.until < part) return; // nobody could see it
    history.since = begin(points, now, chosen.seconds);
    history.until = now;
    while (points[0].time < history.since) points.shift();
    this.#stale = true;
  }

  stop() {
    forget(this.chart);
  }

  #choose(place) {
    this.#span = SPANS[place];
    this.buttons.forEach((button, other) => set(button, "aria-pressed", String(other === place)));
    this.#history = null;
    this.load();
  }

  /** Asks for the counts of the time that is chosen. */
  async load() {
    this.#asked = Date.now() / 1000;
    const chosen = this.#span;
    const until = this.live.now();
    try {
      const points = await this.live.history(this.name, until - chosen.seconds, POINTS);
      if (chosen !== this.#span) return; // another button was pressed
      this.#history = { points, since: begin(points, until, chosen.seconds), until, chosen };
    } catch {
      if (this.#history === null) say(this.words, "The history did not come; it is asked for again.");
      return;
    }
    this.draw();
  }

  /** Draws what came last, e.g. in other colours. */
  draw() {
    const history = this.#history;
    if (history === null || !this.live.rooms.has(this.name)) return;
    this.#stale = false;
    const words = summaryOf(history, this.live.service);
    say(this.words, words);
    const points = withGaps(history);
    const times = points.map((point) => local(point.time));
    const of = (key) => points.map((point) => point[key]);
    const step = { shape: "hv", width: 2 };
    const unsure = points.filter((point) => point.state === "unsure");
    const [bandTimes, bandEdges] = band(points);
    const traces = [
      {
        x: bandTimes,
        y: bandEdges,
        mode: "lines",
        line: { width: 0 },
        fill: "toself",
        fillcolor: colour("band"),
        hoverinfo: "skip",
      },
      {
        x: times,
        y: of("count"),
        mode: "lines",
        line: { ...step, color: colour("accent") },
        hovertemplate: "%{x|%H:%M:%S}: %{y} counted<extra></extra>",
      },
      {
        x: unsure.map((point) => local(point.time)),
        y: unsure.map((point) => point.count),
        mode: "markers",
        marker: { symbol: "circle-open", size: 6, color: colour("unsure") },
        hovertemplate: "%{x|%H:%M:%S}: %{y}, unsure<extra></extra>",
      },
    ];
    const simulated = points.some((point) => point.truth !== null);
    if (simulated) {
      traces.push({
        x: times,
        y: of("truth"),
        mode: "lines",
        line: { ...step, color: colour("amber"), dash: "dot" },
        hovertemplate: "%{x|%H:%M:%S}: %{y} true<extra></extra>",
      });
    }
    const entries = ["counted", "interval", ...(unsure.length > 0 ? ["unsure"] : []), ...(simulated ? ["true"] : [])];
    this.legend.replaceChildren(...entries.map((name) => element("li", { class: name }, name)));
    const top = Math.max(4, ...points.map((point) => Math.max(point.hi ?? 0, point.truth ?? 0)));
    paint(this.chart, traces, {
      label: words,
      simulated: this.live.view(this.name).synthetic,
      height: 300,
      xaxis: { type: "date", range: [local(history.since), local(history.until)], showgrid: false, nticks: 6 },
      yaxis: { title: { text: "people" }, range: [-0.2, top + 0.5], dtick: top > 8 ? null : 1, nticks: 6 },
    });
  }
}

/** Points of a history, with an empty one in each gap, so that no line bridges it. */
function withGaps({ points, chosen }) {
  const longest = Math.max(90, (4 * chosen.seconds) / POINTS);
  return points.flatMap((point, place) => {
    const before = points[place - 1];
    const gap = before && point.time - before.time > longest;
    return gap ? [{ ...EMPTY, time: before.time + 1 }, point] : [point];
  });
}

/** The intervals of each unbroken row of counts as one outline, rows apart by an empty point. */
function band(points) {
  const times = [];
  const edges = [];
  const close = (row) => {
    const upper = row.flatMap(({ time, hi }, place) => (place === 0 ? [[time, hi]] : [[time, row[place - 1].hi], [time, hi]]));
    const lower = row.flatMap(({ time, lo }, place) => (place === 0 ? [[time, lo]] : [[time, row[place - 1].lo], [time, lo]]));
    for (const [time, edge] of [...upper, ...lower.reverse()]) {
      times.push(local(time));
      edges.push(edge);
    }
    times.push(null);
    edges.push(null);
  };
  let row = [];
  for (const point of [...points, EMPTY]) {
    if (point.count !== null) row.push(point);
    else if (row.length > 0) {
      close(row);
      row = [];
    }
  }
  return [times, edges];
}

/** What a history shows, in a sentence or two. */
function summaryOf({ points, since, until, chosen }, service) {
  const young = until - since < 0.95 * chosen.seconds;
  const began = Math.max(since, points[0]?.time ?? since); // a chart shows five minutes at least
  const when = young ? `since ${clock(began, { precise: false })}` : `in the last ${span(chosen.seconds)}`;
  const lacking = service.history.startsWith("kept")
    ? ""
    : ` History is ${service.history}. What is shown began when this page was opened.`;
  const counted = points.filter((point) => point.count !== null);
  if (counted.length === 0) return `No counts ${when}.${lacking}`;
  const counts = counted.map((point) => point.count);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const range = least === most ? `${most} ${people(most)}` : `${least} to ${most} people, ${number(mean(counts))} on average,`;
  const missing = points.length - counted.length;
  const silent = missing > 0 ? ` Unavailable at ${percent(missing / points.length)} of the points.` : "";
  const off = counted.filter((point) => point.truth !== null).map((point) => Math.abs(point.count - point.truth));
  const error = off.length > 0 ? ` SIMULATED: ${number(mean(off))} people off on average.` : "";
  return `${range} ${when}.${silent}${error}${lacking}`;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The visitor's local time as Plotly reads it; it shows what it reads and knows no zones. */
function local(seconds) {
  const time = new Date(1000 * seconds);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

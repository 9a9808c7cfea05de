// One room: its count, the day, the amplitude of its CSI as it comes, probabilities, packets, model.

import { colour, draw, forget, onScheme } from "./charts.js";
import { begin, listening } from "./cards.js";
import { element, say, set } from "./element.js";
import { ask } from "./live.js";
import { Panel } from "./panel.js";
import { clock, number, people, percent, plural, span, whole } from "./words.js";

const SPANS = [
  { name: "Hour", seconds: 3600, again: 10 },
  { name: "Day", seconds: 86400, again: 60 },
  { name: "Week", seconds: 604800, again: 300 },
];
const POINTS = 500;
const WATERFALL = 20;
const NARROWEST = 6; // dB that the colours span at least, or noise would look like motion
const EMPTY = { count: null, lo: null, hi: null, truth: null, state: "unavailable" };
const MODEL = {
  algorithm: "Algorithm",
  round: "Round",
  hash: "Hash of its file",
  path: "File",
  classes: "Counts that it knows",
};

/** Fills `main` with a room; answers with what ends it. */
export function showRoom(main, live, name) {
  const view = new RoomView(live, name);
  main.replaceChildren(...view.nodes);
  view.start();
  return () => view.stop();
}

class RoomView {
  #ends = [];
  #span = SPANS[1];
  #history = null;
  #asked = 0;
  #paused = false;
  #rows = null;
  #looking = false;

  constructor(live, name) {
    this.live = live;
    this.name = name;
    this.panel = new Panel();
    this.raw = element("p", { class: "note" });
    this.problem = element("p", { class: "problem", hidden: true });
    this.badge = element("span", { class: "badge", hidden: true }, "SIMULATED");
    this.unknown = element("p", { class: "empty", hidden: true }, `There is no room "${name}" here.`);
    this.now = element("section", { class: "card now", "aria-label": "Now" }, ...this.panel.nodes, this.raw, this.problem);

    this.spans = SPANS.map((each) => element("button", { type: "button", "aria-pressed": String(each === this.#span) }, each.name));
    this.dayWords = element("p", { class: "note" });
    this.day = element("div", { class: "chart" });
    this.legend = element("ul", { class: "legend", "aria-label": "Legend" });

    this.probabilities = element("div", { class: "chart" });
    this.numbers = element("tbody");
    this.numbersSeen = element("details", {}, element("summary", {}, "As numbers"), table(["people", "probability"], this.numbers));

    this.pause = element("button", { type: "button", "aria-pressed": "false" }, "Pause");
    this.waterfallWords = element("p", { class: "note" });
    this.waterfall = element("div", { class: "chart" });

    this.packets = element("dl");
    this.losses = element("tbody");
    this.lossesSeen = table(["skipped because", "packets"], this.losses);
    this.model = element("dl");
    this.modelProblem = element("p", { class: "problem" });

    this.body = element(
      "div",
      { class: "sections" },
      this.now,
      section("How probable each count is", [], this.probabilities, this.numbersSeen),
      section("Counts over time", [element("div", { class: "buttons", role: "group", "aria-label": "Time shown" }, ...this.spans)], this.dayWords, this.legend, this.day),
      section("CSI amplitude, live", [element("div", { class: "buttons" }, this.pause)], this.waterfallWords, this.waterfall),
      section("Packets", [], this.packets, this.lossesSeen),
      section("Model", [], this.model, this.modelProblem),
    );
    this.nodes = [
      element("p", { class: "back" }, element("a", { href: "#/" }, "← All rooms")),
      element("div", { class: "head" }, element("h1", { tabindex: "-1" }, name), this.badge),
      this.unknown,
      this.body,
    ];
  }

  start() {
    const known = () => this.#known();
    this.#ends.push(
      listening(this.live, {
        rooms: known,
        count: (event) => event.detail === this.name && this.#update(),
        second: () => this.#second(),
        connection: () => this.#connection(),
      }),
      onScheme(() => this.#redraw()),
    );
    this.spans.forEach((button, place) => button.addEventListener("click", () => this.#choose(place)));
    this.pause.addEventListener("click", () => this.#hold());
    this.#known();
    this.#second();
  }

  stop() {
    for (const end of this.#ends) end();
    for (const chart of [this.day, this.probabilities, this.waterfall]) forget(chart);
  }

  #known() {
    const known = this.live.rooms.has(this.name);
    this.body.hidden = !known;
    this.unknown.hidden = known || this.live.service === null;
    if (known) this.#update();
  }

  #connection() {
    this.#asked = 0;
    this.#known();
    this.#second();
  }

  /** Every second: ages, and what has to be asked for again. */
  #second() {
    if (!this.live.rooms.has(this.name)) return;
    this.#words();
    if (this.live.connection !== "open" || document.hidden) return;
    if (Date.now() / 1000 - this.#asked >= this.#span.again) this.#loadHistory();
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!this.#paused && (!calm || Math.round(this.live.now()) % 5 === 0)) this.#look();
  }

  #view() {
    return this.live.view(this.name);
  }

  #words() {
    const view = this.#view();
    set(this.now, "data-state", view.state);
    this.badge.hidden = !view.synthetic;
    this.panel.update(view, this.live);
    this.raw.hidden = view.raw === null;
    if (view.raw !== null) say(this.raw, `The last window alone says ${view.raw}.`);
    this.problem.hidden = !view.problem;
    say(this.problem, view.problem ?? "");
    this.#describe(view);
    if (view.state === "lost") say(this.waterfallWords, "No connection.");
  }

  #update() {
    this.#words();
    this.#drawProbabilities();
  }

  #redraw() {
    this.#drawProbabilities();
    this.#drawHistory();
    this.#drawWaterfall();
  }

  #describe(view) {
    const facts = [
      ["Source", view.source ?? "–"],
      ["Rate", view.rate === null || view.rate === undefined ? "–" : `${number(view.rate)} packets/s`],
      ["Received", view.packets === undefined ? "–" : plural(view.packets, "packet", "packets")],
    ];
    const skipped = Object.entries(view.skipped ?? {}).sort((a, b) => b[1] - a[1]);
    const lost = skipped.reduce((sum, [, many]) => sum + many, 0);
    const all = (view.packets ?? 0) + lost;
    facts.push(["Skipped", lost === 0 ? "none" : `${whole(lost)} (${share(lost, all)})`]);
    facts.push(["A count every", `${number(view.every ?? 5)} s`]);
    list(this.packets, facts);
    this.lossesSeen.hidden = skipped.length === 0;
    rows(this.losses, skipped.map(([reason, many]) => [reason, whole(many)]));
    const model = Object.entries(MODEL).map(([key, term]) => [term, view.model?.[key] ?? null]);
    list(this.model, model.filter(([, value]) => value !== null).map(([term, value]) => [term, [value].flat().join(", ")]));
    say(this.modelProblem, view.model ? (view.model_problem ?? "") : "There is no model yet.");
  }

  #drawProbabilities() {
    const view = this.#view();
    const shares = view.belief ?? [];
    const counts = view.people ?? [];
    const truth = view.true_people ?? null;
    rows(this.numbers, counts.map((count, place) => [String(count), percent(shares[place])]));
    this.numbersSeen.hidden = counts.length === 0;
    const label = counts.length === 0 ? "No probabilities: there is no count." : `Most probable: ${[...counts.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 3).map((place) => `${counts[place]} ${people(counts[place])} ${percent(shares[place])}`).join(", ")}.`;
    const bars = {
      type: "bar",
      x: counts,
      y: shares.map((value) => 100 * value),
      marker: {
        color: counts.map((count) => (count === view.count ? colour("accent") : colour("faint"))),
        line: { width: 0 },
      },
      hovertemplate: "%{x} people: %{y:.1f} %<extra></extra>",
    };
    const lines = truth === null ? [] : [{ type: "line", x0: truth, x1: truth, y0: 0, y1: 1, yref: "paper", line: { color: colour("amber"), width: 2, dash: "dot" } }];
    const about = [
      counts.length > 0 && { text: "counted", x: view.count, y: 100 * Math.max(...shares.filter((_, place) => counts[place] === view.count), 0), yanchor: "bottom", showarrow: false, font: { color: colour("accent") } },
      truth !== null && counts.length > 0 && { text: `true: ${truth}`, x: truth, y: 0.98, yref: "paper", xanchor: truth > counts.at(-1) / 2 ? "right" : "left", showarrow: false, font: { color: colour("amber-ink") } },
    ].filter(Boolean);
    const highest = Math.max(10, ...bars.y);
    paint(this.probabilities, [bars], {
      label,
      simulated: view.synthetic,
      shapes: counts.length > 0 ? lines : [],
      annotations: about,
      height: 230,
      xaxis: { title: { text: "people" }, dtick: counts.length > 13 ? 2 : 1, range: [-0.6, (counts.at(-1) ?? 10) + 0.6], showgrid: false },
      yaxis: { title: { text: "%" }, range: [0, Math.min(112, highest * 1.25)], nticks: 5 },
    });
  }

  #choose(place) {
    this.#span = SPANS[place];
    this.spans.forEach((button, other) => set(button, "aria-pressed", String(other === place)));
    this.#history = null;
    this.#loadHistory();
  }

  async #loadHistory() {
    this.#asked = Date.now() / 1000;
    const chosen = this.#span;
    const until = this.live.now();
    try {
      const points = await this.live.history(this.name, until - chosen.seconds, POINTS);
      if (chosen !== this.#span) return; // another button was pressed
      this.#history = { points, since: begin(points, until, chosen.seconds), until, chosen };
    } catch {
      if (this.#history === null) say(this.dayWords, "The history did not come; it is asked for again.");
      return;
    }
    this.#drawHistory();
  }

  #drawHistory() {
    const history = this.#history;
    if (history === null || !this.live.rooms.has(this.name)) return;
    const words = summaryOf(history, this.live.service);
    say(this.dayWords, words);
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
    paint(this.day, traces, {
      label: words,
      simulated: this.#view().synthetic,
      height: 300,
      xaxis: { type: "date", range: [local(history.since), local(history.until)], showgrid: false, nticks: 6 },
      yaxis: { title: { text: "people" }, range: [-0.2, top + 0.5], dtick: top > 8 ? null : 1, nticks: 6 },
    });
  }

  #hold() {
    this.#paused = !this.#paused;
    set(this.pause, "aria-pressed", String(this.#paused));
    if (!this.#paused) this.#look();
    else if (this.#rows) say(this.waterfallWords, `Paused at ${clock(this.#rows.until)}.`);
  }

  async #look() {
    if (this.#looking) return;
    this.#looking = true;
    try {
      const { content } = await ask(`rooms/${encodeURIComponent(this.name)}/waterfall?seconds=${WATERFALL}`);
      if (!this.#paused) {
        this.#rows = recent(content, this.live.now());
        this.#drawWaterfall();
      }
    } catch {
      say(this.waterfallWords, "The amplitudes did not come; they are asked for again.");
    } finally {
      this.#looking = false;
    }
  }

  #drawWaterfall() {
    const seen = this.#rows;
    if (seen === null || !this.waterfall.isConnected) return;
    const { levels } = seen;
    const none = levels.length === 0 || seen.subcarriers.length === 0;
    const words = none ? `No packets in the last ${WATERFALL} s.` : `The last ${WATERFALL} s, ${seen.subcarriers.length} subcarriers: people who move are bands that change.`;
    say(this.waterfallWords, words);
    const [lowest, highest] = range(levels);
    const heatmap = {
      type: "heatmap",
      x: seen.times.map((time) => time - seen.until),
      y: seen.subcarriers,
      z: seen.subcarriers.map((_, place) => levels.map((row) => row[place])), // (subcarriers, times)
      zmin: lowest,
      zmax: highest,
      colorscale: "Viridis",
      colorbar: { title: { text: "dB", side: "right" }, thickness: 8, len: 1, xpad: 6, outlinewidth: 0, tickfont: { color: colour("ink") } },
      hovertemplate: "%{x:.1f} s, subcarrier %{y}: %{z:.1f} dB<extra></extra>",
    };
    paint(this.waterfall, none ? [] : [heatmap], {
      label: none ? words : `${words} Amplitude from ${number(lowest)} to ${number(highest)} dB.`,
      simulated: this.live.rooms.has(this.name) && this.#view().synthetic,
      height: 280,
      xaxis: { title: { text: "seconds from now" }, range: [-WATERFALL, 0], showgrid: false },
      yaxis: { title: { text: "subcarrier" }, showgrid: false },
    });
  }
}

/** Draws, or says that it cannot. */
function paint(node, traces, options) {
  draw(node, traces, options).catch((error) => {
    node.removeAttribute("role");
    say(node, `No chart: ${error.message}.`);
  });
}

function section(title, tools, ...children) {
  return element("section", { class: "card" }, element("div", { class: "head" }, element("h2", {}, title), ...tools), ...children);
}

function table(titles, body) {
  const heads = titles.map((title) => element("th", { scope: "col" }, title));
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
}

/** Fills a table's body in place. */
function rows(body, texts) {
  while (body.rows.length > texts.length) body.lastChild.remove();
  texts.forEach(([head, value], place) => {
    const row = body.rows[place] ?? body.appendChild(element("tr", {}, element("th", { scope: "row" }), element("td")));
    say(row.cells[0], head);
    say(row.cells[1], value);
  });
}

/** Fills a list of facts in place. */
function list(node, facts) {
  while (node.children.length > facts.length) node.lastChild.remove();
  facts.forEach(([term, value], place) => {
    const pair = node.children[place] ?? node.appendChild(element("div", {}, element("dt"), element("dd")));
    say(pair.children[0], term);
    say(pair.children[1], value);
  });
}

const share = (part, all) => (part / all < 0.001 ? "under 0.1 %" : `${number((100 * part) / all)} %`);

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
  const when = young ? `since ${clock(since, { precise: false })}` : `in the last ${span(chosen.seconds)}`;
  const lacking = service.history.startsWith("kept")
    ? ""
    : ` History is ${service.history}. What is shown began when this page was opened.`;
  const counted = points.filter((point) => point.count !== null);
  if (counted.length === 0) return `No counts ${when}.${lacking}`;
  const counts = counted.map((point) => point.count);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const range = least === most ? `${most} ${people(most)}` : `${least} to ${most} people, ${number(mean(counts))} on average,`;
  const missing = points.length - counted.length;
  const silent = missing > 0 ? ` Unavailable ${percent(missing / points.length)} of the time.` : "";
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

/** Of a waterfall the packets of the last seconds; a source that stopped has none. */
function recent({ times, subcarriers, amplitude_db: levels }, until) {
  const kept = [...times.keys()].filter((place) => times[place] > until - WATERFALL - 1);
  return { until, subcarriers, times: kept.map((place) => times[place]), levels: kept.map((place) => levels[place]) };
}

/** From the 2nd to the 98th percentile: a single spoilt packet must not darken the rest. */
function range(levels) {
  const all = levels.flat().filter(Number.isFinite).sort((a, b) => a - b);
  if (all.length === 0) return [0, NARROWEST];
  const [low, high] = [all[Math.floor(0.02 * (all.length - 1))], all[Math.ceil(0.98 * (all.length - 1))]];
  const middle = (low + high) / 2;
  const half = Math.max(NARROWEST, high - low) / 2;
  return [middle - half, middle + half];
}

// One room: its count, the day, the amplitude of its CSI as it comes, probabilities, packets, model.

import { listening } from "./cards.js";
import { colour, forget, onScheme, paint } from "./charts.js";
import { element, say, section, set } from "./element.js";
import { HistoryChart } from "./history.js";
import { Panel } from "./panel.js";
import { WaterfallChart } from "./waterfall.js";
import { number, people, percent, plural, whole } from "./words.js";

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

  constructor(live, name) {
    this.live = live;
    this.name = name;
    this.panel = new Panel();
    this.raw = element("p", { class: "note" });
    this.problem = element("p", { class: "problem", hidden: true });
    this.badge = element("span", { class: "badge", hidden: true }, "SIMULATED");
    this.unknown = element("p", { class: "empty", hidden: true }, `There is no room "${name}" here.`);
    this.now = element("section", { class: "card now", "aria-label": "Now" }, ...this.panel.nodes, this.raw, this.problem);

    this.history = new HistoryChart(live, name);
    this.waterfall = new WaterfallChart(live, name);

    this.probabilities = element("div", { class: "chart" });
    this.numbers = element("tbody");
    this.numbersSeen = element("details", {}, element("summary", {}, "As numbers"), table(["people", "probability"], this.numbers));

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
      this.history.node,
      this.waterfall.node,
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
    this.#ends.push(
      listening(this.live, {
        rooms: () => this.#known(),
        count: (event) => event.detail === this.name && this.#update(),
        second: () => this.#second(),
        connection: () => this.#connection(),
      }),
      onScheme(() => this.#redraw()),
    );
    this.#known();
    this.#second();
  }

  stop() {
    for (const end of this.#ends) end();
    this.history.stop();
    this.waterfall.stop();
    forget(this.probabilities);
  }

  #known() {
    const known = this.live.rooms.has(this.name);
    this.body.hidden = !known;
    this.unknown.hidden = known || this.live.service === null;
    if (known) this.#update();
  }

  #connection() {
    this.#known();
    if (this.live.connection === "open" && this.live.rooms.has(this.name)) this.history.load();
    this.#second();
  }

  /** Every second: ages, and what has to be asked for again. */
  #second() {
    if (!this.live.rooms.has(this.name)) return;
    this.#words();
    if (this.live.connection !== "open" || document.hidden) return;
    this.history.second();
    this.waterfall.second();
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
    if (view.state === "lost") this.waterfall.lose();
  }

  #update() {
    this.#words();
    this.#drawProbabilities();
    this.history.hear();
  }

  #redraw() {
    if (!this.live.rooms.has(this.name)) return;
    this.#drawProbabilities();
    this.history.draw();
    this.waterfall.draw();
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
    const likeliest = [...counts.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 3);
    const told = likeliest.map((place) => `${counts[place]} ${people(counts[place])} ${percent(shares[place])}`);
    const label = told.length > 0 ? `Most probable: ${told.join(", ")}.` : "No probabilities: there is no count.";
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
    const shapes = [];
    const annotations = [];
    if (counts.length > 0) {
      const height = bars.y[counts.indexOf(view.count)];
      annotations.push({ text: "counted", x: view.count, y: height, yanchor: "bottom", showarrow: false, font: { color: colour("accent") } });
    }
    if (counts.length > 0 && truth !== null) {
      const side = truth > counts.at(-1) / 2 ? "right" : "left";
      const line = { color: colour("amber"), width: 2, dash: "dot" };
      shapes.push({ type: "line", x0: truth, x1: truth, y0: 0, y1: 1, yref: "paper", line });
      annotations.push({ text: `true: ${truth}`, x: truth, y: 0.98, yref: "paper", xanchor: side, showarrow: false, font: { color: colour("amber-ink") } });
    }
    const highest = Math.max(10, ...bars.y);
    paint(this.probabilities, [bars], {
      label,
      simulated: view.synthetic,
      shapes,
      annotations,
      height: 230,
      xaxis: { title: { text: "people" }, dtick: counts.length > 13 ? 2 : 1, range: [-0.6, (counts.at(-1) ?? 10) + 0.6], showgrid: false },
      yaxis: { title: { text: "%" }, range: [0, Math.min(112, highest * 1.25)], nticks: 5 },
    });
  }

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

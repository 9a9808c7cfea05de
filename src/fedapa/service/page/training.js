// The training view: how a federated run goes, round after round, while it is written.

import { colour, draw, forget, onScheme } from "./charts.js";
import { drawing, element, say, set } from "./element.js";
import { clock, number, plural, span, whole } from "./words.js";

const OFTEN = 3; // s between two looks at a run that goes on
const SELDOM = 30; // at one that has ended, which may be made longer
const SLOWEST_ANSWER = 10000;
const COLOURS = 8;
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const STROKES = ["", "5 3", "1.5 2.5", "5 2 1.5 2", "9 3"];
const MARKED = 40; // rounds up to which each one has a dot
const NUMBERED = 8; // rooms up to which the matrix has numbers in it
const LISTED = 12; // absences that are listed at once
const METRICS = {
  accuracy: {
    name: "Accuracy",
    axis: "% of test windows",
    scale: 100,
    words: (value) => `${(100 * value).toFixed(1)}\u00a0%`,
    about: "Accuracy is the share of test windows whose most probable class is right.",
  },
  mae: {
    name: "MAE",
    axis: "people",
    scale: 1,
    words: (value) => value.toFixed(2),
    about: "MAE, the mean absolute error, is how many people the answer is off by on average.",
  },
  loss: {
    name: "Loss",
    axis: "loss",
    scale: 1,
    words: (value) => value.toFixed(2),
    about: "The loss is what rooms minimise on their train windows. Where λ warms up, as FedAPA's does, it rises at first.",
  },
};
const SPLITS = {
  day: "on days that a room did not train on",
  later: "on the last days of a room, after those that it trained on",
  recording: "on recordings that a room did not train on",
  blocked: "on other parts of recordings that a room trained on",
  random: "on windows that may lie beside train windows, which flatters",
};

/** Fills `parent` with the view and follows the run until it is taken out; answers with what ends it. */
export async function showTraining(parent) {
  const view = new TrainingView();
  parent.replaceChildren(view.root);
  await style(); // charts have its colours
  await view.look();
  view.follow();
  return () => view.stop();
}

class TrainingView {
  #told = null;
  #drawn = "";
  #metric = "accuracy";
  #chosen = null; // the room whose line stands out
  #round = null; // of the matrix; null: always the last
  #matrices = new Map();
  #ended = false;
  #endScheme = () => {};

  constructor() {
    this.badge = element("span", { class: "badge", hidden: true }, "SIMULATED");
    this.answer = element("p", { class: "answer" });
    this.progress = element("progress", { "aria-label": "Rounds done", max: 1, value: 0 });
    this.source = element("p", { class: "note" });
    this.age = element("p", { class: "note" });
    this.problem = element("p", { class: "problem", role: "status" });

    this.metrics = Object.entries(METRICS).map(([name, about]) => element("button", { type: "button", "data-metric": name, "aria-pressed": String(name === this.#metric) }, about.name));
    this.about = element("p", { class: "note" });
    this.curves = element("div", { class: "chart" });
    this.rooms = element("tbody");
    this.hint = element("p", { class: "note" });

    this.matrixWords = element("p", { class: "note" });
    this.slider = element("input", { type: "range", id: "training-round", min: 0, max: 0, step: 1 });
    this.sliderWords = element("output", { for: "training-round" });
    this.sliderSeen = element("div", { class: "slider" }, element("label", { for: "training-round" }, "Round"), this.slider, this.sliderWords);
    this.matrix = element("div", { class: "chart square" });
    this.pairs = element("tbody");
    this.pairsSeen = element("details", {}, element("summary", {}, "As numbers"), scrolling("Weights between rooms", this.pairs));
    this.learning = section("Who learns from whom", [], this.matrixWords, this.sliderSeen, this.matrix, this.pairsSeen);

    this.bytesWords = element("p", { class: "note" });
    this.bytes = element("div", { class: "chart" });
    this.directions = element("ul", { class: "legend", "aria-label": "Legend" }, element("li", { class: "up" }, "up, from rooms"), element("li", { class: "down" }, "down, to rooms"));
    this.absentWords = element("p", {});
    this.absences = element("tbody");
    this.absentSeen = scrolling("Absences", this.absences, ["Round", "Rooms", "Why"]);
    this.absentSeen.classList.add("listing");

    const heads = ["Room", "Accuracy", "Guessing", "MAE", "Loss", "Last round"];
    this.body = element(
      "div",
      { class: "parts", hidden: true },
      section("Room by room", [element("div", { class: "buttons", role: "group", "aria-label": "What the curves show" }, ...this.metrics)], this.about, this.curves, scrolling("Rooms", this.rooms, heads), this.hint),
      this.learning,
      element("div", { class: "side" }, section("What travels", [], this.bytesWords, this.directions, this.bytes), section("Who was absent", [], this.absentWords, this.absentSeen)),
    );
    this.root = element(
      "div",
      { class: "training" },
      element("div", { class: "head" }, element("h1", { tabindex: "-1" }, "Training"), this.badge),
      this.answer,
      this.progress,
      this.source,
      this.age,
      this.problem,
      this.body,
    );
    for (const button of this.metrics) button.addEventListener("click", () => this.#show(button.dataset.metric));
    this.slider.addEventListener("input", () => this.#choose(Number(this.slider.value)));
    this.rooms.addEventListener("click", (event) => this.#highlight(event.target.closest("button")));
  }

  /** Looks again and again; a page that nobody sees is left alone. */
  async follow() {
    this.#endScheme = onScheme(() => this.#draw(true));
    while (!this.#ended) {
      await new Promise((done) => setTimeout(done, 1000));
      if (!this.root.isConnected) this.stop();
      if (this.#ended || document.hidden) continue;
      this.#tellAge();
      const wait = this.#told?.finished ? SELDOM : OFTEN;
      if (Date.now() / 1000 - this.asked >= wait) await this.look();
    }
  }

  stop() {
    this.#ended = true;
    this.#endScheme();
    for (const chart of [this.curves, this.matrix, this.bytes]) forget(chart);
  }

  /** Asks once, and shows what is new. */
  async look() {
    this.asked = Date.now() / 1000;
    let told = null;
    try {
      told = await asked("api/training");
    } catch (error) {
      const since = this.#told === null ? "" : ` What is shown was true at ${clock(this.heard)}.`;
      say(this.problem, `${error.message}${since} It is asked for again.`);
      return;
    }
    this.heard = this.asked;
    const another = told?.run !== this.#told?.run || told?.rounds_done < this.#told?.rounds_done;
    if (another) this.#matrices.clear(); // another run, or this one begun again from an earlier round
    say(this.problem, told?.problem ?? "");
    this.#told = told;
    this.body.hidden = this.progress.hidden = told === null;
    this.badge.hidden = told === null || !told.synthetic;
    if (told === null) {
      say(this.answer, "No run has begun here yet. This view waits for one.");
      say(this.source, "");
      say(this.age, "");
      return;
    }
    this.#words(told);
    await this.#draw(false);
  }

  // ---- words ------------------------------------------------------------------------------------

  #words(told) {
    say(this.answer, answerOf(told));
    if (told.rounds_total === null) this.progress.hidden = true;
    set(this.progress, "max", told.rounds_total ?? 1);
    set(this.progress, "value", told.rounds_done);
    const many = told.rooms_total > told.rooms.length ? `; curves of the first ${told.rooms.length}` : "";
    const split = SPLITS[told.split] ? `, ${SPLITS[told.split]}` : "";
    say(this.source, `Run ${told.run}: ${told.algorithm}, ${plural(told.rooms_total, "room", "rooms")}${many}. ${told.synthetic ? "SIMULATED" : "Real"} data: ${told.data}. Accuracy and MAE are of test windows at the end of each round (split ${told.split}${split}), seed ${told.seed ?? "unknown"}.`);
    this.#tellAge();
    this.#tellRooms(told);
    this.#tellAbsent(told);
    this.metrics.find((button) => button.dataset.metric === "mae").hidden = told.mae === null;
  }

  #tellAge() {
    const told = this.#told;
    if (told === null) return;
    const ago = told.updated === null ? "" : `The last round ended ${span(Math.max(0, Date.now() / 1000 - told.updated))} ago. `;
    const states = {
      finished: `It has finished. ${ago}`,
      training: told.updated === null ? "The first round goes on; its figures come with the exchange after it." : `${ago}Figures of a round come with the exchange after it.`,
      paused: `It is paused: ${told.reason}.`,
      failed: `It has failed: ${told.reason}.`,
      stopped: `It has stopped: ${told.reason}. ${ago}`,
    };
    say(this.age, states[told.state].trim());
  }

  #tellRooms(told) {
    const last = (column) => column?.findLast((value) => value !== null) ?? null;
    const words = (metric, value) => (value === null || value === undefined ? "–" : METRICS[metric].words(value));
    const rows = told.rooms.map((room, place) => {
      const scored = told.rounds[told.accuracy[room].findLastIndex((value) => value !== null)];
      return [
        element("button", { type: "button", class: "room", "data-room": room, "aria-pressed": String(room === this.#chosen) }, swatch(place), room),
        words("accuracy", last(told.accuracy[room])),
        words("accuracy", told.floor?.rooms[room]?.accuracy),
        words("mae", last(told.mae?.[room])),
        words("loss", last(told.loss[room])),
        scored === undefined ? "none yet" : String(scored),
      ];
    });
    const end = told.rounds.length - 1;
    const mean = (name) => words(name, end < 0 ? null : told.mean[name][end]);
    rows.push([element("span", { class: "room" }, swatch(null), "mean over rooms"), mean("accuracy"), words("accuracy", told.floor?.accuracy), mean("mae"), mean("loss"), end < 0 ? "–" : String(told.rounds[end])]);
    fill(this.rooms, rows);
    const guessing = told.floor === null ? "" : "Guessing is the better of always the commonest class and a draw by class frequencies. ";
    say(this.hint, `${guessing}Press a room to let its line stand out.`);
  }

  #tellAbsent(told) {
    const listed = told.absent.toReversed().slice(0, LISTED);
    const all = told.rounds.length === 0 ? "No round has ended yet." : "All rooms took part in every round.";
    const more = told.absent.length > listed.length ? ` The last ${listed.length} of ${whole(told.absent.length)}:` : "";
    const rounds = new Set(told.absent.map((one) => one.round)).size;
    say(this.absentWords, told.absent.length === 0 ? all : `Somebody was missing in ${plural(rounds, "round", "rounds")}.${more}`);
    this.absentSeen.hidden = told.absent.length === 0;
    fill(this.absences, listed.map((one) => [String(one.round), one.rooms.join(", "), one.reason]));
  }

  // ---- charts -----------------------------------------------------------------------------------

  #show(metric) {
    this.#metric = metric;
    for (const button of this.metrics) set(button, "aria-pressed", String(button.dataset.metric === metric));
    this.#drawCurves();
  }

  #highlight(button) {
    if (button === null) return;
    this.#chosen = this.#chosen === button.dataset.room ? null : button.dataset.room;
    for (const each of this.rooms.querySelectorAll("button")) set(each, "aria-pressed", String(each.dataset.room === this.#chosen));
    this.#drawCurves();
  }

  /** All charts, where the run has more to show than before or `again` asks for it. */
  async #draw(again) {
    const told = this.#told;
    if (told === null) return;
    const key = JSON.stringify([told.run, told.rounds_done, told.updated, told.state, told.floor === null]);
    if (key === this.#drawn && !again) return;
    this.#drawn = key;
    await Promise.all([this.#drawCurves(), this.#drawBytes(), this.#drawMatrix()]);
  }

  async #drawCurves() {
    const told = this.#told;
    const { name, axis, scale, words, about } = METRICS[this.#metric];
    const columns = told[this.#metric] ?? {};
    const floor = told.floor?.[this.#metric] ?? null;
    say(this.about, about + (floor === null ? "" : ` The dotted line is guessing, ${words(floor)}.`));
    const mode = told.rounds.length <= MARKED ? "lines+markers" : "lines";
    const traces = told.rooms.map((room, place) => ({
      x: told.rounds,
      y: scaled(columns[room], scale),
      mode,
      opacity: this.#chosen === null || this.#chosen === room ? 1 : 0.25,
      line: { color: hue(place), dash: DASHES[Math.floor(place / COLOURS) % DASHES.length], width: this.#chosen === room ? 4 : 2 },
      marker: { size: 5 },
      hovertemplate: `${plain(room)}, round %{x}: %{y:.2f}<extra></extra>`,
    }));
    traces.push({
      x: told.rounds,
      y: scaled(told.mean[this.#metric], scale),
      mode: "lines",
      line: { color: colour("ink"), width: 4 },
      opacity: this.#chosen === null ? 0.9 : 0.25,
      hovertemplate: "mean over rooms, round %{x}: %{y:.2f}<extra></extra>",
    });
    const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: scale * floor, y1: scale * floor, line: { color: colour("quiet"), width: 2, dash: "dot" } };
    const end = told.mean[this.#metric]?.at(-1) ?? null;
    const shown = told.mean[this.#metric] === undefined ? [] : traces.flatMap((trace) => trace.y.filter((value) => value !== null));
    await draw(this.curves, traces, {
      label: end === null ? `${name}: no round has ended yet.` : `${name} of ${plural(told.rooms.length, "room", "rooms")} over ${plural(told.rounds_done, "round", "rounds")}; the mean is ${words(end)} now.`,
      simulated: told.synthetic,
      height: 320,
      shapes: floor === null ? [] : [line],
      xaxis: { title: { text: "round" }, range: [0.5, Math.max(told.rounds_done, 1) + 0.5], showgrid: false, ...ticksOf(told.rounds_done) },
      yaxis: { title: { text: axis }, range: [0, 1.08 * Math.max(scale * (floor ?? 0), ...shown, scale / 1000)], nticks: 6 },
    });
  }

  async #drawBytes() {
    const told = this.#told;
    const { up, down } = told.bytes;
    const [unit, size] = unitOf(Math.max(1, ...up.map((value, place) => value + down[place])));
    const total = told.bytes_total;
    const words = up.length === 0 ? "No round has ended yet." : `In the last round ${bytes(up.at(-1))} up and ${bytes(down.at(-1))} down, all rooms together; ${bytes(total.up + total.down)} in ${plural(told.rounds_done, "round", "rounds")}.`;
    say(this.bytesWords, words);
    const bars = (name, values, shade) => ({
      type: "bar",
      x: told.rounds,
      y: values.map((value) => value / size),
      marker: { color: shade, line: { width: 0 } },
      hovertemplate: `round %{x}: %{y:.3~g} ${unit} ${name}<extra></extra>`,
    });
    await draw(this.bytes, [bars("up", up, colour("room-1")), bars("down", down, colour("room-0"))], {
      label: words,
      simulated: told.synthetic,
      height: 260,
      barmode: "stack",
      xaxis: { title: { text: "round" }, range: [0.4, Math.max(told.rounds_done, 1) + 0.6], showgrid: false, ...ticksOf(told.rounds_done) },
      yaxis: { title: { text: `${unit} per round` }, nticks: 5, rangemode: "tozero" },
    });
  }

  /** The matrix of a place on the slider; at its end it follows the run. */
  #choose(place) {
    const rounds = this.#told.weights_rounds;
    this.#round = place >= rounds.length - 1 ? null : rounds[place];
    this.#drawMatrix();
  }

  async #drawMatrix() {
    const told = this.#told;
    this.learning.hidden = told.weights === null;
    if (told.weights === null) return;
    const rounds = told.weights_rounds;
    if (!rounds.includes(this.#round)) this.#round = null;
    this.#matrices.set(told.weights.round, told.weights);
    const wanted = this.#round ?? told.weights.round;
    set(this.slider, "max", rounds.length - 1);
    this.slider.value = String(rounds.indexOf(wanted));
    set(this.slider, "aria-valuetext", `after round ${wanted}`);
    say(this.sliderWords, `${wanted} of ${told.rounds_done}`);
    this.sliderSeen.hidden = rounds.length < 2;
    try {
      if (!this.#matrices.has(wanted)) this.#matrices.set(wanted, await asked(`api/training/weights?round=${wanted}`));
    } catch (error) {
      say(this.matrixWords, error.message);
      return;
    }
    if (wanted !== (this.#round ?? this.#told.weights?.round)) return; // the slider went on
    const { rooms, matrix } = this.#matrices.get(wanted);
    const strongest = strongestOf(rooms, matrix);
    const shares = matrix.every((row) => Math.abs(row.reduce((sum, share) => sum + share, 0) - 1) < 0.01);
    say(this.matrixWords, `A row is the room that takes, a column the room that it takes from${shares ? "; a row adds up to 100 %" : ""}. ${strongest}`);
    const places = rooms.map((_, place) => place);
    const few = rooms.length <= NUMBERED;
    const most = Math.max(...matrix.flat(), 0.01);
    const numbers = !few ? [] : matrix.flatMap((row, y) => row.map((share, x) => ({ x, y, text: whole(100 * share), showarrow: false, font: { size: 12, color: inkOn(share / most) } })));
    const heatmap = {
      type: "heatmap",
      x: places,
      y: places,
      z: matrix.map((row) => row.map((share) => 100 * share)),
      zmin: 0,
      zmax: 100 * most,
      colorscale: [[0, colour("least")], [1, colour("most")]],
      customdata: rooms.map((taker) => rooms.map((giver) => `${plain(taker)} takes from ${plain(giver)}`)),
      hovertemplate: "%{customdata}: %{z:.1f} %<extra></extra>",
      showscale: !few,
      colorbar: { ticksuffix: " %", thickness: 12, tickfont: { color: colour("ink") } },
      xgap: 1,
      ygap: 1,
    };
    const ticks = { tickmode: "array", tickvals: places, ticktext: rooms.map((room) => plain(shortened(room))), showgrid: false, linewidth: 0, ticks: "", tickfont: { size: Math.max(7, Math.min(12, 480 / rooms.length)) } };
    await draw(this.matrix, [heatmap], {
      label: `Weights between rooms after round ${wanted}. ${strongest}`,
      simulated: told.synthetic,
      height: Math.min(640, 130 + 44 * rooms.length),
      annotations: numbers,
      xaxis: { ...ticks, tickangle: -40 },
      yaxis: { ...ticks, autorange: "reversed" },
    });
    fill(this.pairs, matrix.map((row, place) => [rooms[place], ...row.map((share) => `${(100 * share).toFixed(1)} %`)]));
    heads(this.pairs.parentElement, ["takes from →", ...rooms]);
  }
}

/** The run in a sentence: how far, how good, and what guessing would reach. */
function answerOf(told) {
  const far = told.rounds_total === null ? `round ${whole(told.rounds_done)}, no last one planned` : `${whole(told.rounds_done)} of ${plural(told.rounds_total, "round", "rounds")} done`;
  const accuracy = told.mean.accuracy.findLast((value) => value !== null);
  if (accuracy === undefined) return `${far}: no room has a score yet.`;
  const error = told.mean.mae.findLast((value) => value !== null);
  const people = told.mae === null || error === undefined ? "" : ` and off by ${error.toFixed(2)} people`;
  const guess = told.floor?.accuracy;
  const floor = guess === null || guess === undefined ? "" : `; guessing reaches ${METRICS.accuracy.words(guess)}`;
  return `${far[0].toUpperCase()}${far.slice(1)}: right in ${METRICS.accuracy.words(accuracy)} of the test windows${people}, mean over rooms${floor}.`;
}

/** The largest weight between two different rooms, in words. */
function strongestOf(rooms, matrix) {
  let best = null;
  matrix.forEach((row, taker) => row.forEach((share, giver) => {
    if (taker !== giver && (best === null || share > best.share)) best = { share, taker, giver };
  }));
  if (best === null) return "There is one room only.";
  return `Most between two rooms: ${rooms[best.taker]} takes ${number(100 * best.share)} % from ${rooms[best.giver]}.`;
}

/** An answer of the API, null where it has no content; raises with a sentence. */
async function asked(path) {
  let answer = null;
  try {
    answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(SLOWEST_ANSWER) });
  } catch {
    throw new Error("The service does not answer.");
  }
  if (answer.status === 204) return null;
  if (answer.ok) return answer.json();
  const detail = await answer.json().then((told) => told.detail, () => null);
  throw new Error(typeof detail === "string" ? `${detail}.` : `The service answers with an error (${answer.status}).`);
}

// ---- small things -------------------------------------------------------------------------------

function section(title, tools, ...children) {
  return element("section", { class: "card" }, element("div", { class: "head" }, element("h2", {}, title), ...tools), ...children);
}

/** A table that scrolls by itself where it is wider than the page, by keyboard, too. */
function scrolling(label, body, titles = []) {
  const table = element("table", {}, element("thead"), body);
  heads(table, titles);
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, table);
}

function heads(table, titles) {
  table.tHead.replaceChildren(element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title))));
}

/** Rows of text and elements. Where nothing but words changed, the nodes stay, and so does the focus. */
function fill(body, rows) {
  const same = body.rows.length === rows.length && rows.every((row, place) => body.rows[place].cells.length === row.length);
  if (!same) {
    body.replaceChildren(...rows.map((row) => element("tr", {}, ...row.map((cell, column) => element(column === 0 ? "th" : "td", { scope: column === 0 ? "row" : null }, cell)))));
    return;
  }
  rows.forEach((row, place) => row.forEach((cell, column) => {
    const there = body.rows[place].cells[column];
    if (typeof cell === "string") say(there, cell);
    else if (there.textContent !== cell.textContent) there.replaceChildren(cell);
  }));
}

/** The look of a room's line; of the mean's where it has no place. */
function swatch(place) {
  const line = { x1: 1, x2: 25, y1: 5, y2: 5 };
  if (place === null) return drawing("svg", { class: "swatch mean", viewBox: "0 0 26 10", "aria-hidden": "true" }, drawing("line", line));
  const stroke = { ...line, "stroke-dasharray": STROKES[Math.floor(place / COLOURS) % STROKES.length] || null };
  return drawing("svg", { class: `swatch hue-${place % COLOURS}`, viewBox: "0 0 26 10", "aria-hidden": "true" }, drawing("line", stroke));
}

/** Black or white, what can be read where the colours of the matrix are so far from least to most. */
function inkOn(share) {
  const [least, most] = ["least", "most"].map((name) => colour(name).match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16)));
  const [r, g, b] = least.map((value, place) => (value + share * (most[place] - value)) / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff"; // there both have 4.6:1
}

/** Rounds are whole: of few each has its tick. */
const ticksOf = (rounds) => (rounds <= 12 ? { tick0: 1, dtick: 1 } : { nticks: 10 });
const hue = (place) => colour(`room-${place % COLOURS}`);
const scaled = (column, scale) => (column ?? []).map((value) => (value === null ? null : scale * value));
const shortened = (name) => (name.length <= 16 ? name : `…${name.slice(-15)}`);

/** Plotly reads some markup in texts; names of rooms are none. */
const plain = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]).replaceAll("%{", "% {");

function unitOf(most) {
  return most < 1e3 ? ["B", 1] : most < 1e6 ? ["KB", 1e3] : most < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
}

function bytes(many) {
  const [unit, size] = unitOf(many);
  return `${number(many / size)} ${unit}`;
}

/** Its style sheet, once; without it the view is plain, and works. */
function style() {
  const address = new URL("training.css", import.meta.url).href;
  if ([...document.styleSheets].some((sheet) => sheet.href === address)) return null;
  const link = element("link", { rel: "stylesheet", href: address });
  return new Promise((done) => {
    link.addEventListener("load", done);
    link.addEventListener("error", done);
    document.head.append(link);
  });
}

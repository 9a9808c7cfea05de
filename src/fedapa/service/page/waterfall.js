// The amplitude of a room's CSI as it comes: a picture of the last seconds that can be held.

import { colour, forget, paint } from "./charts.js";
import { element, say, section, set } from "./element.js";
import { ask } from "./live.js";
import { clock, number } from "./words.js";

const WATERFALL = 20; // s
const CALM = 5; // s between two pictures where the visitor wants less motion
const NARROWEST = 6; // dB that the colours span at least, or noise would look like motion

/** The picture, with a button that holds it. */
export class WaterfallChart {
  #paused = false;
  #rows = null;
  #looking = false;

  constructor(live, name) {
    this.live = live;
    this.name = name;
    this.words = element("p", { class: "note" });
    this.chart = element("div", { class: "chart" });
    this.pause = element("button", { type: "button", "aria-pressed": "false" }, "Pause");
    this.pause.addEventListener("click", () => this.#hold());
    const buttons = element("div", { class: "buttons" }, this.pause);
    this.node = section("CSI amplitude, live", [buttons], this.words, this.chart);
  }

  /** Looks again, unless it is held. */
  second() {
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const due = !calm || this.#rows === null || this.live.now() - this.#rows.until >= CALM;
    if (!this.#paused && due) this.#look();
  }

  /** Says that nothing comes. */
  lose() {
    say(this.words, "No connection.");
  }

  stop() {
    forget(this.chart);
  }

  #hold() {
    this.#paused = !this.#paused;
    set(this.pause, "aria-pressed", String(this.#paused));
    if (!this.#paused) this.#look();
    else this.draw();
  }

  async #look() {
    if (this.#looking) return;
    this.#looking = true;
    try {
      const { content } = await ask(`rooms/${encodeURIComponent(this.name)}/waterfall?seconds=${WATERFALL}`);
      if (!this.#paused) {
        this.#rows = recent(content, this.live.now());
        this.draw();
      }
    } catch {
      say(this.words, "The amplitudes did not come; they are asked for again.");
    } finally {
      this.#looking = false;
    }
  }

  /** Draws what came last, e.g. in other colours. */
  draw() {
    const seen = this.#rows;
    if (seen === null || !this.chart.isConnected) return;
    const { levels } = seen;
    const none = levels.length === 0 || seen.subcarriers.length === 0;
    const words = none
      ? `No packets in the last ${WATERFALL} s.`
      : `The last ${WATERFALL} s, ${seen.subcarriers.length} subcarriers, against the median of each packet. What moves in the room changes the pattern.`;
    say(this.words, this.#paused ? `Paused at ${clock(seen.until)}.` : words);
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
    paint(this.chart, none ? [] : [heatmap], {
      label: none ? words : `${words} Amplitude from ${number(lowest)} to ${number(highest)} dB.`,
      simulated: this.live.rooms.has(this.name) && this.live.view(this.name).synthetic,
      height: 280,
      xaxis: { title: { text: "seconds from now" }, range: [-WATERFALL, 0], showgrid: false },
      yaxis: { title: { text: "subcarrier" }, showgrid: false },
    });
  }
}

/** Of a waterfall the packets of the last seconds, against the median of each: a receiver sets its
 * gain anew with every packet, which would hide what people do. A source that stopped has none. */
function recent({ times, subcarriers, amplitude_db: levels }, until) {
  const kept = [...times.keys()].filter((place) => times[place] > until - WATERFALL - 1);
  const levelled = (row, middle = median(row)) => row.map((level) => level - middle);
  return { until, subcarriers, times: kept.map((place) => times[place]), levels: kept.map((place) => levelled(levels[place])) };
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1];
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

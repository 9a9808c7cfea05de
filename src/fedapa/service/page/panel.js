// How many people are in a room, as a card and a room's view both show it.

import { element, say, set } from "./element.js";
import { clock, interval, people, percent, span, STATES } from "./words.js";

/** The count with its interval, confidence, state and age; `update` fills it in. */
export class Panel {
  constructor() {
    this.count = element("span", { class: "number" });
    this.unit = element("span", { class: "unit" });
    this.truth = element("strong");
    this.simulated = element("span", { class: "truth" }, this.truth, " true");
    this.interval = element("span");
    this.confidence = element("span");
    this.detail = element("p", { class: "detail" }, this.interval, " ", this.confidence);
    this.word = element("strong", { class: "word" });
    this.reason = element("span", { class: "reason" });
    this.age = element("p", { class: "age note" });
    this.nodes = [
      element("p", { class: "count" }, this.count, " ", this.unit, " ", this.simulated),
      this.detail,
      element("p", { class: "state" }, element("span", { class: "sign", "aria-hidden": "true" }), this.word, this.reason),
      this.age,
    ];
  }

  /** `view` is what `Live.view` says of the room, `live` knows the time. */
  update(view, live) {
    const counted = view.count !== null;
    say(this.count, counted ? view.count : "–");
    set(this.count, "aria-label", counted ? null : "no count");
    set(this.count, "role", counted ? null : "img"); // a dash is read as "dash", or not at all
    say(this.unit, counted ? people(view.count) : "no count");
    set(this.unit, "aria-hidden", counted ? null : "true");
    const known = view.true_people ?? null;
    this.simulated.hidden = known === null;
    if (known !== null) say(this.truth, known);
    this.detail.hidden = !counted;
    if (counted) {
      say(this.interval, interval(view.lo, view.hi));
      say(this.confidence, `confidence ${percent(view.confidence)}`);
    }
    say(this.word, STATES[view.state]);
    say(this.reason, view.reason ? `: ${view.reason}` : "");
    say(this.age, age(view, live));
  }
}

function age(view, live) {
  if (view.state === "lost") return `last heard of at ${clock(view.time)}`;
  const seconds = live.now() - view.time;
  const when = seconds < 3600 ? "" : `, at ${clock(view.time, { precise: false })}`;
  return `${view.count === null ? "updated" : "counted"} ${span(seconds)} ago${when}`;
}

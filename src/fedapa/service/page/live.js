// What is known of every room now: the event stream, and what to say when it breaks.
//
// A count is shown only while somebody stands behind it. When the stream breaks, or a room that
// counted is silent for three counts, its number is taken away; it never grows old on the page.

const LONGEST_WAIT = 15;
const SLOWEST_ANSWER = 5000;
const LEAST_SILENCE = 15;
const LATE = 60;
const HOUR = 3600;

/** An answer of the API as JSON; raises with `status` where it is none. */
export async function ask(path, { slowest = SLOWEST_ANSWER } = {}) {
  const answer = await fetch(`api/${path}`, {
    cache: "no-store",
    signal: AbortSignal.timeout(slowest),
  });
  if (!answer.ok) throw Object.assign(new Error(`${path}: ${answer.status}`), { status: answer.status });
  return { answer, content: await answer.json() };
}

/** Rooms as they are now. Tells of "rooms", "count" (detail: the room's name), "connection". */
export class Live extends EventTarget {
  service = null;
  rooms = new Map(); // name -> { document, heard, points }: heard is when its last count came, by
  // this browser's clock, since the service's may jump
  connection = "connecting"; // connecting, open, lost, refused
  lostAt = null;
  retryAt = null;

  #stream = null;
  #attempt = 0;
  #waited = 0;
  #timer = null;
  #offset = 0;
  #heard = 0;
  #checking = false;

  /** Begins to listen; never ends. */
  start() {
    setInterval(() => this.#watch(), 1000);
    window.addEventListener("online", () => this.retry());
    window.addEventListener("pageshow", (event) => event.persisted && this.retry());
    this.retry();
  }

  /** The service's clock, in s: the visitor's may be wrong by hours. */
  now() {
    return Date.now() / 1000 + this.#offset;
  }

  /** Tries at once, whatever it waits for. */
  async retry() {
    const mine = (this.#attempt += 1);
    clearTimeout(this.#timer);
    this.retryAt = null;
    this.#stream?.close();
    this.#stream = null;
    try {
      await this.#load();
    } catch (error) {
      const refused = error.status === 401 || error.status === 403;
      if (mine === this.#attempt) this.#lose(refused ? "refused" : "lost");
      return;
    }
    if (mine === this.#attempt) this.#listen();
  }

  /** What can be said of a room at this moment: its document, or why there is none. */
  view(name) {
    const { document, heard } = this.rooms.get(name);
    if (this.connection !== "open") {
      return { ...without(document), state: "lost", reason: "" };
    }
    const silent = Date.now() / 1000 - heard;
    if (document.state !== "unavailable" && silent > patience(document)) {
      const reason = `nothing was heard of it for ${Math.round(silent)} s`;
      return { ...without(document), state: "unavailable", reason };
    }
    return document.state === "unavailable" ? { ...document, ...NOTHING } : document;
  }

  /** A room's counts since a time, and those that were heard after them; oldest first. */
  async history(name, since, points) {
    const heard = () => this.rooms.get(name).points;
    if (!this.service.history.startsWith("kept")) return heard().slice();
    const place = `rooms/${encodeURIComponent(name)}/history`;
    const { content } = await ask(`${place}?since=${Math.floor(since)}&points=${points}`);
    const kept = content.times.map((time, at) => ({
      time,
      count: content.count[at],
      lo: content.lo[at],
      hi: content.hi[at],
      state: content.state[at],
      truth: content.true_people[at],
    }));
    const newest = kept.at(-1)?.time ?? since;
    return [...kept, ...heard().filter((point) => point.time > newest)];
  }

  async #load() {
    const { answer, content } = await ask("rooms");
    const stamp = Date.parse(answer.headers.get("date") ?? "");
    const offset = (stamp + 500 - Date.now()) / 1000; // the header has whole seconds
    this.#offset = Math.abs(offset) > 2 ? offset : 0;
    this.service = content.service;
    const named = new Set(content.rooms.map((document) => document.room));
    const before = [...this.rooms.keys()];
    for (const name of before) if (!named.has(name)) this.rooms.delete(name);
    for (const document of content.rooms) this.#keep(document);
    const changed = before.length !== named.size || before.some((name) => !named.has(name));
    if (changed || before.length === 0) this.#tell("rooms");
    for (const name of named) this.#tell("count", name);
  }

  #listen() {
    const stream = new EventSource("api/events");
    this.#stream = stream;
    stream.addEventListener("open", () => {
      this.#waited = 0;
      this.#heard = Date.now() / 1000;
      this.#connect();
    });
    stream.addEventListener("count", (event) => {
      const document = JSON.parse(event.data);
      const isNew = !this.rooms.has(document.room);
      this.#keep(document, { streamed: true });
      if (isNew) this.#tell("rooms");
      this.#tell("count", document.room);
    });
    stream.addEventListener("error", () => {
      if (stream === this.#stream) this.#lose("lost");
    });
  }

  #keep(document, { streamed = false } = {}) {
    const now = (this.#heard = Date.now() / 1000);
    const before = this.rooms.get(document.room);
    const late = before ? before.document.time - document.time : 0;
    // Of two answers the older one may come last. Events are in order: there the clock was set back.
    if (!streamed && late > 0 && late < LATE) return;
    if (before && late === 0) {
      before.document = document; // the same count; packets and rate are newer
      return;
    }
    const heard = before ? now : now - Math.max(0, this.now() - document.time);
    const points = before?.points ?? [];
    points.push(pointOf(document));
    while (points[0].time < document.time - HOUR) points.shift();
    this.rooms.set(document.room, { document, heard, points });
  }

  #connect() {
    this.lostAt = this.retryAt = null;
    if (this.connection === "open") return;
    this.connection = "open";
    this.#tell("connection");
  }

  #lose(why) {
    this.#stream?.close();
    this.#stream = null;
    this.lostAt ??= Date.now() / 1000;
    this.#waited = Math.min(LONGEST_WAIT, this.#waited * 2 || 1);
    this.retryAt = Date.now() / 1000 + this.#waited;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.retry(), 1000 * this.#waited);
    this.connection = why;
    this.#tell("connection");
  }

  /** A stream may die without a word, e.g. when a laptop changes its network: ask. */
  async #watch() {
    this.#tell("second");
    const silent = Date.now() / 1000 - this.#heard;
    const longest = Math.max(LEAST_SILENCE, ...[...this.rooms.values()].map((room) => patience(room.document)));
    if (this.connection !== "open" || this.#checking || silent <= longest) return;
    this.#checking = true;
    await this.retry();
    this.#checking = false;
  }

  #tell(what, detail = null) {
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }
}

const NOTHING = { count: null, lo: null, hi: null, confidence: null, raw: null, belief: [], people: [] };

function pointOf({ time, count, lo, hi, state, true_people: truth }) {
  return { time, count, lo, hi, state, truth };
}

/** A document without anything that may be out of date. */
function without(document) {
  return { ...document, ...NOTHING, true_people: null, rate: null };
}

/** s of silence after which a room's count is no longer shown. */
function patience(document) {
  return Math.max(LEAST_SILENCE, 3 * (document.every ?? 5));
}

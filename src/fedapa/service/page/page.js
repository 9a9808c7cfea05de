// The live page: which view is shown, the connection, and what is read out.
//
// Views are rooms (#/), one room (#/rooms/NAME) and training (#/training). Whatever comes from the
// API is text; nothing of it is ever markup.

import { listening, showRooms } from "./cards.js";
import { element, say, set } from "./element.js";
import { Live } from "./live.js";
import { showRoom } from "./room.js";
import { clock, STATES } from "./words.js";

const at = (id) => document.getElementById(id);
const main = at("main");
const live = new Live();
const known = new Map(); // room -> what was said of it last
let end = () => {};
let shown = null; // { view, room }

/** The view that the address asks for. */
function route() {
  const place = location.hash.replace(/^#/, "");
  if (!place.startsWith("/") && place !== "") return; // #main, the skip link
  const before = shown;
  const room = decoded(place.match(/^\/rooms\/(.+)$/)?.[1]);
  const view = room !== null ? "room" : place === "/training" ? "training" : "rooms";
  shown = { view, room };
  end();
  end = () => {};
  set(at("to-rooms"), "aria-current", view === "rooms" ? "page" : null);
  set(at("to-training"), "aria-current", view === "training" ? "page" : null);
  if (view === "room") end = showRoom(main, live, room);
  else if (view === "training") training();
  else end = showRooms(main, live);
  title();
  if (before !== null) focus(before.room);
}

/** The name in an address; one that is cut off in the middle of a letter, as it is written. */
function decoded(name) {
  try {
    return name === undefined ? null : decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** Keyboards and screen readers go on where the visitor is: at the heading, or back at the card. */
function focus(room) {
  const cards = [...main.querySelectorAll(".cards a")];
  const cameFrom = cards.find((link) => link.textContent === room);
  const target = cameFrom ?? main.querySelector("h1") ?? main;
  if (cameFrom === undefined) {
    target.tabIndex = -1; // a heading takes focus only then
    window.scrollTo(0, 0);
  }
  target.focus({ preventScroll: cameFrom === undefined });
}

async function training() {
  const place = element("div"); // it is no longer connected when the visitor has left
  main.replaceChildren(place);
  try {
    const { showTraining } = await import("./training.js");
    await showTraining(place);
  } catch (error) {
    place.textContent = `The training view did not load: ${error.message}`;
  }
  if (place.isConnected && document.activeElement === main) focus(null);
}

/** The link to the training view is there where the service has a run to follow (200, else 204). */
async function offerTraining() {
  const answer = await fetch("api/training", { cache: "no-store" }).catch(() => null);
  at("to-training").hidden = answer?.status !== 200;
  const idle = live.rooms.size === 0 && location.hash === "";
  if (idle && answer?.status === 200) location.replace("#/training"); // there is nothing else to see
}

function title() {
  const lost = live.connection === "lost" ? "no connection · " : "";
  const name = { rooms: "Rooms", training: "Training", room: shown.room }[shown.view];
  document.title = `${lost}${name} · FedAPA`;
}

/** Read out once, together with what else happens in the same half second. */
let saying = [];
function announce(words) {
  if (saying.length === 0) {
    setTimeout(() => {
      at("announcer").textContent = saying.join(". ");
      saying = [];
    }, 500);
  }
  saying.push(words);
}

function connection() {
  const words = { connecting: "connecting", open: "live", lost: STATES.lost, refused: "not admitted" };
  const before = at("connection").dataset.state;
  set(at("connection"), "data-state", live.connection);
  say(at("connection-words"), words[live.connection]);
  second();
  title();
  if (before === live.connection) return;
  if (live.connection === "lost") announce("Connection lost. No counts are shown.");
  if (live.connection === "open" && before !== "connecting") announce("Connected again");
  known.clear();
  if (live.connection === "open") {
    about();
    offerTraining();
  }
}

/** Every second: rooms that were silent for too long, and how long the connection has been away. */
function second() {
  for (const name of live.rooms.keys()) news(name);
  const away = live.connection === "lost" || live.connection === "refused";
  at("lost").hidden = !away;
  if (!away) return;
  const wait = Math.max(0, Math.ceil((live.retryAt ?? 0) - Date.now() / 1000));
  const next = live.retryAt === null ? "Trying now." : `Trying again in ${wait} s.`;
  const refused = "This service asks for its access token: open the address that fedapa serve printed.";
  say(at("lost-words"), live.connection === "refused" ? refused : `Connection lost at ${clock(live.lostAt)}. No counts are shown until it is back. ${next}`);
}

/** Rooms that fall silent or come back, and a newer model; in a room's own view each state. */
function news(name) {
  if (live.connection !== "open") return;
  const { state, reason, model } = live.view(name);
  const before = known.get(name);
  known.set(name, { state, round: model?.round });
  if (before === undefined) return;
  const silent = (each) => each === "unavailable";
  if (before.state !== state && (shown.room === name || silent(before.state) || silent(state))) {
    announce(`${name}: ${STATES[state]}${reason ? `, ${reason}` : ""}`);
  }
  if (before.round !== model?.round) announce(`${name} counts with the model of round ${model?.round}`);
}

function about() {
  const service = live.service;
  const views = [...live.rooms.keys()].map((name) => live.view(name));
  const simulated = views.filter((view) => view.synthetic).length;
  at("simulated").hidden = simulated === 0;
  const all = views.length === 1 ? "This room is" : "These rooms are";
  const which = simulated === views.length ? all : `${simulated} of ${views.length} rooms are`;
  at("simulated").replaceChildren(
    element("strong", {}, "SIMULATED."),
    ` ${which} computed, or counted by a model that learned from computed rooms: they show that the software works, not how well people are counted in a real room.`,
  );
  say(at("service"), `${service.name} ${service.version}, running since ${clock(service.started, { precise: false })}, history ${service.history}.`);
}

listening(live, { connection, second, rooms: about, count: (event) => news(event.detail) });
window.addEventListener("hashchange", route);
at("retry").addEventListener("click", () => live.retry());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address stays the view's
  main.focus();
});
route();
live.start();

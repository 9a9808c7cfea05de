// Numbers, times and states in words, in the visitor's time zone.

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const CLOCK = { hour: "2-digit", minute: "2-digit" };
const DAY = 86400;

export const STATES = {
  counting: "counting",
  unsure: "unsure",
  unavailable: "unavailable",
  lost: "no connection",
};

export const number = (value) => NUMBER.format(value);
export const whole = (value) => WHOLE.format(value);
export const percent = (share) => `${WHOLE.format(100 * share)}\u00a0%`;
export const people = (count) => (count === 1 ? "person" : "people");
export const plural = (count, one, many) => `${whole(count)} ${count === 1 ? one : many}`;

/** "14:05:07", with the day where it is another one. */
export function clock(seconds, { precise = true } = {}) {
  const time = new Date(1000 * seconds);
  const today = Math.abs(Date.now() / 1000 - seconds) < DAY / 2;
  return time.toLocaleString(undefined, {
    ...CLOCK,
    ...(precise ? { second: "2-digit" } : {}),
    ...(today ? {} : { day: "numeric", month: "short" }),
  });
}

/** "3 s", "4 min", "2 h", "5 days". */
export function span(seconds) {
  if (seconds < 100) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 2 * DAY) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / DAY)} days`;
}

/** "3 to 6 people"; one number where both ends are the same. */
export function interval(lo, hi) {
  return lo === hi ? `${lo} ${people(lo)}` : `${lo} to ${hi} people`;
}

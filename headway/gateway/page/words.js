// Sizes, durations and times for people. What is not known is a dash.

export const NOT_KNOWN = "–";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes) {
  if (bytes === null || bytes === undefined) return NOT_KNOWN;
  let at = 0;
  let value = bytes;
  while (value >= 1024 && at < UNITS.length - 1) { value /= 1024; at += 1; }
  return `${value < 10 && at ? value.toFixed(1) : Math.round(value)} ${UNITS[at]}`;
}

const SPANS = [[86_400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

// As `units.format_duration`.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NOT_KNOWN;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  const [big, name, small, smaller] = SPANS.find(([least]) => s >= least) ?? [1, "s", 1, ""];
  const rest = Math.floor((s % big) / small);
  return `${Math.floor(s / big)} ${name}${rest ? ` ${rest} ${smaller}` : ""}`;
}

export function clock(iso) {
  if (!iso) return NOT_KNOWN;
  const at = new Date(iso);
  const today = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return today ? time : `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

export const percent = (part) => (part === null || part === undefined ? NOT_KNOWN : `${Math.round(100 * part)} %`);

export const number = (value, digits = 1) =>
  value === null || value === undefined ? NOT_KNOWN
    : value.toLocaleString([], { maximumFractionDigits: digits });

export const metric = (value) =>
  value === null || value === undefined ? NOT_KNOWN : Number(value.toPrecision(4)).toString();

// As `units.COST` and `units.format_cost`: headway knows prices, not their currency.
export const COST = "cost (site's currency)"
export const COST_TITLE = "Cost (site's currency)";
export function cost(value) {
  if (!value) return value === 0 ? "no price set" : NOT_KNOWN;
  return value < 0.0001 ? "under 0.0001" : value.toFixed(value < 0.1 ? 4 : 2);
}

export function start(view) {
  if (view.starts_now) return "now";
  if (!view.expected_start_at) return view.start_unknown ? `not known: ${view.start_unknown}` : "not known";
  const around = view.earliest_start_at && view.latest_start_at
    ? ` (${clock(view.earliest_start_at)} to ${clock(view.latest_start_at)})` : "";
  return `about ${clock(view.expected_start_at)}${around}`;
}

export const tone = (state) => (state === "Completed" ? "good" : ["Failed", "Crashed", "TimedOut"].includes(state) ? "bad" : "");

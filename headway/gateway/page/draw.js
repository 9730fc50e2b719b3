// Pictures as SVG.

import { h, svg } from "./dom.js";
import { clock, duration, metric as shown, percent, size } from "./words.js";

// What of *whole* is promised, in use by runs, and in use by others.
export function memoryBar(label, { whole, promised, own, strangers }) {
  const part = (bytes) => 100 * Math.min((bytes ?? 0) / (whole || 1), 1);
  const ownPart = part(own);
  const said = `${label}: ${size(promised)} of ${size(whole)} promised, ${size(own)} in use by runs, `
    + `${size(strangers)} by others`;
  return svg("svg", { viewBox: "0 0 100 7", preserveAspectRatio: "none", height: 14, role: "img", "aria-label": said },
    svg("rect", { class: "track", width: 100, height: 7 }),
    svg("rect", { class: "promised", width: part(promised), height: 7 }),
    svg("rect", { class: "own", width: ownPart, y: 2, height: 5 }),
    svg("rect", { class: "strangers", x: Math.min(Math.max(ownPart, part(promised)), 100 - part(strangers)),
      width: part(strangers), y: 2, height: 5 }));
}

// A GPU as a small square, filled from below as far as its memory is promised and in use by runs.
export function gpuCell(gpu) {
  const ill = gpu.lost ? `is lost: ${gpu.lost}` : gpu.drained ? `takes no runs: ${gpu.drained}` : "";
  const said = `gpu${gpu.index} ${gpu.name} ${ill || `${size(gpu.promised_bytes)} of ${size(gpu.memory_bytes)} promised, ${size(gpu.used_bytes)} in use; busy ${percent(gpu.utilisation_frac)}`}`;
  const fill = (kind, bytes) => {
    const part = 20 * Math.min((bytes ?? 0) / (gpu.memory_bytes || 1), 1);
    return svg("rect", { class: kind, y: 20 - part, width: 20, height: part });
  };
  return svg("svg", { viewBox: "0 0 20 20", role: "img", "aria-label": said }, svg("title", {}, said),
    svg("rect", { class: ill ? "strangers" : "track", width: 20, height: 20 }),
    ill ? null : [fill("promised", gpu.promised_bytes), fill("own", gpu.runs_used_bytes)]);
}

// How busy something was over the last hour.
export function busyLine(label, points) {
  if (points.length < 2) return h("span", { class: "soft" }, "no history");
  const now = Date.now();
  const x = (at) => 100 - Math.min((now - new Date(at)) / 36e3, 100);
  const known = points.filter(([, busy]) => busy !== null);
  const line = known.map(([at, busy]) => `${x(at).toFixed(1)},${(20 - 19 * busy).toFixed(1)}`).join(" ");
  const mean = known.reduce((sum, [, busy]) => sum + busy, 0) / (known.length || 1);
  return svg("svg", { viewBox: "0 0 100 21", preserveAspectRatio: "none", height: 24, role: "img",
    "aria-label": `${label}: busy ${percent(mean)} of the last hour` },
    svg("line", { class: "grid", x1: 0, x2: 100, y1: 20.5, y2: 20.5 }),
    svg("polyline", { class: "curve", points: line, "vector-effect": "non-scaling-stroke" }));
}

const ROW = 22;
const LEFT = 170;

function steps(span, most) {
  const hour = 36e5;
  const nice = [hour / 12, hour / 4, hour / 2, hour, 2 * hour, 4 * hour, 6 * hour, 12 * hour, 24 * hour, 72 * hour, 168 * hour];
  return nice.find((step) => span / step <= most) ?? 720 * hour;
}

// Who ends when, and who starts when: the running runs, then the queue.
export function timeline(running, queue) {
  const now = Date.now();
  const rows = [
    ...running.map((run) => ({ name: run.name, from: now - 1000 * run.elapsed_s,
      to: run.remaining_s === null ? null : now + 1000 * run.remaining_s, runs: true })),
    ...queue.filter((run) => run.starts_now || run.expected_start_at).map((run) => {
      const start = run.starts_now ? now : +new Date(run.expected_start_at);
      const lasts = run.predicted_runtime_s ?? null;
      return { name: run.name ?? "of another team", from: start, to: lasts === null ? null : start + 1000 * lasts,
        low: run.earliest_start_at && +new Date(run.earliest_start_at),
        high: run.latest_start_at && +new Date(run.latest_start_at) };
    }),
  ].slice(0, 40);
  if (!rows.length) return h("p", { class: "soft" }, "Nothing that you may see runs, or waits with an expected start.");
  const first = Math.min(now, ...rows.filter((row) => row.runs).map((row) => Math.max(row.from, now - 36e5)));
  const ends = rows.flatMap((row) => [row.to, row.high, row.from]).filter((at) => at);
  const last = Math.max(now + 6e5, ...ends);
  const [WIDTH, most] = matchMedia("(max-width: 600px)").matches ? [460, 4] : [900, 8];
  const x = (at) => LEFT + ((WIDTH - LEFT - 10) * (Math.min(Math.max(at, first), last) - first)) / (last - first);
  const step = steps(last - first, most);
  const ticks = [];
  for (let at = Math.ceil(first / step) * step; at <= last; at += step) ticks.push(at);
  const high = rows.length * ROW + 24;
  const drawn = rows.map((row, at) => {
    const y = 20 + at * ROW;
    const until = row.to ?? last;
    const said = row.runs
      ? `${row.name} runs, ${row.to === null ? "its end is not known" : `until about ${clock(new Date(row.to))}`}`
      : `${row.name} starts about ${clock(new Date(row.from))}${row.to === null ? "" : `, for ${duration((row.to - row.from) / 1000)}`}`;
    return svg("g", {}, svg("title", {}, said),
      svg("text", { x: 0, y: y + 13 }, row.name.length > 24 ? `${row.name.slice(0, 23)}…` : row.name),
      svg("rect", { class: row.runs ? "own" : "promised", x: x(row.from), y: y + 3,
        width: Math.max(x(until) - x(row.from), 2), height: 13, rx: 2, opacity: row.to === null ? 0.45 : 1 }),
      row.low && row.high ? svg("line", { class: "mark", x1: x(row.low), x2: x(row.high), y1: y + 10, y2: y + 10 }) : null,
      row.low && row.high ? svg("line", { class: "mark", x1: x(row.from), x2: x(row.from), y1: y + 4, y2: y + 15 }) : null);
  });
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Time line" },
    svg("svg", { class: "time", viewBox: `0 0 ${WIDTH} ${high}`, role: "img",
      "aria-label": `${running.length} runs under way, then ${queue.length} that wait; the tables tell the same` },
      ticks.map((at) => svg("g", {}, svg("line", { class: "grid", x1: x(at), x2: x(at), y1: 16, y2: high }),
        svg("text", { class: "soft", x: x(at), y: 11, "text-anchor": "middle" }, clock(new Date(at))))),
      svg("line", { class: "mark", x1: x(now), x2: x(now), y1: 14, y2: high }, svg("title", {}, "now")),
      drawn));
}

// Points as they are drawn. Those that one look at the log brought have its time: they are laid between the look before and it.
function laid(points) {
  const drawn = [];
  for (let at = 0, before = 0, past = 0; at < points.length; before = points[at][0], at = past) {
    while (points[past]?.[0] === points[at][0]) past += 1;
    for (let each = at; each < past; each += 1) drawn.push([before + ((points[at][0] - before) * (each + 1 - at)) / (past - at), points[each][1]]);
  }
  return drawn;
}

// A metric of a run's points, by time and step.
export const series = (points, name) => points.filter((point) => Number.isFinite(point.metrics?.[name]))
  .sort((a, b) => a.t_s - b.t_s || (a.iteration ?? a.epoch ?? 0) - (b.iteration ?? b.epoch ?? 0)).map((point) => [point.t_s, point.metrics[name]]);

// One metric over time.
export const curve = (name, points) => overlay(name, [{ label: "", points }]);

// One metric of some runs over time, in one picture.
export function overlay(name, members) {
  const W = 420; const H = 150; const L = 64;
  const told = members.map((each, at) => ({ ...each, points: laid(each.points), at })).filter((each) => each.points.length);
  const every = told.flatMap((each) => each.points);
  const values = every.map(([, value]) => value);
  const low = values.reduce((a, b) => Math.min(a, b)); const high = values.reduce((a, b) => Math.max(a, b));
  const span = high - low || Math.abs(high) || 1;
  const end = every.reduce((most, [t]) => Math.max(most, t), 0) || 1;
  const x = (t) => L + ((W - L - 8) * t) / end;
  const y = (value) => H - 24 - ((H - 40) * (value - (high === low ? low - span / 2 : low))) / span;
  const drawn = ({ points, at }) => {
    const stride = Math.ceil(points.length / 400);
    const seen = points.filter((_, number) => number % stride === 0 || number === points.length - 1);
    return svg("polyline", { class: `curve of-${at}`, points: seen.map(([t, value]) => `${x(t).toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
  };
  const said = told.map(({ label, points }) => `${label || name}: from ${shown(points[0][1])} to ${shown(points[points.length - 1][1])}`);
  return h("figure", { class: "card" }, h("figcaption", {}, name),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": said.join("; ") },
      [low, high].map((value) => svg("g", {}, svg("line", { class: "grid", x1: L, x2: W - 8, y1: y(value), y2: y(value) }),
        svg("text", { class: "soft", x: L - 6, y: y(value) + 4, "text-anchor": "end" }, shown(value)))),
      svg("text", { class: "soft", x: L, y: H - 6 }, "0 s"),
      svg("text", { class: "soft", x: W - 8, y: H - 6, "text-anchor": "end" }, duration(end)), told.map(drawn)),
    told.length > 1 ? h("ul", { class: "legend" }, told.map(({ label, at }) => h("li", {},
      svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" }, svg("line", { class: `curve of-${at}`, x1: 0, x2: 24, y1: 4, y2: 4 })), label))) : null);
}

// One metric of many runs, each in a picture of its own, all on the same scales.
export function multiples(name, members) {
  const W = 200; const H = 84;
  members = members.map((each) => ({ ...each, points: laid(each.points) }));
  const values = members.flatMap((each) => each.points.map(([, value]) => value));
  const low = Math.min(...values); const high = Math.max(...values);
  const end = Math.max(...members.flatMap((each) => each.points.map(([t]) => t))) || 1;
  const logarithmic = low > 0 && high / low > 1000;
  const scale = logarithmic ? Math.log : (value) => value;
  const span = scale(high) - scale(low) || 1;
  const x = (t) => 3 + ((W - 6) * t) / end;
  const y = (value) => H - 4 - ((H - 8) * (scale(value) - scale(low))) / span;
  const picture = ({ run_id: id, label, points }) => {
    const [from, to] = [points[0], points[points.length - 1]];
    return h("li", { class: "card" }, h("a", { href: `#/runs/${id}`, id: `curve-${id}` }, label),
      svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${name} of ${label}: from ${shown(from[1])} to ${shown(to[1])}` },
        svg("line", { class: "grid", x1: 0, x2: W, y1: H - 2, y2: H - 2 }),
        svg("polyline", { class: "curve", points: points.map(([t, value]) => `${x(t).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
        svg("circle", { class: "own", cx: x(to[0]), cy: y(to[1]), r: 3 })),
      h("span", { class: "soft" }, shown(to[1])));
  };
  return h("div", {},
    h("p", { class: "soft" }, `${name} of each, all from ${shown(low)} to ${shown(high)}${logarithmic ? ", logarithmic," : ""} and over ${duration(end)}.`),
    h("ul", { class: "multiples" }, members.map(picture)));
}

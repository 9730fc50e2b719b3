// The ways to run a job, as pictures and as a table.

import { h, svg, table } from "./dom.js";
import { COST, COST_TITLE, NOT_KNOWN, cost as priced, duration, metric as shown, number, size } from "./words.js";

// What each way to run a job costs over the time until its end; and how much faster more GPUs are.
export function ways(options) {
  const told = options.filter((each) => each.runtime_s !== null);
  const faster = told.filter((each) => each.speed_up !== null);
  const until = (each) => each.runtime_s + (each.wait_s ?? 0);
  const most = (values) => Math.max(...values, 0) || 1;
  const cost = plane(`${COST_TITLE} over the time until its end`, most(told.map(until)), most(told.map((each) => each.cost ?? 0)), duration, shown);
  const gpus = plane("Times as fast as one GPU; dashed: perfect scaling", most(faster.map((each) => each.gpus)), most(faster.map((each) => each.gpus)), shown, shown);
  const point = (at, each, x, y, said) => svg("g", {}, svg("title", {}, said),
    svg("circle", { class: each.within ? (each.pareto ? "own" : "promised") : "strangers", cx: at.x(x), cy: at.y(y), r: each.chosen ? 6 : 4 }));
  const front = told.filter((each) => each.pareto).map((each) => [until(each), each.cost ?? 0]).sort((a, b) => a[0] - b[0]);
  const line = (at, points, kind) => svg("polyline", { class: kind, points: points.map(([x, y]) => `${at.x(x).toFixed(1)},${at.y(y).toFixed(1)}`).join(" ") });
  return h("div", { class: "two" },
    !told.some((each) => each.cost) ? null : cost.drawn(line(cost, front, "curve"), told.map((each) => point(cost, each, until(each), each.cost ?? 0,
      `${wayName(each)}: ${duration(until(each))}, costs ${priced(each.cost)}`))),
    faster.length ? gpus.drawn(line(gpus, [[0, 0], [gpus.right, gpus.right]], "curve even"), faster.map((each) => point(gpus, each, each.gpus, each.speed_up,
      `${wayName(each)}: ${shown(each.speed_up)} times as fast as one`))) : null);
}

const wayName = (each) => (each.node_count > 1 ? `${each.node_count} nodes, ` : "") + (each.gpus ? `${each.gpus} × ${each.gpu_type}` : "CPU");

// Axes from zero, and what draws in them.
function plane(name, right, top, across, up) {
  const W = 420; const H = 210; const L = 52;
  const x = (value) => L + ((W - L - 14) * value) / right;
  const y = (value) => H - 24 - ((H - 40) * value) / top;
  const drawn = (...inside) => h("figure", { class: "card" }, h("figcaption", {}, name),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${name}; the table tells the same` },
      [0, top].map((value) => svg("g", {}, svg("line", { class: "grid", x1: L, x2: W - 8, y1: y(value), y2: y(value) }),
        svg("text", { class: "soft", x: L - 6, y: y(value) + 4, "text-anchor": "end" }, up(value)))),
      svg("text", { class: "soft", x: L, y: H - 6 }, across(0)),
      svg("text", { class: "soft", x: W - 8, y: H - 6, "text-anchor": "end" }, across(right)), ...inside));
  return { x, y, right, drawn };
}

const guess = (each) => (each.runtime_known ? "" : "guess: ");

export function waysTable(options) {
  const mark = (each) => (each.chosen ? "→" : each.pareto ? "*" : each.within ? "" : "!");
  const rows = options.map((each) => [mark(each), wayName(each), each.runtime_s === null ? NOT_KNOWN
    : `${guess(each)}${duration(each.runtime_s)} (${duration(each.runtime_low_s)} to ${duration(each.runtime_high_s)})`,
  duration(each.wait_s), (each.cost ? guess(each) : "") + priced(each.cost), each.speed_up === null ? NOT_KNOWN : number(each.speed_up), size(each.host_memory_bytes),
  each.gpus ? (each.whole_gpus ? "whole" : size(each.gpu_memory_bytes)) : NOT_KNOWN, each.basis ?? ""]);
  return h("div", {},
    h("p", { class: "soft" }, "→ chosen, * no other is both as fast and as cheap, ! above the budget, after the deadline, or a size that the job does not allow."),
    table("Ways to run it", [["choice"], ["on", "name"], ["takes (80 %)"], ["waits", "n"], [COST, "n"], ["times one GPU", "n"], ["host memory", "n"],
      ["of each GPU", "n"], ["rests on", "wide"]], rows, "No node of the site that takes runs could hold it."));
}

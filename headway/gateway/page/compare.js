// Some runs beside each other: what they were asked for, what they took, and their curves in one picture.

import { get } from "./api.js";
import { overlay, series } from "./draw.js";
import { h, redraw, runLink, table } from "./dom.js";
import { COST, NOT_KNOWN, cost, duration, metric as shown, size, tone } from "./words.js";

export const MOST_COMPARED = 8;
const MOST_METRICS = 8;

export async function compareView(place, asked) {
  const ids = (asked.get("runs") ?? "").split(",").filter((each) => /^[0-9A-Za-z-]{1,64}$/.test(each)).slice(0, MOST_COMPARED);
  const found = await Promise.all(ids.map(async (id) => {
    const [run, progress] = await Promise.all([get(`/v1/runs/${id}`), get(`/v1/runs/${id}/progress`)]);
    return { ...run, points: progress.points };
  }));
  const every = [...new Set(found.flatMap((run) => run.points.flatMap((point) => Object.keys(point.metrics ?? {}))))].filter((name) => !name.endsWith(".nan"));
  const names = every.slice(0, MOST_METRICS);
  redraw(place, h("h2", {}, "Runs compared"), found.length ? facts(found, names) : h("p", { class: "soft" }, "Choose runs in the list of runs."),
    names.length ? h("section", {}, h("h2", {}, "Curves"), every.length > names.length ? h("p", { class: "soft" }, `These are ${names.length} of ${every.length} metrics.`) : null, h("div", { class: "two" }, names.map((name) => overlay(name, found.map((run) => ({
      label: run.name, points: series(run.points, name) })))))) : null);
}

// A row for each thing that may differ, a column for each run.
function facts(found, names) {
  const word = (value) => (value === null || value === undefined || value === "" ? NOT_KNOWN : typeof value === "object" ? JSON.stringify(value) : String(value));
  const asked = (run) => ({ command: (run.job.command ?? []).join(" "), image: run.job.image || run.job.python, ...run.job.resources, ...of("training", run), ...of("config", run), ...of("env", run) });
  const of = (part, run) => Object.fromEntries(Object.entries(run.job[part] ?? {}).map(([key, value]) => [`${part}.${key}`, value]));
  const all = found.map(asked);
  const differing = [...new Set(all.flatMap(Object.keys))].filter((key) => new Set(all.map((each) => word(each[key]))).size > 1);
  const last = (run, name) => {
    const metrics = run.points.findLast((point) => name in (point.metrics ?? {}) || `${name}.nan` in (point.metrics ?? {}))?.metrics;
    return metrics === undefined ? NOT_KNOWN : `${name}.nan` in metrics ? "NaN" : shown(metrics[name]);
  };
  const row = (name, told) => [name, ...found.map(told)];
  const rows = [row("state", (run) => h("span", { class: tone(run.state) }, run.state)), row("owner", (run) => run.owner ?? NOT_KNOWN), row("node", (run) => run.node ?? NOT_KNOWN),
    ...differing.map((key) => row(key, (_, at) => word(all[at][key]))),
    row("took", (run) => duration(run.measured.runtime_s ?? run.duration_s)), row("host memory, peak", (run) => size(run.measured.host_peak_bytes)),
    row("GPU memory, peak", (run) => size(run.measured.gpu_peak_bytes)), row(COST, (run) => cost(run.measured.cost)),
    ...names.map((name) => row(`${name}, last`, (run) => last(run, name)))];
  return table("Runs compared", [["quantity"], ...found.map((run) => [runLink(run.run_id, run.name), "wide"])], rows, "");
}

// An array: how its members stand, and one metric of each over time, beside each other.

import { MOST_ROWS } from "./ahead.js";
import { get } from "./api.js";
import { multiples } from "./draw.js";
import { h, redraw, runLink, table } from "./dom.js";
import { NOT_KNOWN, clock, duration, metric as shown, tone } from "./words.js";

const CURVES_EVERY_MS = 30_000;
let kept = { array: "" };

export async function arrayView(place, id) {
  if (kept.array !== id) kept = { array: id, metric: "", asked: -Infinity, curves: null };
  const reading = readCurves(id);
  const array = await get(`/v1/arrays/${id}?limit=${MOST_ROWS}`);
  const draw = () => redraw(place, head(array), pictures(place, array), members(array));
  // To read the curves of many members takes longer: what is known is shown meanwhile.
  reading.then(draw, () => undefined);
  draw();
}

async function readCurves(id) {
  const asked = performance.now();
  if (asked - kept.asked < CURVES_EVERY_MS) return;
  const curves = await get(`/v1/arrays/${id}/curves?metric=${encodeURIComponent(kept.metric)}`);
  if (kept.array === id) Object.assign(kept, { asked, curves });
}

export const counts = (array) => [["waiting", "wait"], ["running", "run"], ["ended_well", "ended well"], ["failed", "failed"], ["cancelled", "cancelled"]]
  .filter(([key]) => array[key]).map(([key, text]) => `${array[key]} ${text}`).join(", ");

const told = (parameters) => Object.entries(parameters).map(([name, value]) => `${name}=${value}`).join(" ");

function head(array) {
  const end = array.expected_end_at ? `; the last one is expected to end about ${clock(array.expected_end_at)}` : "";
  return h("div", {}, h("h2", {}, array.name, " ", h("span", { class: tone(array.state) }, array.state)),
    h("p", {}, `Of ${array.size} members ${counts(array)}${end}.`),
    h("p", { class: "soft" }, `${array.owner || "owner not known"}, team ${array.team ?? NOT_KNOWN}; submitted ${clock(array.submitted_at)}`
      + (array.at_most ? `; at most ${array.at_most} at once` : "")));
}

function pictures(place, array) {
  const { curves } = kept;
  const drawn = (curves?.members ?? []).filter((each) => each.points.length)
    .map((each) => ({ ...each, label: told(each.parameters) || `member ${each.index}` }));
  if (!drawn.length) return h("p", { class: "soft" }, curves && !array.members.some((each) => Object.keys(each.metrics).length) ? "No member has told a metric yet." : "Reading the curves …");
  const choose = (name) => h("button", { id: `metric-${name}`, "aria-pressed": String(name === curves.metric),
    onclick: () => { Object.assign(kept, { metric: name, asked: -Infinity }); arrayView(place, kept.array); } }, name);
  return h("section", {}, h("h2", {}, "Curves"),
    curves.metrics.length > 1 ? h("div", { class: "filters" }, curves.metrics.map(choose)) : null,
    multiples(curves.metric, drawn),
    curves.left_out ? h("p", {}, `${curves.left_out} more have it: `, h("code", {}, `headway results ${array.array_id}`)) : null);
}

function members(array) {
  const names = [...new Set(array.members.flatMap((each) => Object.keys(each.metrics)))].slice(0, 4);
  const rows = array.members.map((each) => [
    runLink(each.run_id, each.name), told(each.parameters), h("span", { class: tone(each.state) }, each.state), each.node ?? NOT_KNOWN,
    duration(each.runtime_s), ...names.map((name) => shown(each.metrics[name])), each.exit?.message ?? ""]);
  const columns = [["run", "name"], ["parameters"], ["state"], ["node"], ["took", "n"], ...names.map((name) => [name, "n"]), ["how it ended", "wide"]];
  return h("section", {}, h("h2", {}, "Members"), table("Members", columns, rows, "None has become a run yet."),
    rows.length === MOST_ROWS && array.size > MOST_ROWS ? h("p", {}, "These are the first. All of them: ", h("code", {}, `headway results ${array.array_id}`)) : null);
}

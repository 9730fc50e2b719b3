// The newest runs: one's own, or all that the token sees.

import { get } from "./api.js";
import { counts } from "./array.js";
import { h, redraw, runLink, table } from "./dom.js";
import { NOT_KNOWN, clock, duration } from "./words.js";

let mine = true;

export async function runsView(place) {
  const [runs, arrays] = await Promise.all([get(`/v1/runs?limit=100&mine=${mine}`), get(`/v1/arrays?limit=50&mine=${mine}`)]);
  const choose = (value, text) => h("button", { id: `mine-${value}`, "aria-pressed": String(mine === value),
    onclick: () => { mine = value; runsView(place); } }, text);
  const rows = runs.map((run) => [
    runLink(run.run_id, run.name), h("span", { class: tone(run.state) }, run.state), run.owner ?? NOT_KNOWN,
    run.node ?? NOT_KNOWN, clock(run.submitted_at), duration(run.duration_s),
    run.progress_text ?? "", run.exit?.message ?? run.reason ?? ""]);
  redraw(place, h("h2", {}, "Runs"), h("div", { class: "filters" }, choose(true, "Mine"), choose(false, "All that I may see")),
    arrays.length ? [h("h3", {}, "Arrays"), arrayTable(arrays), h("h3", {}, "Single runs")] : null,
    table("Runs", [["run", "name"], ["state"], ["owner"], ["node"], ["submitted"], ["took", "n"], ["progress"], ["what it says", "wide"]],
      rows, mine ? "You have no runs yet: headway submit job.yaml" : "There are no runs."));
}

function arrayTable(arrays) {
  const rows = arrays.map((array) => [
    h("a", { href: `#/arrays/${array.array_id}`, id: `to-${array.array_id}` }, array.name), h("span", { class: tone(array.state) }, array.state),
    array.owner || NOT_KNOWN, String(array.size), counts(array), clock(array.submitted_at), clock(array.expected_end_at)]);
  return table("Arrays", [["array", "name"], ["state"], ["owner"], ["members", "n"], ["of them", "wide"], ["submitted"], ["ends about"]], rows, "");
}

export const tone = (state) => (state === "Completed" ? "good" : ["Failed", "Crashed", "TimedOut"].includes(state) ? "bad" : "");

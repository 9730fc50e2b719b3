// The newest runs: one's own, or all that the token sees; what is asked for stands in the address.

import { get } from "./api.js";
import { counts } from "./array.js";
import { MOST_COMPARED } from "./compare.js";
import { h, redraw, runLink, table } from "./dom.js";
import { NOT_KNOWN, clock, duration, tone } from "./words.js";

const STATES = ["Running", "AwaitingHeadroom", "Completed", "Failed", "Cancelled", "Crashed", "TimedOut"];
const PAUSE_MS = 400;
const chosen = new Set(); // ids of runs to compare
let waits = null;

export async function runsView(place, asked) {
  const mine = asked.get("mine") !== "false";
  const [name, state] = ["name", "state"].map((key) => asked.get(key) ?? "");
  const query = new URLSearchParams({ limit: 100, mine, ...(name && { name }), ...(state && { state }) });
  const [runs, arrays] = await Promise.all([get(`/v1/runs?${query}`), name || state ? [] : get(`/v1/arrays?limit=50&mine=${mine}`)]);
  const rows = runs.map((run) => [
    h("input", { type: "checkbox", id: `compare-${run.run_id}`, "aria-label": `Compare ${run.name}`, checked: chosen.has(run.run_id), onchange: (event) => choose(run.run_id, event.target.checked) }),
    runLink(run.run_id, run.name), h("span", { class: tone(run.state) }, run.state), run.owner ?? NOT_KNOWN,
    run.node ?? NOT_KNOWN, clock(run.submitted_at), duration(run.duration_s),
    run.progress_text ?? "", run.exit?.message ?? run.reason ?? ""]);
  redraw(place, h("h2", {}, "Runs"), filters(mine, name, state),
    arrays.length ? [h("h3", {}, "Arrays"), arrayTable(arrays), h("h3", {}, "Single runs")] : null,
    table("Runs", [["compare"], ["run", "name"], ["state"], ["owner"], ["node"], ["submitted"], ["ran for", "n"], ["progress", "span"], ["what it says", "wide"]],
      rows, name || state ? "No run is like that." : mine ? "You have no runs yet: New job, or headway submit job.yaml" : "There are no runs."));
  compareLink(place);
}

// The address is what is asked: it can be kept, sent, and gone back to.
function go(changes) {
  if (!/^#\/runs($|\?)/.test(location.hash)) return; // another view was opened meanwhile
  const asked = new URLSearchParams(location.hash.split("?")[1]);
  for (const [key, value] of Object.entries(changes)) value ? asked.set(key, value) : asked.delete(key);
  location.replace(`#/runs${[...asked].length ? `?${asked}` : ""}`); // the way back leads to the view before
}

function filters(mine, name, state) {
  const choice = (value, text) => h("button", { id: `mine-${value}`, "aria-pressed": String(mine === value), onclick: () => go({ mine: value ? "" : "false" }) }, text);
  return h("div", { class: "filters", role: "search" }, choice(true, "Mine"), choice(false, "All that I may see"),
    h("input", { id: "by-name", type: "search", placeholder: "Name", "aria-label": "Name contains", value: name,
      oninput: (event) => { clearTimeout(waits); waits = setTimeout(() => go({ name: event.target.value.trim() }), PAUSE_MS); } }),
    h("select", { id: "by-state", "aria-label": "State", onchange: (event) => go({ state: event.target.value }) },
      h("option", { value: "" }, "Any state"), STATES.map((each) => h("option", { selected: each === state }, each))),
    h("a", { id: "compare", hidden: true }));
}

function choose(id, isChosen) {
  if (isChosen) chosen.add(id);
  else chosen.delete(id);
  compareLink();
}

function compareLink(place = document) {
  const link = place.querySelector("#compare");
  link.hidden = chosen.size < 2;
  link.href = `#/compare?runs=${[...chosen].slice(-MOST_COMPARED).join(",")}`;
  link.textContent = `Compare ${Math.min(chosen.size, MOST_COMPARED)} runs`;
}

function arrayTable(arrays) {
  const rows = arrays.map((array) => [
    h("a", { href: `#/arrays/${array.array_id}`, id: `to-${array.array_id}` }, array.name), h("span", { class: tone(array.state) }, array.state),
    array.owner || NOT_KNOWN, String(array.size), counts(array), clock(array.submitted_at), clock(array.expected_end_at)]);
  return table("Arrays", [["array", "name"], ["state"], ["owner"], ["members", "n"], ["of them", "wide"], ["submitted"], ["ends about"]], rows, "");
}

// One run: how it stands, its curves, its log, what it wrote, and what was said of it before.

import { Refused, get, log, picture, post } from "./api.js";
import { curve, series } from "./draw.js";
import { h, redraw, runLink, table } from "./dom.js";
import { ways, waysTable } from "./ways.js";
import { COST, NOT_KNOWN, clock, cost, duration, size, start, tone } from "./words.js";

const MOST_PICTURES = 6;
const LARGEST_PICTURE = 4 * 1024 * 1024;
// To say what would help plays the queue forward many times.
const WHY_EVERY_MS = 60_000;
const SHOWN = 10;
let kept = { run: "" };

export async function runView(place, id) {
  if (kept.run !== id) kept = { run: id, attempt: 0, text: "", end: 0, cut: false, outputs: null, pictures: [], why: null, asked: -Infinity, ways: null, asks: "" };
  const run = await get(`/v1/runs/${id}`);
  const [progress, why] = await Promise.all([get(`/v1/runs/${id}/progress`), run.waiting ? whyItWaits(id) : null]);
  await Promise.all([readLog(run), readOutputs(run)]);
  redraw(place, head(run), run.waiting ? waits(run, why) : null, curves(progress.points), compared(run), waysShown(run),
    h("h2", {}, "Log"), logShown(run), outputs(run), attempts(run));
}

function head(run) {
  const over = run.ended_at !== null;
  const button = (verb, path) => h("button", { id: `do-${verb}`, onclick: () => asked(verb, run, path) }, verb);
  const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  return h("div", {},
    h("h2", {}, run.name, " ", h("span", { class: tone(run.state) }, run.state)),
    h("p", {}, run.progress_text || run.exit?.message || run.reason || ""),
    h("p", { class: "soft" }, `${run.owner ?? "owner not known"}, team ${run.team ?? NOT_KNOWN}; submitted ${clock(run.submitted_at)}; `
      + `attempt ${run.attempt}${run.node ? ` on ${run.node}` : ""}${run.size ? `, ${run.size}` : ""}${times(run)}`
      + (run.lease?.ports ?? []).map((own, at) => `; port ${own} at 127.0.0.1:${run.lease.host_ports[at]} of the node`).join("")),
    h("div", { class: "filters" }, over ? button("Retry", "retry") : button("Cancel", "cancel"),
      h("a", { href: `#/new/${run.run_id}`, id: "to-new" }, "A new job like it"),
      h("a", { href: `/runs/flow-run/${run.run_id}`, id: "to-prefect", target: "_blank" }, "The run in Prefect"),
      run.session ? h("a", { href: run.session, id: "to-session", target: "_blank", rel: "noopener" }, "Open the session") : null),
    run.warnings.map((each) => h("p", { class: "bad" }, `${each.kind}: it ${each.text}`)),
    h("p", { id: "answer", role: "alert" }), h("dl", { hidden: true }, fact("id", run.run_id)));
}

// The program's own time is below, beside what was predicted of it.
function times(run) {
  const waited = run.attempt === 1 && run.started_at ? `; waited ${duration((new Date(run.started_at) - new Date(run.submitted_at)) / 1000)}` : "";
  return waited + (run.duration_s === null ? "" : run.ended_at ? `; ran for ${duration(run.duration_s)} (the whole attempt)` : `; has run for ${duration(run.duration_s)}`);
}

async function asked(verb, run, path) {
  if (!confirm(`${verb} ${run.name}?`)) return;
  const answer = document.getElementById("answer");
  try {
    await post(`/v1/runs/${run.run_id}/${path}`);
    answer.textContent = `${verb} was asked for.`;
  } catch (error) {
    answer.textContent = error.message;
  }
}

async function whyItWaits(id) {
  const mine = kept;
  if (performance.now() - mine.asked > WHY_EVERY_MS) {
    mine.asked = performance.now();
    mine.why = await get(`/v1/runs/${id}/why`).catch(() => null);
  }
  return mine.why;
}

const titled = (title, ...rest) => [h("h3", {}, title), table(title, ...rest)];

function waits(run, why) {
  const name = (each) => (each.name ? runLink(each.run_id, each.name) : h("span", { class: "soft" }, "of another team"));
  const changes = why?.changes.map((each) => [each.text, start(each), clock(each.expected_end_at)]);
  const ahead = why?.ahead.slice(0, SHOWN).map((each) => [String(each.position), name(each), each.why]);
  const holders = why?.holders.slice(0, SHOWN).map((each) => [name(each), each.node,
    each.gpus ? `${each.gpus} GPU(s), ${size(each.gpu_memory_bytes)}` : NOT_KNOWN, size(each.host_memory_bytes), clock(each.expected_end_at)]);
  const told = why ?? run.waiting; // one plan: its start and the ends of those who hold the place
  const planned = told.planned_at ? `, as planned at ${new Date(told.planned_at).toLocaleTimeString()}` : "";
  return h("section", {}, h("h2", {}, "Why it waits"),
    h("p", {}, `${run.waiting.reason}. It is number ${run.waiting.position} of the queue; start: ${start(told)}${planned}.`),
    why ? titled("What would help", [["submitted anew with", "wide"], ["starts"], ["ends about"]], changes,
      "No single change of what it asks would start it notably earlier.") : null,
    why ? titled("Who is ahead", [["place", "n"], ["run", "name"], ["because", "wide"]], ahead, "Nobody is ahead of it.") : null,
    holders?.length ? titled("Who has what it needs", [["run", "name"], ["node"], ["GPUs"], ["host memory", "n"], ["ends about"]], holders, "") : null);
}

function curves(points) {
  const names = [...new Set(points.flatMap((point) => Object.keys(point.metrics ?? {})))].slice(0, 8);
  if (!names.length) return null;
  return h("section", {}, h("h2", {}, "Curves"), h("div", { class: "two" }, names.map((name) => curve(name, series(points, name)))));
}

function compared(run) {
  const row = (name, key, told) => [name, told(run.predicted[key]), told(run.measured[key])];
  const rows = [row("run time of the program", "runtime_s", duration), row("host memory, peak", "host_peak_bytes", size),
    row("GPU memory, peak", "gpu_peak_bytes", size), row(COST, "cost", cost)];
  const { runtime_low_s: low, runtime_known: isKnown, runtime_s: time, cost: price } = run.predicted;
  if (low !== null) rows[0][1] += ` (${duration(low)} to ${duration(run.predicted.runtime_high_s)})`;
  for (const [at, value] of isKnown ? [] : [[0, time], [3, price]]) if (value) rows[at][1] = `guess: ${rows[at][1]}`;
  return h("section", {}, h("h2", {}, "Predicted and measured"),
    table("Predicted and measured", [["quantity"], ["predicted", "n"], ["measured", "n"]], rows, ""),
    h("p", { class: "soft" }, run.predicted.basis ?? ""));
}

// Played through the whole queue, so only where somebody asks.
async function askWays(run) {
  const mine = kept;
  mine.asks = "Comparing …";
  document.getElementById("ways").replaceWith(waysShown(run));
  try {
    mine.ways = (await get(`/v1/runs/${run.run_id}/ways`)).options;
  } catch (error) {
    mine.asks = error.message;
  }
  if (mine === kept) document.getElementById("ways")?.replaceWith(waysShown(run));
}

function waysShown(run) {
  const title = h("h2", {}, "Ways to run it");
  if (!kept.ways) return h("section", { id: "ways" }, title, h("button", { id: "ask-ways", onclick: () => askWays(run) }, "Compare time and cost"),
    h("p", { role: "status", class: "soft" }, kept.asks));
  return h("section", { id: "ways" }, title, ways(kept.ways), waysTable(kept.ways));
}

async function readLog(run) {
  if (kept.attempt !== run.attempt) Object.assign(kept, { attempt: run.attempt, text: "", end: 0, cut: false });
  if (kept.cut || !run.node) return;
  try {
    const more = await log(run.run_id, run.attempt, kept.end);
    Object.assign(kept, { text: kept.text + more.text, end: more.end, cut: more.cut, missing: "" });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    kept.missing = error.message;
  }
}

// Colours and other escapes are for terminals.
const plain = (text) => text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/[^\n\r]*\r(?!\n)/g, "");

function logShown(run) {
  if (kept.missing) return h("p", { class: "bad" }, kept.missing);
  if (!kept.text) return h("p", { class: "soft" }, "Nothing yet.");
  return h("div", {},
    kept.cut ? h("p", {}, "The log is longer than this page shows. All of it: ", h("code", {}, `headway logs ${run.run_id}`)) : null,
    h("pre", { tabindex: 0, role: "region", "aria-label": "Log", "data-keep": "log" }, plain(kept.text)));
}

async function readOutputs(run) {
  if (!run.node || (kept.outputs && run.ended_at === kept.listedAt)) return;
  try {
    kept.outputs = await get(`/v1/runs/${run.run_id}/outputs`);
    Object.assign(kept, { listedAt: run.ended_at, outputsMissing: "" });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    kept.outputsMissing = error.message;
    return;
  }
  const shown = kept.outputs.files.filter((file) => /\.(png|jpe?g)$/i.test(file.href) && file.bytes <= LARGEST_PICTURE);
  for (const old of kept.pictures) URL.revokeObjectURL(old.url);
  kept.pictures = await Promise.all(shown.slice(0, MOST_PICTURES).map(async (file) =>
    ({ path: file.path, url: await picture(run.run_id, file.href) })));
}

function outputs(run) {
  if (!kept.outputs) {
    const text = kept.outputsMissing || "It has not begun yet.";
    return h("section", {}, h("h2", {}, "Outputs"), h("p", { class: kept.outputsMissing ? "bad" : "soft" }, text));
  }
  const files = kept.outputs.files;
  const link = (file) => h("a", { href: `/v1/runs/${run.run_id}/outputs/${file.href}`, download: true, id: `out-${file.href}` }, file.path);
  const rows = files.slice(0, 200).map((file) => [link(file), size(file.bytes)]);
  return h("section", {}, h("h2", {}, "Outputs"),
    h("div", { class: "two pictures" }, kept.pictures.map((each) => h("figure", {}, h("img", { src: each.url, alt: each.path }), h("figcaption", {}, each.path)))),
    table("Outputs", [["file", "wide"], ["size", "n"]], rows, "It has written none."),
    files.length > rows.length || !kept.outputs.complete
      ? h("p", {}, "There are more. All of them: ", h("code", {}, `headway outputs ${run.run_id} DIR`)) : null);
}

function attempts(run) {
  const rows = run.attempts.map((each) => [String(each.attempt), (each.node ?? NOT_KNOWN) + (each.size ? `, ${each.size}` : ""), clock(each.started_at),
    clock(each.ended_at), each.exit ? `${each.exit.kind}: ${each.exit.message}` : ""]);
  return h("section", {}, h("h2", {}, "Attempts"),
    table("Attempts", [["attempt", "n"], ["node"], ["started"], ["ended"], ["how", "wide"]], rows, "It has not been tried yet."));
}

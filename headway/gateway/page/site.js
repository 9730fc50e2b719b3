// The site: nodes with their GPUs, what runs, and the queue with its times.

import { get } from "./api.js";
import { busyLine, gpuCell, memoryBar, timeline } from "./draw.js";
import { h, redraw, runLink, table } from "./dom.js";
import { NOT_KNOWN, clock, duration, percent, size, start } from "./words.js";

const EVERY_MS = 60_000;
const MOST_ROWS = 4; // of a node with more GPUs a row of cells is shown, and each GPU where one asks
const unfolded = new Set(); // names of such nodes
let load = { asked: -Infinity, nodes: {} };

async function loadOfLastHour() {
  if (performance.now() - load.asked > EVERY_MS) {
    load = { asked: performance.now(), nodes: (await get("/v1/load")).nodes };
  }
  return load.nodes;
}

export async function siteView(place) {
  const [seen, busy] = await Promise.all([get("/v1/top"), loadOfLastHour()]);
  const names = Object.fromEntries(seen.runs.map((run) => [run.run_id, run.name]));
  redraw(place, figures(seen),
    h("h2", {}, "Nodes"), h("p", { class: "soft" }, key("own", "in use by runs"), key("promised", "promised"), key("strangers", "in use by others")),
    h("div", { class: "nodes" }, seen.nodes.map((node) => nodeCard(node, busy[node.node] ?? {}, names))),
    h("h2", {}, "Time line"), timeline(seen.runs, seen.queue),
    h("h2", {}, "Running"), running(seen.runs),
    h("h2", {}, "Waiting"), waiting(seen.queue));
}

const key = (kind, text) => h("span", {}, h("span", { class: `key is-${kind}` }), text);

function figures(seen) {
  const gpus = seen.nodes.flatMap((node) => node.gpus);
  const free = gpus.filter((gpu) => !gpu.promised_bytes && !gpu.lost && !gpu.drained).length;
  const figure = (count, text) => h("li", {}, h("b", {}, String(count)), text);
  return h("ul", { class: "figures" },
    figure(seen.nodes.filter((node) => node.state === "ready").length, `of ${seen.nodes.length} nodes ready`),
    gpus.length ? figure(free, `of ${gpus.length} GPUs promised to nobody`) : null,
    figure(seen.runs.length, "running"), figure(seen.queue.length, "waiting"));
}

const strangerText = (each) => `${each.user ? `${each.user}'s ${each.command}, ` : ""}pid ${each.pid}, ${size(each.memory_bytes)}, since ${clock(each.since)}`;

// By what runs that share a GPU are kept to their memory: MemoryMeans in the code.
const KEPT = { driver_limit: ", memory kept by the driver", watch: ", memory watched", mig: ", one run a slice", whole: ", one run at a time" };

function holders(gpu, names) {
  const runs = gpu.runs.map((each) => h("a", { href: `#/runs/${each.run_id}` }, names[each.run_id] ?? `run ${each.run_id.slice(0, 8)}`));
  const others = (gpu.strangers ?? []).map((each) => h("span", { class: "bad" }, `no run's: ${strangerText(each)}`));
  return [...runs, ...others].flatMap((each) => [" · ", each]);
}

function nodeCard(node, busy, names) {
  const strangers = (used, own) => (used === null || own === null ? null : Math.max(used - own, 0));
  const device = (name, memory, line, told) => h("div", { class: "device" },
    h("span", {}, name), memory, line, h("span", { class: "told" }, told));
  const host = { whole: node.host_memory_bytes, promised: node.host_promised_bytes,
    own: node.host_runs_used_bytes, strangers: strangers(node.host_used_bytes, node.host_runs_used_bytes) };
  const row = (gpu) => {
    const name = `gpu${gpu.index} ${gpu.name}`;
    if (gpu.drained) return h("p", { class: "bad" }, `${name} takes no runs: ${gpu.drained}`);
    if (gpu.lost) return h("p", { class: "bad" }, `${name} is lost: ${gpu.lost}`);
    const memory = { whole: gpu.memory_bytes, promised: gpu.promised_bytes, own: gpu.runs_used_bytes,
      strangers: strangers(gpu.used_bytes, gpu.runs_used_bytes) };
    return device(name, memoryBar(`Memory of ${name}`, memory), busyLine(name, busy[gpu.uuid] ?? []), h("span", {},
      `${size(gpu.promised_bytes)} of ${size(gpu.memory_bytes)} promised, ${size(gpu.used_bytes)} in use; busy ${percent(gpu.utilisation_frac)}`,
      h("span", { title: gpu.memory_kept_why }, KEPT[gpu.memory_kept_by] ?? ""), holders(gpu, names)));
  };
  return h("section", { class: "card", "aria-label": `Node ${node.node}` },
    h("h3", {}, node.node, " ", h("span", { class: node.state === "ready" ? "good" : "bad" },
      node.state_reason ? `${node.state} (${node.state_reason})` : node.state)),
    device("host", memoryBar(`Host memory of ${node.node}`, host), busyLine(`CPUs of ${node.node}`, busy.host ?? []),
      `${size(host.promised)} of ${size(host.whole)} promised, ${size(node.host_used_bytes)} in use; ${node.cpus_promised} of ${node.cpus} CPUs promised`),
    node.gpu_error ? h("p", { class: "bad" }, node.gpu_error) : null,
    node.gpus.length > MOST_ROWS ? folded(node, row) : node.gpus.map(row));
}

// Many GPUs: a cell of each, filled as far as its memory is promised and in use.
function folded(node, row) {
  const name = `gpus-${node.node}`;
  const keep = (event) => (event.target.open ? unfolded.add(name) : unfolded.delete(name));
  const isIll = (gpu) => gpu.lost || gpu.drained;
  const well = node.gpus.filter((gpu) => !isIll(gpu));
  const free = well.filter((gpu) => !gpu.promised_bytes).length;
  return h("div", {}, h("div", { class: "cells" }, node.gpus.map(gpuCell)), node.gpus.filter(isIll).map(row),
    h("details", { open: unfolded.has(name), ontoggle: keep }, h("summary", { id: name }, `${well.length} GPUs, ${free} promised to nobody`), well.map(row)));
}

function running(runs) {
  const rows = runs.map((run) => [
    h("span", {}, runLink(run.run_id, run.name), run.warnings.map((each) => h("div", { class: "bad" }, `${each.kind}: it ${each.text}`))),
    run.owner || NOT_KNOWN, run.node ?? NOT_KNOWN,
    run.done_frac === null ? NOT_KNOWN
      : h("progress", { max: 1, value: run.done_frac, "aria-label": `${run.name} is done by` }),
    duration(run.elapsed_s), run.progress_text || NOT_KNOWN]);
  return table("Running", [["run", "name"], ["owner"], ["node"], ["done"], ["has run for", "n"], ["progress", "span"]], rows, "Nothing runs that you may see.");
}

function waiting(queue) {
  const rows = queue.map((run) => [
    String(run.position), run.run_id ? runLink(run.run_id, run.name) : h("span", { class: "soft" }, "of another team"),
    run.owner ?? NOT_KNOWN, start(run), run.reason ?? ""]);
  return table("Waiting", [["place", "n"], ["run", "name"], ["owner"], ["expected start"], ["reason", "wide"]], rows, "Nothing waits.");
}

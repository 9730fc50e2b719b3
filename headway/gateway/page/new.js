// A new job as a form, with what it would take beside it; its values win over a job file's text.

import { Refused, get, post } from "./api.js";
import { h, redraw } from "./dom.js";
import { ways, waysTable } from "./ways.js";
import { NOT_KNOWN, COST_TITLE, clock, cost, duration, size, start } from "./words.js";

const PAUSE_MS = 500;
const LARGEST_FILE = 32 * 1024;
const whole = (text) => (/^\d+$/.test(text) ? Number(text) : text);
const decimal = (text) => (Number.isFinite(Number(text)) ? Number(text) : text);
// Field of the job, what it is called, how its text is read (the command by the gateway, as a shell does), and an example.
const FIELDS = [
  ["name", "Name", String, "resnet-baseline"], ["image", "Image", String, "pytorch:2.6"], ["python", "or Python", String, "3.11"],
  ["command", "Command", null, "python train.py --lr {lr}"],
  ["resources.gpus", "GPUs", whole, "1 or 2-8"], ["resources.gpu_type", "GPU type", String, ""],
  ["resources.cpus", "CPUs", decimal, "4"], ["resources.host_memory", "Memory", String, "16GiB"],
  ["training.epochs", "Epochs", whole, "90"], ["max_runtime", "Time limit", String, "4h"],
];
let kept = { values: {}, text: "", from: "", key: "", read: null };
let waits = null;
let asking = new AbortController();
let view = null; // drawn before it is a part of the page

export async function newView(place, from = "") {
  if (place.querySelector("#new-job") && kept.from === from) return; // what is being typed stays
  if (from && kept.from !== from) {
    const run = await get(`/v1/runs/${from}`);
    const { owner, team, ...job } = run.job;
    const read = await post("/v1/job-files", { text: JSON.stringify(job) });
    kept = { values: {}, text: read.text, from, key: "", read };
  }
  kept.from = from;
  view = h("div", { class: "two" }, form(), h("section", { id: "answer", "aria-label": "What it would take", role: "status" }));
  redraw(place, h("h2", {}, "New job"), view);
  ask();
}

function form() {
  const input = ([field, label, , example]) => h("label", {}, label, h("input", {
    id: `f-${field}`, value: kept.values[field] ?? "", class: written(field) ? "said" : null, onfocus: fill, onblur: empty, "data-example": example && `such as ${example}`, placeholder: written(field) ?? (example && `such as ${example}`), autocomplete: "off", spellcheck: "false",
    oninput: (event) => { kept.values[field] = event.target.value; later(); } }));
  const limit = (field, label, example) => input([field, label, String, example]);
  const area = (id, label, rows, value, example, change) => h("label", { class: "long" }, label, h("textarea", {
    id, rows, placeholder: example, spellcheck: "false", oninput: (event) => { change(event.target.value); later(); } }, value));
  return h("form", { id: "new-job", class: "card", onsubmit: (event) => { event.preventDefault(); submitJob(); } },
    h("div", { class: "fields" }, FIELDS.map(input), limit("budget", "Budget (site's currency)", ""), limit("deadline", "Ends within hours", "")),
    area("array", "Many runs (an array): each parameter with its values", 2, kept.values.array ?? "", "lr=0.1,0.01 seed=1..5",
      (text) => { kept.values.array = text; }),
    h("label", { class: "long" }, "Job file", h("input", { id: "file", type: "file", accept: ".yaml,.yml,.json", onchange: opened })),
    area("text", "Text of the job file; the fields above win over it", 10, kept.text, "env:\n  SEED: \"1\"\npreemptible: true",
      (text) => { kept.text = text; }),
    h("div", { class: "filters" }, h("button", { id: "submit-job" }, "Submit"), h("button", { id: "save", type: "button", onclick: save }, "Save as a job file")),
    h("p", { class: "soft" }, "No folder is sent from here: the program has to be in the image, or is that of the run you started this form from. ", h("code", {}, "headway run"), " sends your folder along."),
    h("p", { id: "said", role: "alert", class: "bad" }));
}

// What the text says can be changed in its field.
function fill({ target }) {
  target.value ||= written(target.id.slice(2)) ?? "";
}

function empty({ target }) {
  if (target.value === written(target.id.slice(2)) && !kept.values[target.id.slice(2)]) target.value = "";
}

// What the text of the job file says of a field.
function written(field) {
  if (field === "command") return kept.read?.command || null;
  const value = field.split(".").reduce((part, name) => part?.[name], kept.read?.job);
  if (value === undefined || value === null || value === "" || typeof value === "object" && !value.length) return null;
  return String(value);
}

async function opened(event) {
  const [file] = event.target.files;
  if (!file) return;
  if (file.size > LARGEST_FILE) return tell(`${file.name} has ${size(file.size)}: a job file has at most ${size(LARGEST_FILE)} here`);
  kept = { ...kept, values: {}, key: "", read: null, text: await file.text() };
  view.firstElementChild.replaceWith(form());
  ask();
}

function asked() {
  const changes = FIELDS.filter(([field, , reads]) => reads && kept.values[field]?.trim())
    .map(([field, , reads]) => `${field}=${JSON.stringify(reads(kept.values[field].trim()))}`);
  return { text: kept.text, changes, command: kept.values.command?.trim() ?? "", array: (kept.values.array ?? "").split(/\s+/).filter(Boolean) };
}

const isEmpty = ({ text, changes, command, array }) => !text.trim() && !changes.length && !command && !array.length;
const later = () => { clearTimeout(waits); kept.key = ""; waits = setTimeout(ask, PAUSE_MS); };

async function ask() {
  const mine = asked();
  const place = view.lastElementChild;
  tell("");
  asking.abort(); // of what was typed before nobody wants to know
  const { signal } = asking = new AbortController();
  if (isEmpty(mine)) return redraw(place, h("p", { class: "soft" }, "What it would take is told here while you type: time, memory and cost by GPU type and count, and when it would start."));
  place.setAttribute("aria-busy", "true");
  const parts = [];
  try {
    const read = await post("/v1/job-files", mine, signal);
    const limits = { ...limit("budget", "budget", 1), ...limit("deadline", "deadline_s", 3600) };
    const [now, found] = await Promise.all([post("/v1/rehearsals", { job: read.member }, signal).catch(refused), post("/v1/estimates", { job: read.member, ...limits }, signal).catch(refused)]);
    kept.read = read;
    parts.push(read.array ? h("p", {}, h("b", {}, `${read.size} run${read.size === 1 ? "" : "s"}`), "; of the first:", unused(read)) : null, now instanceof Refused ? h("p", { class: "bad" }, now.message) : standing(now));
    if (found instanceof Refused) {
      if (found.message !== now.message) parts.push(h("p", { class: "bad" }, found.message));
    } else parts.push(verdict(found.options, limits), ways(found.options), waysTable(found.options));
    mark("");
  } catch (error) {
    if (signal.aborted) return;
    parts.push(h("p", { class: "bad" }, plainly(error)));
    mark(error.field ?? "");
  }
  place.removeAttribute("aria-busy");
  redraw(place, ...parts.filter(Boolean));
}

function limit(field, name, unit) {
  const text = kept.values[field]?.trim();
  if (!text) return {};
  const value = Number(text);
  if (!(Number.isFinite(value) && value >= 0)) throw new Refused(`${field}: got "${text}"; give a number, such as 1.5`, field);
  return { [name]: value * unit };
}

function refused(error) {
  if (error instanceof Refused) return error;
  throw error;
}

// A parameter that the command does not name: the program has to read its variable.
function unused({ job, array }) {
  const names = Array.isArray(array.parameters) ? array.parameters.map(([name]) => name) : Object.keys(array.members[0]);
  const text = JSON.stringify([job.command, Object.values(job.env)]);
  const left = names.filter((name) => !text.includes(`{${name}}`));
  return left.length ? h("p", { class: "bad" }, `${left.map((name) => `{${name}}`).join(", ")} is not in the command: the program has to read ${left.map((name) => `HEADWAY_ARRAY_${name.toUpperCase()}`).join(", ")}`) : null;
}

function standing(now) {
  const said = now.predicted;
  const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  return h("dl", { class: "facts" },
    fact("Starts", now.starts_now ? now.reason : `${start(now)}; ${now.reason}`),
    now.promised_start_at ? fact("Goes first from", clock(now.promised_start_at)) : null,
    fact("Takes", now.runtime_known ? `about ${duration(said.runtime_s)} (${duration(said.runtime_low_s)} to ${duration(said.runtime_high_s)})` : "not known before its first run; times and costs below are rough guesses"),
    fact(COST_TITLE, now.runtime_known ? cost(said.cost) : "not known either"), fact("Host memory", size(now.needs_host_memory_bytes)),
    now.needs_gpus ? fact("GPUs", `${now.needs_gpus}, ${now.needs_whole_gpus ? "whole" : `${size(now.needs_gpu_memory_bytes)} of each`}`) : null,
    fact("Rests on", said.basis ?? NOT_KNOWN),
    now.changes.length ? fact("Sooner with", h("ul", {}, now.changes.map((each) => h("li", {}, `${each.text}: ${start(each)}`)))) : null);
}

function verdict(options, limits) {
  if (!Object.keys(limits).length) return null;
  const kept = options.filter((each) => each.within).length;
  return h("p", { class: kept ? "good" : "bad" }, `${kept} of ${options.length} ways keep to budget and deadline, by the upper end of the interval.`);
}

function mark(field) {
  for (const each of view.querySelectorAll("input")) {
    if (each.id === `f-${field}`) each.setAttribute("aria-invalid", "true");
    else each.removeAttribute("aria-invalid");
    const said = written(each.id.slice(2));
    each.classList.toggle("said", said !== null);
    each.placeholder = said ?? each.dataset.example ?? "";
  }
}

const plainly = (error) => error.message.replace(/^--set (job file: )?/, "");
const tell = (text) => { view.querySelector("#said").textContent = text; };

async function submitJob() {
  const button = view.querySelector("#submit-job");
  button.disabled = true;
  clearTimeout(waits);
  asking.abort();
  // A second press after a lost answer gives the same run.
  kept.key ||= [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  try {
    const read = await post("/v1/job-files", asked());
    const made = await post(read.array ? "/v1/arrays" : "/v1/runs", { job: read.array ? { ...read.job, array: read.array } : read.job, key: kept.key });
    kept = { values: {}, text: "", from: "", key: "", read: null };
    location.hash = made.array_id ? `#/arrays/${made.array_id}` : `#/runs/${made.run_id}`;
  } catch (error) {
    tell(plainly(error));
    button.disabled = false;
  }
}

async function save() {
  try {
    const { text } = await post("/v1/job-files", asked());
    const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "text/yaml" })), download: "job.yaml" });
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    tell(plainly(error));
  }
}

// Which view is shown, and that it stays up to date.

import { get } from "./api.js";
import { arrayView } from "./array.js";
import { compareView } from "./compare.js";
import { redraw, h } from "./dom.js";
import { newView } from "./new.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { siteView } from "./site.js";
import { usageView } from "./usage.js";

const EVERY_MS = 5_000;
const main = document.getElementById("main");
const fresh = document.getElementById("fresh");
let round = 0;
let seenAt = null;

function chosen() {
  const [path, query] = location.hash.split("?");
  const [, name, id] = path.split("/");
  const asked = new URLSearchParams(query);
  if (/^[0-9A-Za-z-]{1,64}$/.test(id ?? "")) {
    if (name === "runs") return ["#/runs", (place) => runView(place, id)];
    if (name === "arrays") return ["#/runs", (place) => arrayView(place, id)];
    if (name === "new") return ["#/new", (place) => newView(place, id)];
  }
  if (name === "runs") return ["#/runs", (place) => runsView(place, asked)];
  if (name === "compare") return ["#/runs", (place) => compareView(place, asked)];
  if (name === "new") return ["#/new", newView];
  if (name === "usage") return ["#/usage", usageView];
  return ["#/", siteView];
}

async function show(again) {
  const mine = ++round;
  const [here, view] = chosen();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // A view that was left must not draw over the next one.
  const target = h("div");
  try {
    await view(again ? main.firstElementChild ?? target : target);
    if (mine !== round) return;
    if (!again) redraw(main, target);
    seenAt = Date.now();
  } catch (error) {
    if (mine !== round) return;
    if (!again || !seenAt) redraw(main, h("div", {}, h("p", { class: "bad", role: "alert" }, error.message)));
  }
  told();
  setTimeout(() => mine === round && (document.hidden ? wait() : show(true)), EVERY_MS);
}

function wait() {
  document.addEventListener("visibilitychange", () => show(true), { once: true });
}

function told() {
  const age = seenAt === null ? null : Math.round((Date.now() - seenAt) / 1000);
  const late = age === null || age > 15;
  fresh.className = late ? "late" : "";
  const text = age === null ? "the gateway does not answer" : late ? `not up to date: ${age} s old` : "live";
  if (fresh.textContent !== text) fresh.textContent = text;
}

setInterval(told, 1000);
addEventListener("hashchange", ({ oldURL, newURL }) => {
  if (oldURL.split("?")[0] !== newURL.split("?")[0]) { main.focus({ preventScroll: true }); scrollTo(0, 0); }
  show(false);
});
document.getElementById("log-out").addEventListener("click", async () => {
  await fetch("/v1/login", { method: "DELETE" });
  location.assign("/v1/login");
});

async function tellWho() {
  await show(false); // what people came for is asked for first
  const me = await get("/v1/me").catch(() => null);
  if (me) document.getElementById("who").textContent = me.team ? `${me.user}, ${me.team}` : me.user;
}
tellWho();

// Asks the gateway. The cookie of the login says who asks; without one the login comes up.

import { ahead } from "./ahead.js";

export class Refused extends Error {
  constructor(message, field) {
    super(message);
    this.field = field; // of the job that is wrong; undefined where it is something else
  }
}

async function answered(path, options) {
  const answer = (await ahead(path)) ?? (await fetch(path, { headers: { Accept: "application/json" }, ...options }));
  if (answer.status === 401) {
    location.assign("/v1/login" + location.hash); // which a browser keeps through the login
    throw new Refused("the token has ended; log in again");
  }
  return answer;
}

async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  return new Refused(said.detail ?? `HTTP ${answer.status}`, said.field);
}

const LONGEST_MS = 60_000; // else a question whose answer is lost would hold the view for ever

export async function get(path) {
  const answer = await answered(path, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(LONGEST_MS) });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export async function post(path, body = {}, signal = AbortSignal.timeout(LONGEST_MS)) {
  const answer = await answered(path, {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", Accept: "application/json" }, signal,
  });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

const MOST_LOG_BYTES = 2 * 1024 * 1024;

// The log from a byte on, and where it ends; of a very long one only the beginning.
export async function log(run, attempt, from) {
  const answer = await answered(`/v1/runs/${run}/log?attempt=${attempt}&from=${from}`);
  if (answer.status === 204) return { text: "", end: from, cut: false };
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.getReader();
  const parts = [];
  let end = from;
  while (end < MOST_LOG_BYTES) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    end += value.length;
  }
  const cut = end >= MOST_LOG_BYTES;
  if (cut) await reader.cancel();
  return { text: new TextDecoder().decode(await new Blob(parts).arrayBuffer()), end, cut };
}

// A picture that a program wrote is shown as a picture and as nothing else.
export async function picture(run, href) {
  const answer = await answered(`/v1/runs/${run}/outputs/${href}`);
  if (!answer.ok) throw await refusal(answer);
  const kind = href.toLowerCase().endsWith(".png") ? "image/png" : "image/jpeg";
  return URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: kind }));
}

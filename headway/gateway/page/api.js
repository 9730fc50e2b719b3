// Asks the gateway. The cookie of the login says who asks; without one the login comes up.

import { ahead } from "./ahead.js";

export class Refused extends Error {}

async function answered(path, options) {
  const answer = (await ahead(path)) ?? (await fetch(path, { headers: { Accept: "application/json" }, ...options }));
  if (answer.status === 401) {
    location.assign("/v1/login");
    throw new Refused("the token has ended; log in again");
  }
  return answer;
}

async function said(answer) {
  try {
    return (await answer.json()).detail ?? `HTTP ${answer.status}`;
  } catch {
    return `HTTP ${answer.status}`;
  }
}

export async function get(path) {
  const answer = await answered(path);
  if (!answer.ok) throw new Refused(await said(answer));
  return answer.json();
}

export async function act(path) {
  const answer = await answered(path, {
    method: "POST", body: "{}", headers: { "Content-Type": "application/json", Accept: "application/json" },
  });
  if (!answer.ok) throw new Refused(await said(answer));
}

const MOST_LOG_BYTES = 2 * 1024 * 1024;

// The log from a byte on, and where it ends; of a very long one only the beginning.
export async function log(run, attempt, from) {
  const answer = await answered(`/v1/runs/${run}/log?attempt=${attempt}&from=${from}`);
  if (answer.status === 204) return { text: "", end: from, cut: false };
  if (!answer.ok) throw new Refused(await said(answer));
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
  if (!answer.ok) throw new Refused(await said(answer));
  const kind = href.toLowerCase().endsWith(".png") ? "image/png" : "image/jpeg";
  return URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: kind }));
}

// Who held what of the site this month, and what of it was not used.

import { get } from "./api.js";
import { h, redraw, table } from "./dom.js";
import { COST, number } from "./words.js";

export async function usageView(place) {
  const found = await get("/v1/usage");
  const cells = (row) => [number(row.runs, 0), number(row.gpu_hours), number(row.idle_gpu_hours), number(row.gib_hours),
    number(row.unused_gib_hours), number(row.cpu_hours), number(row.unused_cpu_hours), number(row.cost, 2), number(row.idle_cost, 2)];
  const rows = found.rows.map((row) => [row.team, row.user, ...cells(row)]);
  if (rows.length) rows.push([h("b", {}, "all"), "", ...cells(found.total)]);
  const counted = ["runs", "GPU-hours", "of them idle", "GiB-hours", "GiB-hours not used", "CPU-hours", "CPU-hours not used", COST, "of it idle GPUs"];
  redraw(place, h("h2", {}, `Usage since ${found.since.slice(0, 10)}`),
    table("Usage", [["team"], ["user"], ...counted.map((name) => [name, "n"])], rows, "Nothing was held this month."));
}

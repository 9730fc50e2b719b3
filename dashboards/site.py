"""The whole site: what there is, what is promised of it, and who waits for it."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import StackingMode

from dashboards.panels import BYTES, COUNT, FRACTION, SECONDS, columns, dashboard, lines, number
from dashboards.queries import Prom

RUN_LINK = "/d/headway-run?var-run=${__data.fields.run_id}&${__url_time_range}"
NODE_LINK = "/d/headway-node?var-node=${__value.raw}&${__url_time_range}"

NUMBERS = (
    number("Nodes ready", COUNT, Prom('sum(headway_node_state{state="ready"})'), bad_below=1),
    number(
        "GPU memory promised",
        FRACTION,
        Prom("sum(headway_gpu_memory_promised_bytes) / sum(headway_gpu_memory_bytes)"),
    ),
    number("Runs running", COUNT, Prom('headway_runs{state="running"}')),
    number("Runs waiting", COUNT, Prom('headway_runs{state="waiting"}')),
    number(
        "Longest wait",
        SECONDS,
        Prom("headway_queue_oldest_wait_seconds"),
        bad_from=4 * 3600,
        text="Of the runs that wait now; red from where QueueStarving fires.",
    ),
    number("Alerts", COUNT, Prom('count(ALERTS{alertstate="firing"}) or vector(0)'), bad_from=1),
)

LINES = (
    lines(
        "GPU memory",
        BYTES,
        Prom("sum(headway_gpu_memory_bytes)", "all"),
        Prom("sum(headway_gpu_memory_promised_bytes)", "promised"),
        Prom("sum(headway_gpu_memory_used_bytes)", "in use"),
        text="In use above promised: somebody outside headway, or a run over its grant.",
    ),
    lines(
        "GPU utilisation by node",
        FRACTION,
        Prom("avg by (node) (headway_gpu_utilisation_ratio)", "{{node}}"),
        most=1,
    ),
    lines(
        "Runs",
        COUNT,
        Prom('headway_runs{state=~"waiting|claimed|running"}', "{{state}}"),
        stacked=StackingMode.NORMAL,
    ),
    lines(
        "What waiting runs wait for",
        COUNT,
        Prom(
            "headway_queue_runs and on (resource) max_over_time(headway_queue_runs[$__range]) > 0",
            "{{resource}}",
        ),
        stacked=StackingMode.NORMAL,
    ),
    lines(
        "Host memory in use",
        FRACTION,
        Prom("headway_node_memory_used_bytes / headway_node_memory_bytes", "{{node}}"),
        most=1,
    ),
    lines("Free disk", BYTES, Prom("headway_node_disk_free_bytes", "{{node}}"), limit=10 * 2**30),
)

TABLES = (
    columns(
        "Nodes",
        {"node": "", "pool": "", "state": "", "Value #B": SECONDS, "Value #C": COUNT},
        Prom("max by (node, pool, state) (headway_node_state) == 1"),
        Prom("max by (node) (headway_node_heartbeat_age_seconds)"),
        Prom("count by (node) (headway_gpu_memory_bytes)"),
        names={"Value #B": "last heard of", "Value #C": "GPUs"},
        links={"node": NODE_LINK},
        width=12,
    ),
    columns(
        "Alerts that fire",
        {"alertname": "", "severity": "", "node": "", "index": ""},
        Prom('ALERTS{alertstate="firing"}'),
        names={"alertname": "alert", "index": "GPU"},
        width=12,
    ),
    columns(
        "Running now",
        {
            "run": "",
            "run_id": "",
            "node": "",
            "Value #A": SECONDS,
            "Value #B": FRACTION,
            "Value #C": SECONDS,
        },
        # Without the metric's own name, by which rows of different queries would differ.
        Prom("max by (run, run_id, node) (headway_run_elapsed_seconds)"),
        Prom("max by (run, run_id, node) (headway_run_progress_ratio)"),
        Prom("max by (run, run_id, node) (headway_run_remaining_seconds)"),
        names={"Value #A": "elapsed", "Value #B": "done", "Value #C": "remaining"},
        links={"run": RUN_LINK},
    ),
)


def build() -> Dashboard:
    """The dashboard."""
    text = "What the site has, what is promised of it, and who waits for it."
    return dashboard("headway-site", "headway: site", text, (*NUMBERS, *LINES, *TABLES))

"""One node: its host, its GPUs and what runs there."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import BigValueTextMode

from dashboards.panels import (
    BYTES,
    BYTES_PER_S,
    CELSIUS,
    COUNT,
    FRACTION,
    SECONDS,
    WATTS,
    choice,
    columns,
    dashboard,
    lines,
    number,
)
from dashboards.queries import Prom
from dashboards.site import RUN_LINK


def _of(metric: str, legend: str = "") -> Prom:
    return Prom(f'headway_{metric}{{node="$node"}}', legend)


NUMBERS = (
    number(
        "State",
        COUNT,
        Prom('headway_node_state{node="$node"} == 1', "{{state}}"),
        shown=BigValueTextMode.NAME,
    ),
    number("Last heard of", SECONDS, _of("node_heartbeat_age_seconds"), bad_from=60),
    number(
        "GPUs readable",
        COUNT,
        _of("node_gpus_readable"),
        bad_below=1,
        words={"0": "no", "1": "yes"},
        text="No GPU job starts while they cannot be read.",
    ),
    number("CPUs", COUNT, _of("node_cpus")),
    number("Host memory", BYTES, _of("node_memory_bytes")),
    number("Free disk", BYTES, _of("node_disk_free_bytes"), bad_below=10 * 2**30),
)

LINES = (
    lines("CPUs in use", FRACTION, _of("node_cpu_usage_ratio", "all CPUs"), most=1),
    lines(
        "Host memory",
        BYTES,
        _of("node_memory_bytes", "all"),
        _of("node_memory_promised_bytes", "promised"),
        _of("node_memory_used_bytes", "in use"),
    ),
    lines(
        "GPU memory in use",
        BYTES,
        _of("gpu_memory_used_bytes", "GPU {{index}}"),
        text="By anybody. A GPU without a line cannot be read.",
    ),
    lines("GPU memory promised", BYTES, _of("gpu_memory_promised_bytes", "GPU {{index}}")),
    lines(
        "GPU utilisation",
        FRACTION,
        _of("gpu_utilisation_ratio", "GPU {{index}}"),
        most=1,
        width=8,
        text="Share of time in which a kernel ran.",
    ),
    lines("GPU power", WATTS, _of("gpu_power_watts", "GPU {{index}}"), width=8),
    lines("GPU temperature", CELSIUS, _of("gpu_temperature_celsius", "GPU {{index}}"), width=8),
    lines(
        "PCIe",
        BYTES_PER_S,
        _of("gpu_pcie_receive_bytes_per_second", "to GPU {{index}}"),
        _of("gpu_pcie_transmit_bytes_per_second", "from GPU {{index}}"),
    ),
    lines(
        "NVLink",
        BYTES_PER_S,
        _of("gpu_nvlink_receive_bytes_per_second", "to GPU {{index}}"),
        _of("gpu_nvlink_transmit_bytes_per_second", "from GPU {{index}}"),
    ),
)

RUNS = columns(
    "Runs here",
    {"run": "", "run_id": "", "Value #A": SECONDS, "Value #B": FRACTION, "Value #C": SECONDS},
    *(
        Prom(f'max by (run, run_id) (headway_run_{metric}{{node="$node"}})')
        for metric in ("elapsed_seconds", "progress_ratio", "remaining_seconds")
    ),
    names={"Value #A": "elapsed", "Value #B": "done", "Value #C": "remaining"},
    links={"run": RUN_LINK},
)


def build() -> Dashboard:
    """The dashboard."""
    node = choice("node", "Node", "label_values(headway_node_cpus, node)")
    text = "One node: its host, its GPUs and what runs there."
    return dashboard("headway-node", "headway: node", text, (*NUMBERS, *LINES, RUNS), node)

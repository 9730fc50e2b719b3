"""How busy nodes were, minute by minute, as plain data with documented keys (docs/json.md)."""

from typing import Any

from headway.site import Site
from headway.units import HOUR_S, MINUTE_S
from headway.views.fields import iso_time

HOST = "host"
"""The key of the CPUs, beside the uuids of the GPUs."""


def load_document(site: Site) -> dict[str, Any]:
    """Of each node of *site*, the share of its CPUs' and of each GPU's time in use: last hour."""
    recent = site.ledger.telemetry.recent(period_s=int(MINUTE_S), last_s=HOUR_S)
    nodes: dict[str, dict[str, list[list[Any]]]] = {}
    for name, points in recent.items():
        of_node = nodes.setdefault(name, {})
        for each in points:
            of_node.setdefault(each.gpu or HOST, []).append([iso_time(each.at), each.busy_frac])
    return {"period_s": MINUTE_S, "nodes": nodes}

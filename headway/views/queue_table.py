"""The queue as words, from what the gateway gives."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headway.policy.outlook import around

OF_OTHERS = "of another team"
"""In the place of the name of a run that is not shown."""


def waiting_name(view: Mapping[str, Any]) -> str:
    """What a line of the queue is called, for people."""
    more = (view["array_waiting"] or 1) - 1
    name = view["name"] or OF_OTHERS
    return f"{name} and {more} more of its array" if more > 0 else str(name)


def start_text(view: Mapping[str, Any], now: datetime) -> str:
    """When a waiting run is expected to start, by *now*'s clock: ``about 07:06 (07:02–07:15)``."""
    if view["starts_now"]:
        return "now"
    names = ("earliest_start_at", "expected_start_at", "latest_start_at")
    times = [view[name] and datetime.fromisoformat(view[name]) for name in names]
    first, expected, last = (each and each.astimezone(now.tzinfo) for each in times)
    if expected is None:
        return "not known" + (f": {view['start_unknown']}" if view["start_unknown"] else "")
    return around(first, expected, last, now)

"""Why a run waits and what would help, as plain data with documented keys (docs/json.md)."""

from collections.abc import Callable
from typing import Any

from headway.errors import InvalidInput
from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.policy.fit import WaitingRun
from headway.policy.outlook import clock
from headway.policy.plan import Stay
from headway.scheduler.why import Holder, Why, why
from headway.site import Site
from headway.views.fields import fields, iso_time
from headway.views.queue_document import change_view, start_fields, wait_fields
from headway.views.queue_table import start_text
from headway.views.run_report import escaped

_SHOWN = 5
BEHIND = "too many runs are ahead of it to be planned for"


def why_view(site: Site, record: RunRecord, *, sees: Callable[[str], bool]) -> dict[str, Any]:
    """Why the run of *record* waits, as `headway why --json` prints it.

    Args:
        site: Where.
        record: The run.
        sees: Whether the reader may see whose the runs of a team are.

    Raises:
        InvalidInput: It does not wait.
    """
    found = why(site, record) if record.state is RunState.WAITING else None
    if found is None:
        now = site.ledger.runs.get(record.run_id)  # it may have started since *record* was read
        state = "suspended" if now.suspended_at is not None else now.state.value
        raise InvalidInput("run", record.name, f"it does not wait for its start: it is {state}")
    return {
        **fields(record, "run_id", "name"),
        **_entry_fields(found),
        "holders": [_holder(one, sees) for one in found.holders],
        "ahead": [
            {
                "position": one.position,
                "run_id": one.run.run_id if sees(one.run.team) else None,
                "name": one.run.name if sees(one.run.team) else None,
                "team": one.run.team if sees(one.run.team) else None,
                "why": one.why,
            }
            for one in found.ahead
        ],
        "changes": [change_view(one) for one in found.advice],
    }


def _entry_fields(found: Why) -> dict[str, Any]:
    entry = found.entry
    return {
        **wait_fields(entry, None, found.held_back or BEHIND),
        "position": None if entry is None else entry.position,
        "promised_start_at": iso_time(entry.promised_at if isinstance(entry, Stay) else None),
    }


def _holder(one: Holder, sees: Callable[[str], bool]) -> dict[str, Any]:
    seen, lease = sees(one.record.team), one.lease
    return {
        "run_id": one.record.run_id if seen else None,
        "name": one.record.name if seen else None,
        "team": one.record.team if seen else None,
        "node": lease.node,
        "gpus": len(lease.gpus),
        "gpu_memory_bytes": sum(gpu.memory_bytes for gpu in lease.gpus),
        "host_memory_bytes": lease.host_memory_bytes,
        "cpus": lease.cpus,
        "expected_end_at": iso_time(one.expected_end_at),
    }


def why_text(record: RunRecord, found: Why) -> str:
    """The same as Markdown for the page of the run, as its own team may read it."""

    def called(run: RunRecord | WaitingRun) -> str:
        return escaped(run.name) if run.team == record.team else "a run of another team"

    lines = ["", "**What would start it earlier**, submitted anew:", ""]
    lines += [
        f"- {escaped(one.text)}: {start_text(start_fields(one.entry), found.at)}"
        for one in found.advice
    ] or ["- no single change of what it asks, notably"]
    lines += ["", "**Who has what it needs:**", ""]
    for holder in found.holders[:_SHOWN]:
        ends = holder.expected_end_at
        when = "its end is not known" if ends is None else f"ends about {clock(ends, found.at)} UTC"
        lines.append(f"- {called(holder.record)} on {escaped(holder.lease.node)}: {when}")
    lines += ["", "**Who is ahead:**", ""]
    lines += [f"- {called(one.run)}: {one.why}" for one in found.ahead[:_SHOWN]] or ["- nobody"]
    return "\n".join(lines) + "\n"

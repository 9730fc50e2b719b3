"""The runs that wait, as plain data (`views.answers`)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from headway.errors import InvalidInput
from headway.ledger.records import RunRecord
from headway.model.lease import Demand, Sharing
from headway.model.run import Prediction, RunState
from headway.model.size import Size
from headway.policy.fit import WaitingRun
from headway.policy.outlook import clock
from headway.policy.plan import Plan, Start, Stay
from headway.scheduler.announced import is_behind
from headway.scheduler.planning import read_pool
from headway.scheduler.why import Advice, Holder, Why, why
from headway.site import Site
from headway.views.answers import AheadShown, HolderShown, Waiting
from headway.views.fields import fields, iso_time, shaped
from headway.views.run_document import predicted_view, size_words
from headway.views.run_markdown import escaped
from headway.views.tables import start_text


def line_views(site: Site, pool: str = "") -> list[dict[str, Any]]:
    """The queue of a pool in its order, as `headway queue --json` prints it.

    The runs near the front are planned for at this moment; those behind them
    follow by submission. A suspended run has no place in it.

    Args:
        site: Where.
        pool: The pool; empty for this node's.
    """
    return [waiting_view(*line) for line in _lines(site, pool)]


def _lines(site: Site, pool: str) -> Iterator[tuple[int, RunRecord, Start | Stay | None]]:
    """Position and record of each run, and what the plan says of it."""
    now = read_pool(site, pool)
    records = {run_id: entry.record for run_id, entry in now.waiting.entries.items()}
    # Of those that were submitted a moment ago no demand is known yet.
    records |= site.ledger.runs.of(list(now.waiting.versions.keys() - records.keys()))
    made = now.whole_plan() if records else Plan()
    planned = [entry for entry in (*made.entries, *made.behind) if entry.run_id in records]
    yield from ((entry.position, records.pop(entry.run_id), entry) for entry in planned)
    behind = sorted(records.values(), key=lambda run: (-run.priority, run.submitted_at, run.run_id))
    for position, record in enumerate(behind, start=len(planned) + 1):
        # Now, and not when its record was read, which is kept from one question to the next.
        wait = now.left_out.get(record.run_id) or is_behind(len(made.entries))
        yield position, replace(record, resource=wait.resource, reason=wait.reason), None


def array_lines(site: Site, views: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*views*, from `line_views`, with one line for each array: its first member that waits.

    How many members have still to start is its ``array_waiting``.
    """
    ids = list(dict.fromkeys(view["array_id"] for view in views if view["array_id"]))
    counts = site.ledger.arrays.counts(ids)
    waiting: dict[str | None, int] = {
        each.array_id: counts[each.array_id].waiting_of(each)
        for each in site.ledger.arrays.of(ids).values()
    }
    return [
        view | {"array_waiting": waiting.pop(view["array_id"], None)}
        for view in views
        if view["array_id"] is None or view["array_id"] in waiting
    ]


def waiting_of(site: Site, record: RunRecord) -> dict[str, Any] | None:
    """What `line_views` says of one run; None when it waits no more."""
    lines = (line for line in _lines(site, record.pool) if line[1].run_id == record.run_id)
    found = next(lines, None)
    return None if found is None else waiting_view(*found)


def waiting_view(position: int, record: RunRecord, entry: Start | Stay | None) -> dict[str, Any]:
    """One waiting run as `headway queue --json` lists it.

    Args:
        position: 1 is the front of the queue.
        record: The run.
        entry: What the plan says now of a run near the front; None for those behind.
    """
    demand = record.demand
    return shaped(
        Waiting,
        record,
        position=position,
        owner=record.owner or None,
        **wait_fields(entry, record.resource, record.reason),
        needs_host_memory_bytes=demand.host_memory_bytes if demand else None,
        needs_gpus=demand.gpus if demand else None,
        promised_start_at=iso_time(_promised(record, entry)),
        predicted_runtime_s=record.prediction.runtime_s if record.prediction else None,
    )


def wait_fields(entry: Start | Stay | None, resource: str | None, reason: str) -> dict[str, Any]:
    """What a run waits for, until when; where nothing is planned for it, as the others say."""
    if isinstance(entry, Stay):
        resource, reason = entry.wait.resource, entry.wait.reason
    elif isinstance(entry, Start):
        nodes = ", ".join(admit.node for admit in entry.admits)
        resource, reason = None, f"starts now on {nodes}"
    return {"resource": resource, "reason": reason, **start_fields(entry)}


def start_fields(entry: Start | Stay | None) -> dict[str, Any]:
    """When a run that waits is expected to start, and why that is not known where it is not."""
    said = entry if isinstance(entry, Stay) else None
    return {
        "starts_now": isinstance(entry, Start),
        "earliest_start_at": iso_time(said.earliest_at if said else None),
        "expected_start_at": iso_time(said.expected_at if said else None),
        "latest_start_at": iso_time(said.latest_at if said else None),
        "start_unknown": said.unknown if said else "",
        "planned_at": iso_time((said.planned_at or said.said_at) if said else None),
    }


def held_back_view(why: str) -> dict[str, Any]:
    """What a rehearsal says of a start that something else than room holds up."""
    return {**start_fields(None), "position": None, "reason": why, "promised_start_at": None}


def _promised(record: RunRecord, entry: Start | Stay | None) -> datetime | None:
    """What the ledger keeps, or what the plan of this moment would have it keep."""
    return record.promised_at or (entry.promised_at if isinstance(entry, Stay) else None)


def rehearsal_view(
    entry: Start | Stay | None,
    said: Prediction,
    demand: Demand,
    changes: Sequence[Advice],
    sizes: Sequence[Size] = (),
    *,
    image: str = "",
) -> dict[str, Any]:
    """What `headway submit --dry-run --json` prints.

    Args:
        entry: What would become of the run; None where that is not planned yet.
        said: What is predicted of it; with `sizes` of each of them of which something is known.
        demand: What it would need.
        changes: What would start it earlier.
        sizes: Those that its job leaves open, the smallest first; needs and times are told of the
            one that it would start with, else of the smallest.
        image: In which it would start.
    """
    known = {Size(each.demand.nodes, each.demand.gpus): each for each in said.sizes}
    if isinstance(entry, Start) and (
        found := known.get(Size(entry.run.demand.nodes, entry.run.demand.gpus))
    ):
        said, demand = found.said, found.demand
    reason = "behind the runs that are planned for"
    if isinstance(entry, Stay):
        reason = f"waits: {entry.wait.reason}"
    elif isinstance(entry, Start):
        size = size_words(entry.run.demand)
        reason = f"at once, on {', '.join(admit.node for admit in entry.admits)}"
        reason += f": {size}" if size else ""
    return {
        "image": image,
        "position": None if entry is None else entry.position,
        "reason": reason,
        **start_fields(entry),
        "promised_start_at": iso_time(entry.promised_at if isinstance(entry, Stay) else None),
        "needs_host_memory_bytes": demand.host_memory_bytes,
        **fields(demand, "host_memory_basis", "host_memory_why", "gpu_memory_basis"),
        "needs_gpus": demand.gpus,
        "needs_gpu_memory_bytes": demand.gpu_memory_bytes,
        "needs_whole_gpus": demand.gpus > 0 and demand.sharing is Sharing.WHOLE,
        "runtime_known": said.told is not None,
        "predicted": predicted_view(said),
        "sizes": [
            {"size": each.words, **_time_of(known[each].said if each in known else Prediction())}
            for each in (sizes if len(sizes) > 1 else ())
        ],
        "changes": [change_view(one) for one in changes],
    }


def _time_of(said: Prediction) -> dict[str, Any]:
    """The runtime and the cost that are told; null where they are but a guess."""
    return fields(
        said if said.told is not None else Prediction(),
        *("runtime_low_s", "runtime_s", "runtime_high_s", "cost"),
    )


def change_view(one: Advice) -> dict[str, Any]:
    """One change of what a run asks that would start it earlier."""
    return {
        **fields(one, "field", "value", "text"),
        **start_fields(one.entry),
        "expected_end_at": iso_time(one.expected_end_at),
    }


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
        how = "is starting or runs" if now.exit is None else "has ended"
        how = "is suspended" if now.suspended_at is not None else how
        raise InvalidInput("run", record.name, f"give a run that waits for its start: it {how}")
    return {
        **fields(record, "run_id", "name"),
        **_entry_fields(found),
        "holders": [_holder(one, sees) for one in found.holders],
        "ahead": [shaped(AheadShown, one, **_whose(one.run, sees)) for one in found.ahead],
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
    lease = one.lease
    return shaped(
        HolderShown,
        lease,
        **_whose(one.record, sees),
        gpus=len(lease.gpus),
        gpu_memory_bytes=sum(gpu.memory_bytes for gpu in lease.gpus),
        expected_end_at=iso_time(one.expected_end_at),
    )


def _whose(run: RunRecord | WaitingRun, sees: Callable[[str], bool]) -> dict[str, Any]:
    known = ("run_id", "name", "team")
    return fields(run, *known) if sees(run.team) else dict.fromkeys(known)


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

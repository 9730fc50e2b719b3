"""From Prefect's runs to the scheduler's offers, as values. Nothing here asks or tells anybody."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from headway.errors import shown
from headway.leader.names import run_name_of
from headway.model.array import member_of
from headway.prefect.client import FLOW as TRAIN
from headway.project import FLOWS
from headway.scheduler.intake import Offer
from headway.worker.flow_process import refusal

_NEVER = datetime.max.replace(tzinfo=UTC)


TRAIN_PARAMETERS = frozenset({"job"})


def refused(runs: Sequence[FlowRun], flow_names: Mapping[UUID, str]) -> dict[UUID, str]:
    """Why some of *runs*, by id, are not to be started at all.

    Their flow is not this installation's, or takes no such parameters: each of its processes
    would end at once, and another one be started.
    """
    found = {}
    for run in runs:
        flow = flow_names.get(run.flow_id, "")
        unknown = run.parameters.keys() - TRAIN_PARAMETERS if flow == TRAIN else ()
        if flow not in FLOWS:
            found[run.id] = refusal(flow)
        elif unknown:
            names = ", ".join(shown(name, 60) for name in sorted(unknown)[:5])
            found[run.id] = (
                f"flow train has no parameter {names}, so its run was not started; give what the "
                "job needs below `job`"
            )
    return found


def offers(runs: Sequence[FlowRun], flow_names: Mapping[UUID, str]) -> list[Offer]:
    """Those that are not `refused`, as the scheduler takes them in, the oldest first."""
    not_own = refused(runs, flow_names)
    own = [run for run in runs if run.id not in not_own]
    made = [_offer(run, flow_names[run.flow_id]) for run in own]
    return sorted(made, key=lambda offer: offer.submitted_at)


def _offer(run: FlowRun, flow: str) -> Offer:
    given = run.parameters.get("job") if flow == TRAIN else None
    job = given if isinstance(given, dict) else None
    return Offer(
        run_id=str(run.id),
        name=run.name if job is None else run_name_of(run.name, job),
        document=job,
        submitted_at=run.created or _NEVER,
        queue=run.work_queue_name or "default",
        key=run.idempotency_key or "",
        member=member_of(run.idempotency_key) if job is not None else None,
        flow=flow,
    )

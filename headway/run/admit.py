"""Admits an attempt: its lease is confirmed, or what is missing is said."""

from dataclasses import replace

from headway.errors import ImpossibleDemand, LeaseLost
from headway.forecast import Forecaster
from headway.ledger.records import RunRecord
from headway.model.lease import Demand, Lease, Resource, Wait
from headway.model.run import Prediction
from headway.run.here import NodeAttempt
from headway.this_node import read_node


def confirm_lease(attempt: NodeAttempt) -> Lease | Wait:
    """Confirm the lease now that the data's real size is known, or say what is missing.

    Raises:
        ImpossibleDemand: No node of the site could ever hold it.
    """
    if attempt.container_exists():
        # It was admitted before a flow process died; it is only followed now, whatever
        # the node may still offer, and beside what was predicted before its start.
        if attempt.lease is None:
            raise LeaseLost(attempt.run_id, attempt.number, "its container is still there")
        return attempt.lease
    if attempt.lease is None:
        return Wait(Resource.TURN, "its claim was given back before its flow process began")
    record, rank, forecaster = attempt.taken_up, attempt.is_rank, attempt.forecaster
    said = forecast(attempt, record, forecaster, attempt.lease)
    if said != (record.prediction, record.demand):
        attempt.site.ledger.runs.predict(attempt.fence, *said)
    attempt.prediction, demand = said
    # A gang's parts are its leader's, which was asked.
    refusal = forecaster.refusal(
        demand,
        1 if rank else attempt.job.nodes,
        "" if rank else record.team,
        user=record.owner,
        pool=record.pool,
        queue=record.queue,
    )
    if refusal is not None:
        raise ImpossibleDemand(refusal.field, refusal.value, refusal.allowed)
    terms = forecaster.lease_terms(attempt.prediction.runtime_high_s)
    answer = attempt.site.ledger.leases.resize(
        attempt.lease.fence, demand, reading=read_node(attempt.site), **terms
    )
    if isinstance(answer, Lease):
        attempt.lease = answer
        about = forecaster.gpu_type(answer)
        # It may have been given another GPU after all.
        if about not in ("", "cpu", attempt.prediction.gpu_type):
            attempt.prediction, _ = forecast(attempt, record, forecaster, answer)
            attempt.site.ledger.runs.predict(attempt.fence, attempt.prediction, demand)
    return answer


def forecast(
    attempt: NodeAttempt, record: RunRecord, forecaster: Forecaster, lease: Lease | None
) -> tuple[Prediction, Demand]:
    """What is predicted and demanded, with the data's real size once it is staged.

    The worker said it before the claim; it is said anew only when staging
    found another size than the job declares, or the GPU is of another type
    than it is about, since loading the estimators takes longer than
    starting the container.
    """
    size = attempt.dataset_bytes
    declared = attempt.job.declared_data_bytes
    said, demand = record.prediction, record.demand
    gpu_type = forecaster.gpu_type(lease) if lease is not None else ""
    about_it = said is not None and gpu_type in ("", "cpu", said.gpu_type)
    if said is not None and demand is not None and about_it and size == declared:
        return said, demand
    on_cpu = demand is not None and not demand.gpus
    newly, needs = forecaster.forecast(
        attempt.job.without_gpus() if on_cpu else attempt.job,
        dataset_bytes=size,
        override=attempt.override,
        pool=record.pool,
        queue=record.queue,
        gpu_type="" if on_cpu else gpu_type,
    )
    if said is not None and demand is not None:  # at the size that it was granted
        newly, needs = replace(newly, sizes=said.sizes), replace(needs, nodes=demand.nodes)
    # Only other data changes what it needs: it was granted that already.
    return newly, needs if demand is None or size != declared else demand

"""`estimate`: what a job would take, cost and need on each kind of node, in the UI."""

from contextlib import suppress
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.page import show_picture
from headway.errors import InvalidInput, NotInstalled
from headway.forecast import Forecaster
from headway.ledger.database import Connections
from headway.model.job import TrainingJob
from headway.model.job_text import job_from_document
from headway.site import Site, current_site
from headway.units import COST, format_cost, format_duration, format_size, parse_duration


@task(cache_policy=NO_CACHE, persist_result=False)
def options(
    site: Site, document: Any, budget: float | None, deadline: str | None, prefer: str
) -> str:
    """Predict every way to run the job; a table, a picture and the choice."""
    # SciPy and matplotlib take seconds: only here.
    from headway.choice import Prefer, nothing_fits
    from headway.choice import document as option_document
    from headway.gateway.estimate import estimate_options

    job = document if isinstance(document, TrainingJob) else job_from_document(document)
    job = Forecaster(site).on_base_image(job, job.team).job
    deadline_s = parse_duration(deadline) if deadline else None
    found = estimate_options(
        site,
        job,
        budget=budget,
        deadline_s=deadline_s,
        prefer=Prefer(prefer),
    )
    if not found:
        return "no node of the site that takes runs could hold this job"
    create_table_artifact(
        [_row(option) for option in found],
        key="options",
        description="Every way to run the job, with 80 % intervals; the choice (→) first, "
        "* where no other is both as fast and as cheap.",
    )
    with suppress(NotInstalled):  # the table says as much
        from headway.views.charts import draw_options

        show_picture(
            draw_options([option_document(option) for option in found]),
            key="cost-against-time",
            description="Each option with its 80 % interval; the Pareto set is joined.",
        )
    best = found[0]
    if not best.chosen:
        return nothing_fits(option_document(best), budget, deadline_s)
    seconds = best.prediction.runtime_s or 0.0
    where = f"{best.gpus} × {best.gpu_type}" if best.gpus else "the CPU"
    return f"{where}: {format_duration(seconds)}, rests on {best.prediction.basis}"


def _row(option: Any) -> dict[str, Any]:
    said = option.prediction
    low, high = (format_duration(s or 0.0) for s in (said.runtime_low_s, said.runtime_high_s))
    # The page has room for nine narrow columns.
    on = f"{option.gpus} × {option.gpu_type}" if option.gpus else option.gpu_type
    return {
        "choice": "→" if option.chosen else "*" if option.pareto else "",
        "on": on if option.node_count == 1 else f"{option.node_count} nodes, {on}",
        "runtime": "unknown"
        if said.runtime_s is None
        else f"{format_duration(said.runtime_s)} ({low} to {high})",
        "wait": "–" if option.wait_s is None else format_duration(option.wait_s),
        COST: format_cost(said.cost),
        "host memory": format_size(option.demand.host_memory_bytes),
        "each GPU": _each_gpu(option),
        "in limits": "yes" if option.within else "no",
        "rests on": said.basis,
    }


def _each_gpu(option: Any) -> str:
    if not option.gpus:
        return "–"
    return "whole" if option.has_whole_gpus else format_size(option.demand.gpu_memory_bytes)


@flow(name="estimate", validate_parameters=False, persist_result=False)
def estimate(
    job: TrainingJob,
    budget: float | None = None,
    deadline: str | None = None,
    prefer: str = "fastest",
) -> State[Any]:
    """Say what a job would take, cost and need, without running it.

    Args:
        job: As for `train`.
        budget: Most it may cost.
        deadline: Must end within, such as 8h.
        prefer: fastest or cheapest.
    """
    try:
        return Completed(
            message=options(current_site(Connections.BRIEF), job, budget, deadline, prefer)
        )
    except (InvalidInput, ValueError) as error:
        return Failed(message=str(error).splitlines()[0])

"""Where and how large to run a job on this site: the options, with the wait that each has now."""

from dataclasses import replace

from headway.estimate.choice import Option, Prefer, options
from headway.estimate.recall import RECENT
from headway.gateway.submit import rehearsed
from headway.model.job import TrainingJob
from headway.policy.plan import Start, Stay
from headway.scheduler.queue import Line
from headway.site import Site


def weigh(
    site: Site,
    job: TrainingJob,
    *,
    budget: float | None = None,
    deadline_s: float | None = None,
    prefer: Prefer = Prefer.FASTEST,
) -> list[Option]:
    """Every way to run *job* on *site*, with the wait that each would have now.

    Args:
        site: Where.
        job: What.
        budget: Most it may cost, in the site's currency.
        deadline_s: Seconds from now by which it must end.
        prefer: What the choice is best in.

    Returns:
        See `estimate.choice.options`.
    """
    spaces = site.spaces()
    nodes = [node for node, _ in spaces]
    preview, now = Line(site).previews(), site.ledger.now()
    prediction, demand = site.forecast(job, dataset_bytes=None)
    short = site.estimators.tables.gpu_name
    products = {(n.name, short(gpu.name)): gpu.name for n in nodes for gpu in n.capacity.gpus}

    def wait_s(option: Option) -> float | None:
        product = products.get((option.nodes[0], option.gpu_type), "")
        asked = replace(demand, gpus=option.gpus // option.node_count, gpu_type=product)
        entry = rehearsed(preview, now, job, prediction, asked, nodes=option.node_count)
        if isinstance(entry, Start):
            return 0.0
        if isinstance(entry, Stay) and entry.expected_at:
            return max((entry.expected_at - now).total_seconds(), 0.0)
        return None

    return options(
        job,
        spaces,
        site.estimators,
        recent=site.ledger.traces.newest(job.recipe(), RECENT),
        budget=budget,
        deadline_s=deadline_s,
        prefer=prefer,
        wait_s=wait_s,
    )

"""Where and how large to run a job on this site: the options, with the wait that each has now."""

from collections.abc import Sequence
from dataclasses import replace

from headway.estimate.choice import Option, Prefer, options
from headway.estimate.recall import RECENT
from headway.line import Line
from headway.model.job import TrainingJob
from headway.policy.plan import Start, Stay
from headway.site import Site
from headway.submit import rehearsed


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
    nodes = site.nodes()
    preview, now = Line(site).previews(), site.ledger.now()
    prediction, demand = site.forecast(job, dataset_bytes=None, host_memory_bytes=None)
    products = {n.name: n.capacity.gpus[0].name for n in nodes if n.capacity.gpus}

    def wait_s(names: Sequence[str], node_count: int, gpus: int) -> float | None:
        product = next((products[name] for name in names if name in products), "")
        asked = replace(demand, gpus=gpus, gpu_type=product if gpus else "")
        entry = rehearsed(preview, now, job, prediction, asked, nodes=node_count)
        if isinstance(entry, Start):
            return 0.0
        if isinstance(entry, Stay) and entry.expected_at:
            return max((entry.expected_at - now).total_seconds(), 0.0)
        return None

    return options(
        job,
        nodes,
        site.estimators,
        recent=site.ledger.traces.newest(job.recipe(), RECENT),
        budget=budget,
        deadline_s=deadline_s,
        prefer=prefer,
        wait_s=wait_s,
    )

"""Where and how large to run a job on this site: the options, with the wait that each has now."""

from dataclasses import replace

from headway.choice import Option, Prefer, options
from headway.forecast import Forecaster
from headway.gateway.submit import planned, waiting_run
from headway.model.job import TrainingJob
from headway.model.lease import Refuse
from headway.policy.admission import over_quota
from headway.policy.plan import Start, Stay
from headway.scheduler.planning import read_pool
from headway.site import Site


def estimate_options(
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
        See `choice.options`.
    """
    forecaster, settings, now = Forecaster(site), site.policy_settings, site.ledger.now()
    spaces, plan = forecaster.spaces(), read_pool(site).plan
    prediction, _ = forecaster.forecast(job)
    short = site.estimators.tables.gpu_name
    gpus = [(node.name, gpu.name) for node, _ in spaces for gpu in node.capacity.gpus]
    products = {(node, short(name)): name for node, name in gpus}

    def is_allowed(option: Option) -> bool:
        team, limits, count = job.team, settings.team(job.team), option.node_count
        return over_quota(option.demand, team, limits, count=count, user=job.owner) is None

    def wait_s(option: Option) -> float | None:
        product = products.get((option.nodes[0], option.gpu_type), "")
        asked = replace(option.demand, gpu_type=product)
        run = waiting_run(job, prediction, asked, now, settings, nodes=option.node_count)
        entry = planned(plan, run)
        if isinstance(entry, Start):
            return 0.0
        if isinstance(entry, Stay) and entry.expected_at:
            return max((entry.expected_at - now).total_seconds(), 0.0)
        return None

    return options(
        job,
        spaces,
        site.estimators,
        gangs=not isinstance(forecaster.network(2, job.team), Refuse),
        recent=forecaster.recent(job),
        budget=budget,
        deadline_s=deadline_s,
        prefer=prefer,
        wait_s=wait_s,
        is_allowed=is_allowed,
        usual=forecaster.usual(job),
    )

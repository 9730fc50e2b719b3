"""`retrain-estimators`: the nightly refit, champion against challenger."""

from typing import TYPE_CHECKING

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from headway.model.trace import Trace
from headway.site import Site, current_site

if TYPE_CHECKING:
    from headway.estimate.evaluate import Score


@task(cache_policy=NO_CACHE, persist_result=False)
def load_traces(site: Site) -> list[Trace]:
    """Every trace of the ledger, oldest first."""
    return site.ledger.traces.all()


@task(cache_policy=NO_CACHE, persist_result=False)
def refit(site: Site, traces: list[Trace]) -> str:
    """Fit a challenger; it takes the champion's place only if it is better."""
    # scikit-learn and scipy take seconds: only here.
    from headway.retrain import retrain

    done = retrain(traces, site.settings.models_dir, fitted_at=site.ledger.now())
    verdict = done.verdict
    row = {
        "traces": done.traces,
        "checked on": verdict.runs,
        "champion's mean error": _percent(verdict.champion),
        "challenger's mean error": _percent(verdict.challenger),
        "promoted": "yes" if verdict.promoted else "no",
        "version in use": done.version or "prior",
    }
    create_table_artifact([row], key="estimators", description=verdict.reason)
    return verdict.reason


def _percent(score: "Score | None") -> str:
    return "–" if score is None else f"{score.mean_relative_error:.1%}"


@flow(name="retrain-estimators", persist_result=False)
def retrain_estimators() -> State[None]:
    """Refit the estimators on all traces, and keep the old ones if the new are worse."""
    site = current_site()
    return Completed(message=refit(site, load_traces(site)))

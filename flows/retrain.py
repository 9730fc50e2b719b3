"""`retrain-estimators`: the nightly refit, champion against challenger."""

from contextlib import suppress
from dataclasses import asdict, replace

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.page import show_picture
from headway.errors import NotInstalled
from headway.estimate.kinds import TOURNAMENT
from headway.estimate.starts import CALIBRATION, LOOKED_AT, learn, scores_document
from headway.ledger.codec import to_json
from headway.ledger.database import Connections
from headway.model.trace import Trace
from headway.site import Site, as_ids, current_site
from headway.this_node import OPERATORS_TEAM
from headway.views.tables import told


@task(cache_policy=NO_CACHE, persist_result=False)
def load_traces(site: Site) -> list[Trace]:
    """Every trace of the ledger, oldest first; all teams', where the site shares past runs."""
    found = site.ledger.traces.all()
    shared = site.policy_settings.share_past_runs
    if not shared:
        return found
    # Everybody's tell everybody; that they are theirs bounds what they count for.
    return [
        replace(
            t,
            team="",
            owner=f"{t.owner} of {t.team}" if t.team else "",
            beside=tuple(replace(each, team="") for each in t.beside),
        )
        for t in found
    ]


@task(cache_policy=NO_CACHE, persist_result=False)
def refit(site: Site, traces: list[Trace]) -> str:
    """Fit a challenger; it takes the champion's place only if it is better."""
    # scikit-learn and SciPy take seconds: only here.
    from headway.estimate.evaluation.retrain import retrain
    from headway.node.brought import BroughtEstimators

    folder, at = site.settings.models_dir, site.ledger.now()
    brought = BroughtEstimators(as_ids(site.user_of(OPERATORS_TEAM)))
    done = retrain(
        traces, folder, fitted_at=at, clock=site.clock, tables=site.tables, brought=brought
    )
    verdict = done.verdict
    create_table_artifact(
        told(
            {"model": name, **asdict(score)}
            for name, score in (("champion", verdict.champion), ("challenger", verdict.challenger))
            if score is not None
        ),
        key="estimators",
        description=f"{verdict.reason}. Version in use: {done.version or 'the prior'}; "
        f"{done.traces} traces, {verdict.runs} held out."
        + "".join(
            f" Not learnt, since no GPUs are so fast: {row}." for row in done.impossible[:10]
        ),
    )
    if done.tournament is not None and done.tournament.calibration:
        with suppress(NotInstalled):  # the table says as much
            from headway.views.charts import draw_calibration

            show_picture(
                draw_calibration(done.tournament.calibration),
                key="calibration-plot",
                description="Shares of runs below the quantiles that were promised.",
            )
    if done.tournament is not None:
        document = asdict(done.tournament) | {"words": done.tournament.words()}
        site.ledger.settings.keep(TOURNAMENT, document)
        for key, rows in (
            ("candidates", done.tournament.table),
            ("calibration", done.tournament.calibration),
            ("predicted-worst", done.tournament.worst),
        ):
            create_table_artifact(
                told(rows),
                key=key,
                description=f"{done.tournament.words()}. {_MEANT[key]}",
            )
    return verdict.reason


_MEANT = {
    "candidates": "By what was new in a run: everybody's errors on runs that they had not seen. A "
    "champion stays until another is better by a paired test, and a refit is used only where the "
    "whole is better.",
    "calibration": "Share of runs that took no longer than the quantile their champion said.",
    "predicted-worst": "The runs that the champions predicted worst, and what was new in them.",
}


@task(cache_policy=NO_CACHE, persist_result=False)
def recalibrate_starts(site: Site) -> str:
    """Learn from the starts of late how sure a plan's starts are, and show how they were said."""
    newest = site.ledger.starts.newest(LOOKED_AT)
    site.ledger.settings.keep(CALIBRATION, to_json(learn(newest, site.ledger.now())))
    create_table_artifact(
        told(scores_document(newest)),
        key="starts",
        description="Starts that were said while runs waited, against what came. The intervals "
        "of waiting runs go by these from now on.",
    )
    return f"{len(newest)} starts that were said are learnt from"


@flow(name="retrain-estimators", persist_result=False)
def retrain_estimators() -> State[None]:
    """Refit the estimators on all traces, and keep the old ones if the new are worse."""
    site = current_site(Connections.BRIEF)
    verdict = refit(site, load_traces(site))
    return Completed(message=f"{verdict}; {recalibrate_starts(site)}")

"""What the ledger knows of the whole site at one moment, and how far its runs are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headway.estimate.usual import LOOKED_AT, Usual
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import Lease
from headway.model.run import RunState, Span
from headway.model.run_warning import RunWarning
from headway.model.staged import CacheUse
from headway.model.start_forecast import StartForecast
from headway.policy.settings import OnStranger
from headway.scheduler.snapshot import left_of, usual_of
from headway.site import Site
from headway.views.tables import progress_text

JUDGED_RUNS = 100
"""Newest ended runs by which estimates are judged."""
JUDGED_STARTS = 1000
"""Newest forecasts of starts by which these are judged."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far one running run is; None where its log does not tell."""

    record: RunRecord
    elapsed_s: float | None = None
    left: Span | None = None
    """How long it still takes, by its log or by how long runs like it lasted."""
    far: ProgressSnapshot | None = None
    """What was last said of this attempt."""

    @property
    def done_frac(self) -> float | None:
        """Share of its iterations or epochs done."""
        return self.far.done_frac if self.far else None

    @property
    def remaining_s(self) -> float | None:
        """The middle of how long it still takes; None where no more than the most is known."""
        return self.left.median_s if self.left and self.left.low_s > 0.0 else None

    @property
    def remaining_low_s(self) -> float | None:
        """The lower end of its 80 % interval."""
        return self.left.low_s if self.left else None

    @property
    def remaining_high_s(self) -> float | None:
        """The upper end of it."""
        return self.left.high_s if self.left else None

    @property
    def phase(self) -> str:
        """What it does before its program starts; empty once that runs."""
        return self.far.phase if self.far else ""

    @property
    def progress_text(self) -> str | None:
        """How far it is, for people; None where nothing is known."""
        return progress_text(self.far, self.left, self.remaining_cost) or None

    @property
    def remaining_cost(self) -> float | None:
        """What the time that is left will cost, at the price that the run's prediction rests on."""
        said = self.record.prediction
        if said is None or said.cost is None or not said.runtime_s or self.remaining_s is None:
            return None
        return said.cost / said.runtime_s * self.remaining_s


@dataclass(frozen=True, slots=True)
class SiteSnapshot:
    """What the ledger knew at one moment."""

    at: datetime
    """The database's time, to which every age refers."""
    nodes: Sequence[NodeRecord]
    leases: Sequence[Lease]
    counts: Mapping[RunState, int]
    waiting: Sequence[RunRecord]
    running: Sequence[RunProgress]
    warnings: Sequence[RunWarning]
    """Silent failures that go on."""
    ended: Sequence[RunRecord]
    """The newest ended runs, by which estimates are judged."""
    traces: int
    starts: Sequence[StartForecast] = ()
    """The newest forecasts of starts whose runs have started."""
    caches: Mapping[str, CacheUse] = field(default_factory=dict)
    """By node, what its data cache has, and how often it spared a copy."""
    tolerates_strangers: bool = False
    """Whether nobody is to be told of programs on a GPU that are no run's."""


def site_snapshot(site: Site) -> SiteSnapshot:
    """What *site*'s ledger knows now."""
    ledger = site.ledger
    return SiteSnapshot(
        at=ledger.now(),
        nodes=ledger.nodes.all(),
        leases=ledger.leases.live(),
        counts=ledger.runs.counts(),
        waiting=ledger.runs.all(states=(RunState.WAITING,)),
        running=progress_of_runs(site, ledger.runs.all(states=(RunState.RUNNING,))),
        warnings=ledger.warnings.going_on(),
        ended=ledger.runs.all(limit=JUDGED_RUNS, states=(RunState.ENDED,)),
        traces=ledger.traces.count(),
        starts=ledger.starts.newest(JUDGED_STARTS),
        caches=ledger.staged.uses(),
        tolerates_strangers=site.policy_settings.on_stranger is OnStranger.TOLERATE,
    )


def remaining_s_of(standing: RunProgress) -> float | None:
    """How long the run still takes; 0.0 once it has ended, None while that is not known."""
    return 0.0 if standing.record.state is RunState.ENDED else standing.remaining_s


def progress_of_runs(site: Site, records: Sequence[RunRecord]) -> list[RunProgress]:
    """How far each of *records* is.

    Whoever follows a run says it to the ledger every few seconds; nobody walks
    through its points again. Before the first word what was learnt of it counts.
    """
    ledger = site.ledger
    following = [r for r in records if r.state is RunState.RUNNING]
    if not following:
        return [RunProgress(record) for record in records]
    running = ledger.runs.all(states=(RunState.RUNNING,))
    said = ledger.progress_snapshots.of([r.run_id for r in (*following, *running)])
    shared = site.policy_settings.share_past_runs
    ended = ledger.runs.lasted(LOOKED_AT)
    usual = usual_of(ended, running, said, shared=shared, of_recipe=True)
    now = ledger.now()
    return [standing_of(record, said.get(record.run_id), usual, now) for record in records]


def standing_of(
    record: RunRecord, last: ProgressSnapshot | None, usual: Usual, now: datetime
) -> RunProgress:
    """How far *record* is *now*, by what was *last* said of it and by how long its like last."""
    if record.state is not RunState.RUNNING or record.started_at is None:
        return RunProgress(record)
    elapsed_s = max((now - record.started_at).total_seconds(), 0.0)
    far = last if last is not None and last.attempt == record.attempt else None
    if far is not None and _nobody_can_say(record, far, now):
        return RunProgress(record, elapsed_s, None, far)
    # As the queue has it, but of runs of other recipes, which people are not told of. Before the
    # first word its program has not begun.
    left = left_of(record, last, usual, now if far is not None else record.started_at)
    return RunProgress(record, elapsed_s, left, far)


def _nobody_can_say(record: RunRecord, far: ProgressSnapshot, now: datetime) -> bool:
    """Whether who follows it says that its rest is not known, or said a time that is over."""
    if far.remaining_s is not None:
        return far.high_s is not None and (now - far.at).total_seconds() >= far.high_s
    said = record.prediction
    return (said is not None and said.told is not None) or far.done_frac is not None

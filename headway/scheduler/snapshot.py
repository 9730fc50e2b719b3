"""A pool's rows in the ledger as the values that the policy plans with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from headway.estimate.claims import Claims
from headway.estimate.starts import CALIBRATION, PLAYED, StartCalibration
from headway.estimate.usual import LOOKED_AT, Kind, Lasted, Usual, kind_of
from headway.ledger import Ledger
from headway.ledger.codec import kept
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.attempt_record import ProgressSnapshot
from headway.model.node import Node, NodeState
from headway.model.run import RunState, Span
from headway.model.start_forecast import PlayedStarts
from headway.policy.pool import NodeView, RunningRun
from headway.policy.settings import PolicySettings
from headway.scheduler.limits import Gates

LOST_AFTER_S = 60.0
"""A node whose worker was not heard of for so long takes no new runs."""
_WRITTEN_WITHIN = timedelta(minutes=1)
_FAR_S = 10 * 365 * 86_400.0
"""A remaining time is cut off here: a log may promise any number of iterations."""


def is_lost(record: NodeRecord, now: datetime) -> bool:
    """Whether the node's worker was not heard of for too long."""
    return (now - record.heartbeat_at).total_seconds() > LOST_AFTER_S


def as_heard(record: NodeRecord, now: datetime) -> Node:
    """The node; one that is silent is lost, whatever its row says."""
    node = record.node
    if node.state is NodeState.READY and is_lost(record, now):
        silent = f"not heard of since {record.heartbeat_at:%H:%M:%S} UTC"
        node = replace(node, state=NodeState.LOST, state_reason=silent)
    return node


def node_view(record: NodeRecord, seen: PoolSnapshot) -> NodeView:
    """A node with its leases, as it was heard of."""
    node = as_heard(record, seen.at)
    leases = tuple(lease for lease in seen.leases if lease.node == node.name)
    return NodeView(node, leases, record.reading)


def kind_of_run(record: RunRecord) -> Kind:
    """The kind of a run, and of whose it is."""
    return kind_of(record.job, record.owner, record.team)


def usual_of(
    ended: Sequence[Lasted],
    holders: Sequence[RunRecord],
    said: Mapping[str, ProgressSnapshot],
    *,
    shared: bool,
    of_recipe: bool = False,
) -> Usual:
    """What runs of teams last: those that have ended, and those whose logs tell already.

    `shared` and `of_recipe` as for `Usual`.
    """
    telling = (
        Lasted(
            kind_of_run(record),
            standing.elapsed_s + standing.remaining_s,
        )
        for record in holders
        if (standing := said.get(record.run_id)) is not None
        and standing.attempt == record.attempt
        and standing.done_frac is not None
        and standing.remaining_s is not None
    )
    return Usual([*ended, *telling], shared=shared, of_recipe=of_recipe)


@dataclass(frozen=True, slots=True)
class Known:
    """What a plan goes by beside the pool's rows; read once in a pass."""

    said: Mapping[str, ProgressSnapshot]
    """What was last kept of how far each run is."""
    usual: Usual
    """What runs of the site last."""
    ended: Sequence[Lasted] = ()
    """The newest runs that ended well."""
    starts: StartCalibration = field(default_factory=StartCalibration)
    """What was learnt of the starts that were said."""
    played: PlayedStarts = field(default_factory=PlayedStarts)
    """How long runs wait, as the queue was last played forward."""
    claims: Claims = field(default_factory=Claims)
    """How much longer than said each person's runs take."""

    def left(self, record: RunRecord, now: datetime) -> Span | None:
        """How long a run that holds its place goes on from *now*; None when nothing is known.

        By the plan that people are told: a word of its log counts from the next one on.
        """
        if record.run_id in self.played.left:
            return self.played.goes_on(record.run_id, now)
        return left_of(record, self.said.get(record.run_id), self.usual, now)


class ReadSoFar:
    """What is large and changes little: read once, then what has changed."""

    def __init__(self, ledger: Ledger) -> None:
        """As *ledger* has it."""
        self._ledger = ledger
        self._known: dict[str, tuple[datetime, Lasted]] = {}
        self._played = PlayedStarts()
        self._played_at: datetime | None = None

    def played(self, pool: str) -> PlayedStarts:
        """How long the runs of *pool*, always the same one, wait as its queue was last played."""
        found = self._ledger.settings.newer(PLAYED.format(pool), self._played_at)
        if found is not None:
            document, self._played_at = found
            self._played = kept(PlayedStarts, document) or PlayedStarts()
        return self._played

    def ended(self) -> list[Lasted]:
        """What the newest runs that ended well lasted, the last one to end first."""
        # One that ended before another may be written down after it.
        last = max((at - _WRITTEN_WITHIN for at, _ in self._known.values()), default=None)
        both = self._known | self._ledger.runs.lasted_since(last, LOOKED_AT)
        newest = sorted(both, key=lambda run_id: both[run_id][0], reverse=True)[:LOOKED_AT]
        self._known = {run_id: both[run_id] for run_id in newest}
        return [lasted for _, lasted in self._known.values()]


def read_known(
    ledger: Ledger,
    seen: PoolSnapshot,
    settings: PolicySettings,
    so_far: ReadSoFar,
) -> Known:
    """What is known now; *so_far* is read on."""
    ended = so_far.ended()
    running = [record.run_id for record in seen.holders if record.state is RunState.RUNNING]
    said = ledger.progress_snapshots.of(running)
    pool = next((record.node.pool for record in seen.nodes), "")
    return Known(
        said,
        usual_of(ended, seen.holders, said, shared=settings.share_past_runs),
        ended,
        kept(StartCalibration, ledger.settings.get(CALIBRATION)) or StartCalibration(),
        so_far.played(pool).as_of(seen.at),
        Claims(ended),
    )


def length(learnt: Span | None, kind: Kind, usual: Usual) -> Span | None:
    """How long a run is expected to run; None when nothing is known of it nor of its like."""
    if learnt is None and (found := usual.of(kind)) is not None:
        learnt = found[0]
    return None if learnt is None else _cut(learnt)


def left_of(
    record: RunRecord, said: ProgressSnapshot | None, usual: Usual, now: datetime
) -> Span | None:
    """How long a run that holds its place goes on from *now*; None when nothing is known.

    By its log where that tells; else by what was learnt of it, or of its like.
    """
    learnt = record.prediction.learnt if record.prediction is not None else None
    # Without progress in the log it is the prediction's word, and a prior's is none.
    tells = said is not None and (said.done_frac is not None or learnt is not None)
    if said is None or not tells or said.attempt != record.attempt:
        said = None
    if said is not None and said.remaining_s is not None:
        low_s = said.remaining_s if said.low_s is None else said.low_s
        high_s = said.remaining_s if said.high_s is None else said.high_s
        since_s = max((now - said.at).total_seconds(), 0.0)
        return _cut(Span(low_s, said.remaining_s, high_s).left(since_s))
    whole = length(learnt, kind_of_run(record), usual)
    if whole is None:
        return None
    lasted_s = max((now - (record.started_at or now)).total_seconds(), 0.0)
    if learnt is None and lasted_s > whole.high_s:
        return None  # it is not like those: a service, which never ends, would be about to
    return whole.left(lasted_s)


def _cut(span: Span) -> Span:
    return Span(*(min(each, _FAR_S) for each in span))


def running_run(record: RunRecord, seen: PoolSnapshot, gates: Gates, known: Known) -> RunningRun:
    """A run that holds leases of *seen*, with its end; its priority is that of *gates*."""
    return RunningRun(
        run_id=record.run_id,
        team=record.team,
        user=record.owner,
        priority=gates.priorities.get(record.queue, record.priority),
        left=known.left(record, seen.at),
        name=record.name,
        preemptible=record.goes_on and record.state is RunState.RUNNING,
        stopping=record.preempted_for is not None,
        gang_id=record.gang_id or "",
    )

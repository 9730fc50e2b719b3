"""The queue of a pool whose runs an engine starts: they are submitted, followed, and concluded.

What is done about each is decided by `engine.decide`; here both sides are read. Nothing in this
process matters: whoever leads next reads the same.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from headway.engine.decide import Side, decide
from headway.engine.errors import EngineAway
from headway.engine.port import After, Array, Job, Phase
from headway.errors import HeadwayError, LeaseLost, LedgerUnreachable
from headway.ledger.errors import TermOver
from headway.ledger.pools import PoolSnapshot, Version
from headway.ledger.records import RunRecord
from headway.model.lease import Resource, Wait
from headway.model.run import Exit, RunState, When
from headway.policy.after import Following
from headway.run.on_engine import key_of, run_of
from headway.scheduler.engine_arrays import TOGETHER, Limited
from headway.scheduler.engine_jobs import EngineJobs
from headway.scheduler.engine_round import EngineRound
from headway.scheduler.intake import Intake
from headway.scheduler.limits import Gates, QueueCounts, read_gates
from headway.scheduler.queue import Pass, PoolQueue
from headway.site import Site

log = logging.getLogger(__name__)

_PAUSED = Wait(Resource.TURN, "its work pool or queue is paused or full, as set in Prefect")


class EngineQueue(PoolQueue):
    """Submits what waits in one pool of an engine, and follows it, while it leads the pool."""

    members_ahead = TOGETHER

    def __init__(self, site: Site, jobs: EngineJobs) -> None:
        """The queue of *site*'s pool, which is one of those of *jobs*' engine."""
        super().__init__(site)
        self._round = EngineRound(site, jobs, self._call)
        self._jobs = jobs
        self._line: dict[str, RunRecord] = {}
        """Those that wait, each with what it needs, as of the last round."""
        self._versions: dict[str, Version] = {}
        self._since = 0
        self._foretold: set[str] = set()
        """Keys of attempts of which was predicted what they are given more."""

    def _call(self, run_id: str) -> None:
        self.called.add(run_id)

    @property
    def stepped(self) -> set[str]:
        """Runs with steps that have begun or ended; who shows them takes them out."""
        return self._round.stepped

    @property
    def is_empty(self) -> bool:
        """Nothing here is planned, so nothing is played either."""
        return True

    def run_pass(self, gates: Gates | None = None) -> Pass:
        """One round: see what the engine has, and do for each run what follows.

        Raises:
            TermOver: Another one leads the pool by now.
            EngineAway: The engine has not answered yet.
        """
        ledger = self._site.ledger
        pool = ledger.engines.pools().get(self._pool)
        if (term := self._term) is None or pool is None:
            return Pass()
        gates = gates or read_gates(ledger, self._pool)
        jobs = self._jobs.now()
        self._round.begin(term, pool, gates)
        seen = ledger.pools.snapshot(self._pool, self._versions, self._since)
        self._end_in_vain(seen)
        under_way = ledger.runs.under_way([self._pool])
        self._follow_line(seen, gates)
        waiting = sorted(self._line.values(), key=lambda each: (-each.priority, each.submitted_at))
        known = {_key(record) for record in (*under_way, *waiting)}
        self._let_go(jobs, known)
        barred = self._barred(seen, waiting, under_way, jobs, gates)
        for record in under_way:
            self._look_after(record, Side.UNDER_WAY, jobs.get(_key(record)))
        for record in waiting:
            found = barred.get(record.run_id)
            if isinstance(found, Wait):
                self._round.tell(record, found.reason, None)
                continue
            if found is not None:
                self._round.follows[record.run_id] = found
            self._look_after(record, Side.WAITS, jobs.get(_key(record)))
        for record in self._round.together():
            with _going_on(record):
                self._round.submit_together(record)
        return self._round.end()

    def _follow_line(self, seen: PoolSnapshot, gates: Gates) -> None:
        """Take up what has changed of those that wait; some end here."""
        for run_id in seen.gone:
            self._line.pop(run_id, None)
            self._versions.pop(run_id, None)
        intake = Intake(self._site, self._pool, gates)
        for record in seen.changed:
            self._round.unsay(record)
            job = intake.job_of(record)
            if isinstance(job, Exit):
                self._end(record, job)
                continue
            told: RunRecord | None = record
            key = _key(record)
            is_more = record.demand_override is not None and key not in self._foretold
            if record.demand is None or is_more:
                told = intake.predicted(record, job)
            if told is not None:
                self._foretold |= {key} if is_more else set()
                self._line[record.run_id] = told
                self._versions[record.run_id] = seen.waiting[record.run_id]
        self._since = seen.until  # what could not be taken up is read again
        self.called |= intake.called

    def _look_after(self, record: RunRecord, side: Side, job: Job | None) -> None:
        with _going_on(record):
            for each in decide(side, job):
                self._round.do(each, record, job)

    def _let_go(self, jobs: Mapping[str, Job], known: set[str]) -> None:
        """Stop and forget the jobs of runs that have ended, or go on otherwise."""
        left = {key: run_of(key) for key in jobs.keys() - known}
        runs = self._site.ledger.runs.of(sorted({run_id for run_id, _ in left.values()}))
        for key, (run_id, attempt) in left.items():
            record = runs.get(run_id)
            if record is None or record.pool != self._pool:
                continue  # of another pool; or of nobody that this ledger knows, and left alone
            over = record.state is RunState.ENDED or record.attempt != attempt
            if over or record.suspended_at is not None:
                side = Side.OVER if over else Side.BARRED
                self._look_after(replace(record, attempt=attempt), side, jobs[key])

    def _barred(
        self,
        seen: PoolSnapshot,
        waiting: list[RunRecord],
        under_way: list[RunRecord],
        jobs: Mapping[str, Job],
        gates: Gates,
    ) -> dict[str, Wait | After]:
        """Which of those that *wait*, and were not submitted, are not to be now, and why.

        Of one that may be, behind the job of the run that it follows: that.
        """
        there = [*under_way, *(record for record in waiting if _key(record) in jobs)]
        new = [record for record in waiting if _key(record) not in jobs]
        keys = {record.run_id: _key(record) for record in there}
        live = {run_of(key)[0]: job for key, job in jobs.items() if job.phase is not Phase.ENDED}
        counts, takes = QueueCounts.of(there), self._jobs.engine.takes
        arrays = self._limited(seen, there, new)
        found: dict[str, Wait | After] = {}
        for record in new:
            follows = seen.following.get(record.run_id)
            said = None if follows is None else follows.says()
            after = None
            if follows is not None and isinstance(said, Wait) and After in takes:
                after = _after(follows, jobs.get(keys.get(follows.after, "")))
            shut = gates.pool_paused or record.queue in gates.paused
            array = arrays.get(record.array_id or "")
            if isinstance(said, Wait) and after is None:
                found[record.run_id] = said
            elif (before := live.get(record.run_id)) is not None:  # they share a checkpoint
                why = f"job {before.engine_id} of its attempt before is being stopped"
                found[record.run_id] = Wait(Resource.TURN, why)
            elif shut or not counts.may_start(record.queue, gates):
                found[record.run_id] = _PAUSED
            elif array is not None and (why := array.keeps()):
                found[record.run_id] = Wait(Resource.TURN, why)
            else:
                counts.add(record.queue)
                if array is not None:
                    array.taken += 1
                if after is not None:
                    found[record.run_id] = after
        return found

    def _limited(
        self, seen: PoolSnapshot, there: list[RunRecord], new: list[RunRecord]
    ) -> dict[str, Limited]:
        """The arrays that may run so many members at most."""
        most = dict(seen.limited.values())
        self._round.at_most = most
        known = self._site.ledger.arrays.of(sorted(most)) if most else {}
        submitted, left = (Counter(each.array_id for each in runs) for runs in (there, new))
        takes = Array in self._jobs.engine.takes
        return {
            array_id: Limited(most[array_id], submitted[array_id], left[array_id], more, takes)
            for array_id, array in known.items()
            for more in [array.created < array.size and array.cancelled_at is None]
        }


@contextmanager
def _going_on(record: RunRecord) -> Iterator[None]:
    """Whatever one run has, the others go on."""
    try:
        yield
    except (LedgerUnreachable, TermOver):
        raise  # it would be the same for every other run
    except (EngineAway, LeaseLost) as error:
        log.info("run %s: %s", record.run_id, error)  # the next round sees where it is
    except (HeadwayError, OSError) as error:
        log.warning("run %s (%s): %s; tried again", record.name, record.run_id, error)
    except Exception:
        log.exception("run %s (%s); tried again", record.name, record.run_id)


def _key(record: RunRecord) -> str:
    return key_of(record.run_id, record.attempt)


def _after(follows: Following, job: Job | None) -> After | None:
    """By which part of its request a run follows another one whose job is *job*; None where not.

    Only to a good end: headway may try another one again, which the engine knows nothing of.
    """
    alive = job is not None and job.phase is not Phase.ENDED and not job.is_cancelled
    if job is None or not alive or follows.when is not When.OK:
        return None
    return After(job.key)

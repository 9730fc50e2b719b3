"""The queue of a pool whose runs an engine starts: they are handed in, followed, and concluded.

What is done about each is decided by `engine.decide`; here both sides are read. Nothing in this
process matters: whoever leads next reads the same.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from headway.engine.decide import Side, decide
from headway.engine.port import Job, Phase
from headway.errors import EngineAway, HeadwayError, LeaseLost, LedgerUnreachable, TermOver
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import RunRecord
from headway.model.lease import Resource, Wait
from headway.model.run import Exit, RunState
from headway.run.on_engine import key_of, run_of
from headway.scheduler.engine_jobs import EngineJobs
from headway.scheduler.engine_round import EngineRound
from headway.scheduler.intake import Intake
from headway.scheduler.limits import Gates, QueueCounts, read_gates
from headway.scheduler.queue import Pass, PoolQueue
from headway.site import Site

log = logging.getLogger(__name__)

_PAUSED = Wait(Resource.TURN, "its work pool or queue is paused or full, as set in Prefect")


class EngineQueue(PoolQueue):
    """Hands in what waits in one pool of an engine, and follows it, while it leads the pool."""

    def __init__(self, site: Site, jobs: EngineJobs) -> None:
        """The queue of *site*'s pool, which is one of those of *jobs*' engine."""
        super().__init__(site)
        self._round = EngineRound(site, jobs, self._call)
        self._jobs = jobs
        self._foretold: set[str] = set()
        """Keys of the attempts that wait: what they are given is predicted once in a process."""

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
        self._round.begin(term, pool)
        seen = ledger.pools.snapshot(self._pool, {})
        self._end_in_vain(seen)
        under_way = ledger.engines.under_way(self._pool)
        waiting = list(self._foreseen(seen, gates))
        known = {_key(record) for record in (*under_way, *waiting)}
        self._let_go(jobs, known)
        barred = _barred(seen, waiting, under_way, jobs, gates)
        for record in under_way:
            self._look_after(record, Side.UNDER_WAY, jobs.get(_key(record)))
        for record in waiting:
            if (wait := barred.get(record.run_id)) is not None:
                self._round.tell(record, wait.reason, None)
            else:
                self._look_after(record, Side.WAITS, jobs.get(_key(record)))
        return self._round.end()

    def _foreseen(self, seen: PoolSnapshot, gates: Gates) -> Iterator[RunRecord]:
        """Those that wait, in order, each with what it needs; the others have ended."""
        intake, foretold = Intake(self._site, self._pool, gates), self._foretold
        self._foretold = set()
        for record in sorted(seen.changed, key=lambda each: (-each.priority, each.submitted_at)):
            job = intake.job_of(record)
            if isinstance(job, Exit):
                self._end(record, job)
                continue
            told: RunRecord | None = record
            key = _key(record)
            is_more = record.demand_override is not None and key not in foretold
            if record.demand is None or is_more:
                told = intake.predicted(record, job)
            if told is not None:
                self._foretold.add(key)
                yield told
        self.called |= intake.called

    def _look_after(self, record: RunRecord, side: Side, job: Job | None) -> None:
        try:
            for each in decide(side, job):
                self._round.do(each, record, job)
        except (LedgerUnreachable, TermOver):
            raise  # it would be the same for every other run
        except (EngineAway, LeaseLost) as error:
            log.info("run %s: %s", record.run_id, error)  # the next round sees where it is
        except (HeadwayError, OSError) as error:
            log.warning("run %s (%s): %s; tried again", record.name, record.run_id, error)
        except Exception:  # whatever one run has, the others go on
            log.exception("run %s (%s); tried again", record.name, record.run_id)

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


def _key(record: RunRecord) -> str:
    return key_of(record.run_id, record.attempt)


def _barred(
    seen: PoolSnapshot,
    waiting: list[RunRecord],
    under_way: list[RunRecord],
    jobs: Mapping[str, Job],
    gates: Gates,
) -> dict[str, Wait]:
    """Which of those that *wait*, and were not handed in, are not to be now, and why."""
    there = [*under_way, *(record for record in waiting if _key(record) in jobs)]
    live = {run_of(key)[0]: job for key, job in jobs.items() if job.phase is not Phase.ENDED}
    counts = QueueCounts.of(there)
    of_arrays = Counter(record.array_id for record in there)
    found: dict[str, Wait] = {}
    for record in waiting:
        if _key(record) in jobs:
            continue
        array, most = seen.limited.get(record.run_id, ("", 0))
        said = seen.following[record.run_id].says() if record.run_id in seen.following else None
        shut = gates.pool_paused or record.queue in gates.paused
        if isinstance(said, Wait):
            found[record.run_id] = said
        elif (before := live.get(record.run_id)) is not None:  # they share a checkpoint
            why = f"job {before.engine_id} of its attempt before is being stopped"
            found[record.run_id] = Wait(Resource.TURN, why)
        elif shut or not counts.may_start(record.queue, gates):
            found[record.run_id] = _PAUSED
        elif array and of_arrays[array] >= most:
            why = f"its array runs at most {most} members at once"
            found[record.run_id] = Wait(Resource.TURN, why)
        else:
            counts.add(record.queue)
            of_arrays[record.array_id] += 1
    return found

"""One round of the follower over a pool of an engine: each instruction, carried out."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from headway.engine.decide import Do, about, is_passing
from headway.engine.port import Job
from headway.errors import CodeMissing, EngineAway, EngineRefused, InvalidInput, LeaseLost
from headway.ledger.engines import EnginePoolRecord
from headway.ledger.records import RunRecord
from headway.ledger.runs import Reason
from headway.model.lease import Refuse, Resource
from headway.model.run import Exit, ExitKind, Measurement, RunState, StepState
from headway.model.term import Term
from headway.run.on_engine import EngineAttempt, EngineLog, key_of
from headway.scheduler.engine_jobs import EngineJobs
from headway.scheduler.queue import Pass
from headway.site import Site

log = logging.getLogger(__name__)

_AT_ONCE = 50
"""So many are handed in in one round, so that those that run are followed meanwhile."""
_AGAIN = "it had begun, and the cluster put it into its queue again"


class EngineRound:
    """Carries out what was decided about runs of one pool."""

    term: Term
    pool: EnginePoolRecord

    def __init__(self, site: Site, jobs: EngineJobs, call: Callable[[str], None]) -> None:
        """Of *site*'s pool; *call* is told of runs that Prefect is to hear of."""
        self._site, self._jobs, self._call = site, jobs, call
        self.stepped: set[str] = set()
        """Runs with steps that have begun or ended; who shows them takes them out."""
        self._logs: dict[str, EngineLog] = {}
        self._said: dict[str, str] = {}
        self._stopped: dict[str, int] = {}
        self._again: set[str] = set()
        self._shut: tuple[int, str] | None = None
        """Why the engine took none, and after how many of its answers; until it gives another."""
        self._do: Mapping[Do, Callable[[RunRecord, Job | None], None]] = {
            Do.HAND_IN: self._hand_in,
            Do.TELL: self._tell_job,
            Do.BEGIN: self._begin,
            Do.FOLLOW: self._follow,
            Do.WAIT_AGAIN: self._wait_again,
            Do.CONCLUDE: self._conclude,
            Do.STOP: self._stop,
            Do.FORGET: self._forget,
        }

    def begin(self, term: Term, pool: EnginePoolRecord) -> None:
        """A round begins in *term*, with the *pool* as it is known now."""
        self.term, self.pool = term, pool
        self._reasons: list[Reason] = []
        self._news: dict[str, str] = {}
        self._begun: list[str] = []
        self._handed_in = 0

    def end(self) -> Pass:
        """What the round has decided, once the ledger has the reasons."""
        self._site.ledger.runs.set_reasons(self._reasons, self.term)
        self._said |= self._news
        return Pass(
            # Not as granted: Prefect is told at once that they run, not that they are Pending.
            refused=tuple(self._begun),
            waiting=self._news,
            logged=frozenset(self._news),
            planned=frozenset(self._news),
        )

    def do(self, what: Do, record: RunRecord, job: Job | None) -> None:
        """Carry out one instruction about the attempt of *record*, whose job is *job*.

        Raises:
            LeaseLost: The run has moved on.
            EngineAway: The engine does not answer.
        """
        self._do[what](record, job)

    def tell(self, record: RunRecord, reason: str, expected_at: datetime | None) -> None:
        """Say why a run waits, where that is news."""
        if self._said.get(record.run_id) == reason == record.reason:
            return
        self._reasons.append(Reason(record.run_id, Resource.TURN, reason, expected_at))
        self._news[record.run_id] = reason

    def _hand_in(self, record: RunRecord, _: Job | None) -> None:
        if self._shut is not None and self._shut[0] == self._jobs.questions:
            self.tell(record, self._shut[1], None)
            return
        if self._handed_in >= _AT_ONCE:
            return
        self._handed_in += 1
        try:
            engine_id = self._asked(record)
        except EngineAway as error:
            self._close(record, str(error))
        except (CodeMissing, InvalidInput) as error:
            self._refuse(record, str(error))
        except EngineRefused as error:
            if is_passing(error.said):
                self._close(record, f"{self.pool.engine} takes no more now: {error.said}")
            else:
                self._refuse(record, str(error))
        else:
            if engine_id:
                log.info("run %s (%s) is job %s", record.name, record.run_id, engine_id)

    def _asked(self, record: RunRecord) -> str:
        """The engine's id of what was handed in; empty where the run was refused before."""
        attempt = self._attempt(record)
        attempt.step("stage_data", StepState.RUNNING)
        request = attempt.request(self.pool.has, self._jobs.engine)
        if isinstance(request, Refuse):
            self._refuse(record, f"{request.field} is {request.value}: {request.allowed}")
            return ""
        attempt.step("stage_data", StepState.DONE)
        attempt.step("admit", StepState.RUNNING)
        return self._jobs.hand_in(request)

    def _attempt(self, record: RunRecord) -> EngineAttempt:
        """The attempt of *record*, where the run has no other one by now.

        Raises:
            LeaseLost: It has.
        """
        attempt = EngineAttempt(self._site, record.run_id)
        if attempt.number != record.attempt:
            cause = f"attempt {attempt.number} has the run"
            raise LeaseLost(record.run_id, record.attempt, cause)
        return attempt

    def _close(self, record: RunRecord, why: str) -> None:
        """Hand in no more until the engine has answered again: it would be the same for others."""
        self._shut = self._jobs.questions, why
        self.tell(record, why, None)

    def _refuse(self, record: RunRecord, why: str) -> None:
        exit_ = Exit(ExitKind.REFUSED, None, why)
        self._site.ledger.runs.finish(record.unleased, exit_, Measurement())
        self._call(record.run_id)

    def _tell_job(self, record: RunRecord, job: Job | None) -> None:
        if job is not None:
            again = f"{_AGAIN}; " if record.run_id in self._again else ""
            text = f"job {job.engine_id}: {again}{about(job)}"
            self.tell(record, text, job.expected_start_at)

    def _begin(self, record: RunRecord, job: Job | None) -> None:
        if job is None:
            return
        self._site.ledger.engines.begin(
            record.unleased,
            self.term,
            engine=self.pool.engine,
            engine_id=job.engine_id,
            node=self.pool.node,
        )
        attempt = self._attempt(record)
        where = f"job {job.engine_id}" + (f" on {job.nodes}" if job.nodes else "")
        attempt.step("admit", StepState.DONE, where)
        attempt.step("train", StepState.RUNNING)
        self.stepped.add(record.run_id)
        self._begun.append(record.run_id)
        self._said.pop(record.run_id, None)
        self._again.discard(record.run_id)
        self._call(record.run_id)

    def _log(self, record: RunRecord, job: Job | None) -> EngineLog:
        key = key_of(record.run_id, record.attempt)
        if key not in self._logs:
            began = None if job is None else job.started_at
            self._logs[key] = EngineLog(self._attempt(record), began)
        return self._logs[key]

    def _follow(self, record: RunRecord, job: Job | None) -> None:
        self._log(record, job).read()

    def _wait_again(self, record: RunRecord, _: Job | None) -> None:
        self._site.ledger.engines.waits_again(record.unleased, self.term, _AGAIN)
        self._logs.pop(key_of(record.run_id, record.attempt), None)
        self._again.add(record.run_id)
        self._call(record.run_id)

    def _conclude(self, record: RunRecord, job: Job | None) -> None:
        attempt = self._attempt(record)
        key = key_of(record.run_id, record.attempt)
        began = attempt.record.state is RunState.RUNNING
        if began:
            self._log(record, job).read(last=True)
        exit_ = attempt.settle(job, self._jobs.engine.used(key), self.pool.has)
        if began:
            well = exit_.kind is ExitKind.OK
            message = "" if well else exit_.message
            with suppress(LeaseLost):  # the run is its user's to end at any moment
                attempt.step("train", StepState.DONE if well else StepState.FAILED, message)
                for name in ("update_estimates", "clean_up"):
                    attempt.step(name, StepState.RUNNING)
                    attempt.step(name, StepState.DONE)
        log.info("run %s (%s): %s %s", record.name, record.run_id, exit_.kind, exit_.message)
        attempt.clean_up()
        self.stepped.add(record.run_id)
        self._call(record.run_id)
        self._site.ledger.calls.send([self.pool.node], record.run_id)

    def _stop(self, record: RunRecord, _: Job | None) -> None:
        key = key_of(record.run_id, record.attempt)
        if self._stopped.get(key) != self._jobs.questions:  # again once it was seen to live on
            self._stopped[key] = self._jobs.questions
            self._jobs.engine.cancel([(key, 0)])

    def _forget(self, record: RunRecord, _: Job | None) -> None:
        key = key_of(record.run_id, record.attempt)
        self._jobs.forget(key)
        self._logs.pop(key, None)
        self._stopped.pop(key, None)
        self._said.pop(record.run_id, None)
        self._again.discard(record.run_id)

"""One round of the follower over a pool of an engine: each instruction, carried out."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from secrets import token_hex

from headway.engine.ask import Terms
from headway.engine.decide import Do, about, is_passing
from headway.engine.errors import EngineAway, EngineRefused
from headway.engine.login import Login, login_of
from headway.engine.port import After, Array, Job, Nice, Request
from headway.errors import CacheUnusable, CodeMissing, InvalidInput, LeaseLost
from headway.ledger.engines import EnginePoolRecord
from headway.ledger.records import RunRecord
from headway.ledger.runs import Reason
from headway.model.lease import Refuse, Resource
from headway.model.run import Exit, ExitKind, Measurement, RunState, StepState
from headway.model.term import Term
from headway.policy.settings import OnEngine
from headway.run.on_engine import EngineAttempt, EngineLog, key_of
from headway.runtime.errors import RuntimeFailure
from headway.scheduler.engine_arrays import TOGETHER
from headway.scheduler.engine_jobs import EngineJobs
from headway.scheduler.engine_starts import SaidByEngine
from headway.scheduler.limits import Gates
from headway.scheduler.queue import Pass
from headway.site import Site

log = logging.getLogger(__name__)

_AT_ONCE = 50
"""So many are submitted in one round, so that those that run are followed meanwhile."""
_NICE = 1000
"""For each place that its work queue has below the first one in Prefect."""
_Together = tuple[str, Request, list[tuple[RunRecord, Request]]]
"""Of which array, what each asks for, and the runs with their own requests."""
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
        self._starts = SaidByEngine(site.ledger, site.clock, site.settings.pool)
        self._logs: dict[str, EngineLog] = {}
        self._said: dict[str, str] = {}
        self._stopped: dict[str, int] = {}
        self._again: set[str] = set()
        self._in_vain: dict[str, int] = {}
        """Keys of jobs that were to follow others and were refused, after how many answers."""
        self._shut: dict[Login | None, tuple[int, str]] = {}
        """By login: after how many of its answers the engine took none, and why."""
        self._do: Mapping[Do, Callable[[RunRecord, Job | None], None]] = {
            Do.SUBMIT: self._submit_run,
            Do.TELL: self._tell_job,
            Do.BEGIN: self._begin,
            Do.FOLLOW: self._follow,
            Do.WAIT_AGAIN: self._wait_again,
            Do.CONCLUDE: self._conclude,
            Do.STOP: self._stop,
            Do.FORGET: self._forget,
        }

    def begin(self, term: Term, pool: EnginePoolRecord, gates: Gates) -> None:
        """A round begins in *term*, with the *pool* as it is known now."""
        self.term, self.pool, self._gates = term, pool, gates
        self._settings = self._site.policy_settings
        self.follows: dict[str, After] = {}
        """Behind which jobs runs are submitted."""
        self.at_most: Mapping[str, int] = {}
        """How many members of an array may run at once, where that is limited."""
        self._together: list[_Together] = []
        self._in_parts: set[str] = set()
        """Arrays with a limit of which a part was submitted."""
        self._reasons: list[Reason] = []
        self._news: dict[str, str] = {}
        self._begun: list[str] = []
        self._submitted = 0

    def end(self) -> Pass:
        """What the round has decided, once the ledger has the reasons."""
        self._starts.keep()
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
        if self._said.get(record.run_id) == reason:
            return
        self._reasons.append(Reason(record.run_id, Resource.TURN, reason, expected_at))
        self._news[record.run_id] = reason

    def unsay(self, record: RunRecord) -> None:
        """What the ledger has of *record* is news: it may say something else why it waits."""
        if self._said.get(record.run_id) != record.reason:
            self._said.pop(record.run_id, None)

    def _submit_run(self, record: RunRecord, _: Job | None) -> None:
        terms = self._terms(record)
        if isinstance(terms.login, Refuse):  # an operator's to mend, and nobody else waits for it
            self.tell(record, f"it is not submitted yet: {terms.login.allowed}", None)
            return
        if why := self._why_shut(terms.login):
            self.tell(record, why, None)
            return
        together = record.array_id is not None and Array in self._jobs.engine.takes
        in_vain = self._in_vain.get(key_of(record.run_id, record.attempt))
        # It would be refused again, until there is another answer.
        if in_vain == self._jobs.questions or self._submitted >= (
            TOGETHER if together else _AT_ONCE
        ):
            return
        self._submitted += 1
        request = None
        try:
            request = self._asked(record, terms)
        except (CodeMissing, InvalidInput) as error:
            self._refuse(record, str(error))
        except (CacheUnusable, RuntimeFailure, OSError) as error:
            self.tell(record, f"it is not submitted yet, and tried again: {error}", None)
        if request is None:
            return
        if not together:
            self._submit(record, request)
            return
        alike = replace(request, key="", name="", command=(), env={}, working_dir="", mounts=())
        for array_id, asked, members in self._together:
            if (array_id, asked) == (record.array_id, alike):
                members.append((record, request))
                return
        self._together.append((record.array_id or "", alike, [(record, request)]))

    def together(self) -> list[RunRecord]:
        """The first of those that are to be submitted together, of each such group."""
        return [members[0][0] for _, _, members in self._together]

    def submit_together(self, first: RunRecord) -> None:
        """Submit those members of an array that ask for the same, as an array of the engine's."""
        array_id, alike, members = next(
            group for group in self._together if group[2][0][0] is first
        )
        at_most = self.at_most.get(array_id)
        if at_most is not None and array_id in self._in_parts:
            # Each part would have a limit of its own.
            for record, _ in members:
                self.tell(record, "it comes with the next part of its array", None)
            return
        self._in_parts.add(array_id)
        self._submit_array(alike, members, at_most)

    def _submit_array(
        self, alike: Request, members: list[tuple[RunRecord, Request]], at_most: int | None
    ) -> None:
        """Submit *members* as one; in parts, or one by one, where the engine does not take that.

        Of an array that may run *at_most* at once only the first part is: the others follow when it
        is known how many of it are there.
        """
        if why := self._why_shut(alike.login):
            for record, _ in members:
                self.tell(record, why, None)
            return
        if len(members) == 1:
            self._submit(*members[0])
            return
        records, requests = zip(*members, strict=True)
        # A key of its own each time: a member that is submitted once more may come with others.
        key = f"array-{requests[0].key}-{token_hex(4)}"
        name = requests[0].name.rpartition("-")[0]
        parts = (*alike.parts, Array(len(requests), at_most, requests))
        try:
            engine_id = self._jobs.submit(replace(alike, key=key, name=name, parts=parts))
        except EngineAway as error:
            self._close(records, alike.login, str(error))
        except EngineRefused as error:
            half = len(members) // 2 if is_passing(error.said) else 1
            pieces = [members[at : at + half] for at in range(0, len(members), half)]
            if at_most is not None:
                pieces = pieces[: 1 if half > 1 else at_most]
            for piece in pieces:
                self._submit_array(alike, piece, at_most)
        else:
            for record in records:
                log.info("run %s (%s) is in job %s", record.name, record.run_id, engine_id)

    def _submit(self, record: RunRecord, request: Request) -> None:
        """Submit the job of one run."""
        try:
            engine_id = self._jobs.submit(request)
        except EngineAway as error:
            self._close([record], request.login, str(error))
        except EngineRefused as error:
            if is_passing(error.said):
                why = f"{self.pool.engine} takes no more now: {error.said}"
                self._close([record], request.login, why)
            elif request.part(After) is not None:
                # The other job has ended meanwhile, or is forgotten.
                self._in_vain[request.key] = self._jobs.questions
                self.tell(record, str(error), None)
            else:
                self._refuse(record, str(error))
        else:
            self._in_vain.pop(request.key, None)
            log.info("run %s (%s) is in job %s", record.name, record.run_id, engine_id)

    def _why_shut(self, login: Login | None) -> str:
        """Why the engine takes no more as *login* until it has answered again; else empty."""
        since, why = self._shut.get(login, (-1, ""))
        return why if since == self._jobs.questions else ""

    def _asked(self, record: RunRecord, terms: Terms) -> Request | None:
        """What the engine is to be asked for; None where the run was refused."""
        attempt = self._attempt(record)
        attempt.step("stage_data", StepState.RUNNING)
        request = attempt.request(self.pool.has, self._jobs.engine, terms)
        if isinstance(request, Refuse):
            self._refuse(record, f"{request.field} is {request.value}: {request.allowed}")
            return None
        attempt.step("stage_data", StepState.DONE)
        attempt.step("admit", StepState.RUNNING)
        return request

    def _terms(self, record: RunRecord) -> Terms:
        """As whom its team goes there, where it is in its user's own line, and behind which job."""
        top = max([record.priority, *self._gates.priorities.values()])
        nice = _NICE * (top - record.priority) if Nice in self._jobs.engine.takes else 0
        after = self.follows.get(record.run_id)
        settings, engine = self._settings, self.pool.engine
        there = settings.team(record.team).engines.get(engine, OnEngine())
        login = login_of(settings, engine, record.team, record.owner)
        parts = () if after is None else (after,)
        return Terms(there.account, there.qos, login, nice, parts)

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

    def _close(self, records: Sequence[RunRecord], login: Login | None, why: str) -> None:
        """Submit no more as *login* until the engine has answered again: it would be the same.

        For others it may not be: limits are a user's, who may also stop what runs as them.
        """
        self._shut[login] = self._jobs.questions, why
        for record in records:
            self.tell(record, why, None)

    def _refuse(self, record: RunRecord, why: str) -> None:
        exit_ = Exit(ExitKind.REFUSED, None, why)
        self._site.ledger.runs.finish(record.unleased, exit_, Measurement())
        self._call(record.run_id)

    def _tell_job(self, record: RunRecord, job: Job | None) -> None:
        if job is not None:
            again = f"{_AGAIN}; " if record.run_id in self._again else ""
            text = f"job {job.engine_id}: {again}{about(job)}"
            if job.expected_start_at is not None:
                demand = record.demand
                gpus = 0 if demand is None else demand.gpus
                text += self._starts.about(record.run_id, job.expected_start_at, gpus)
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
        self._starts.over(record.run_id)
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
        self._starts.over(record.run_id)
        self._logs.pop(key, None)
        self._stopped.pop(key, None)
        self._in_vain.pop(key, None)
        self._said.pop(record.run_id, None)
        self._again.discard(record.run_id)

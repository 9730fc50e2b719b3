"""One attempt on an engine's machines: what is asked for it, its log, and what its end teaches.

Its log, outputs and checkpoint lie where those of an attempt on this node lie, which the engine's
machines share: whoever reads them need not know where it ran.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from headway.clock import NowAndThen
from headway.engine.ask import Terms, ask
from headway.engine.containers import Mount
from headway.engine.decide import LIMIT, end_of, more_time_s
from headway.engine.port import Engine, Job, Request, Used
from headway.errors import LeaseLost
from headway.model.engine import EnginePool
from headway.model.lease import Demand, Refuse
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement, RunState, StepState
from headway.policy.conclude import Had
from headway.progress.parser import LogParser
from headway.run.ahead import ahead_of
from headway.run.code import forget_working_copy, working_copy
from headway.run.engine_environment import words_before
from headway.run.follow import Watched, remaining_of
from headway.run.given import volumes_of
from headway.run.here import CHECKPOINT_FOLDER, NodeAttempt
from headway.run.kept_files import keep_new_files
from headway.run.log_progress import LogProgress
from headway.run.outputs import OUTPUTS_FOLDER
from headway.run.settle import conclude_attempt, lesson_of, trace_of
from headway.run.spec import mlflow_tags, own_packages
from headway.run.upkeep import keep_snapshot
from headway.run.written_progress import WrittenProgress
from headway.runtime.logfile import read_chunk
from headway.runtime.port import Usage
from headway.runtime.redact import Redactor
from headway.units import format_duration

_SNAPSHOT_EVERY_S = 5.0


def key_of(run_id: str, attempt: int) -> str:
    """The key of an attempt's job."""
    return f"{run_id}-{attempt}"


def run_of(key: str) -> tuple[str, int]:
    """The run and the attempt of a key that `key_of` made."""
    run_id, _, attempt = key.rpartition("-")
    return run_id, int(attempt) if attempt.isdigit() else 0


class EngineAttempt(NodeAttempt):
    """An attempt whose program an engine starts: no lease, and no container of this node."""

    def request(self, pool: EnginePool, engine: Engine, terms: Terms) -> Request | Refuse:
        """What the engine is asked for, its folders made; or why it cannot be asked.

        Raises:
            CodeMissing: The code that it brought along is nowhere any more.
        """
        record = self.taken_up
        found = ask(
            key_of(self.run_id, self.number),
            job=self.job,
            demand=self.demand,
            said=self.prediction,
            pool=pool,
            takes=engine.takes,
            terms=terms,
            at_least_s=float(self.override.get(LIMIT, 0.0)),
        )
        if isinstance(found, Refuse):
            return found
        if found.login is not None:
            self.user = f"{found.login.uid}:{found.login.gid}"
        copy, member = working_copy(self), self.membership()
        checkpoint = self.made(CHECKPOINT_FOLDER)
        env = {
            **({} if copy is None else own_packages(copy, str(copy))),
            **mlflow_tags(self.run_id),
            **found.env,
            **({} if member is None else member.environment()),
            "HEADWAY_CHECKPOINT": str(checkpoint),
            "HEADWAY_RUN_ID": self.run_id,
            "HEADWAY_ATTEMPT": str(self.number),
        }
        self.made("log")
        _lead(engine.log(found.key), self.log)
        _lead(engine.outputs(found.key), self.made(OUTPUTS_FOLDER))
        command = (*words_before(self, found.login), *found.command)
        mounts = [Mount(str(checkpoint), str(checkpoint))]
        for given in volumes_of(self):  # of a job without an image they were refused
            mount = given.mount
            mounts.append(Mount(str(mount.source), mount.target, mount.read_only))
            found_there = given.variables(lambda each: each.target)
            env = dict.fromkeys(given.usual, mount.target) | found_there | env
        # The run's own folder is not its login's to write in.
        folder = self.folder if found.login is None else self.made(OUTPUTS_FOLDER)
        found = replace(found, working_dir=str(copy or folder), mounts=tuple(mounts))
        return replace(found, name=record.name, command=command, env=env)

    @property
    def demand(self) -> Demand:
        """What it needs, by what was learnt when it came."""
        demand = self.record.demand
        if demand is None:
            raise LeaseLost(self.run_id, self.number, "what it needs is not known yet")
        return demand

    def settle(self, job: Job | None, used: Used | None, pool: EnginePool) -> Exit:
        """Learn of an attempt that has ended, and put what follows into the ledger.

        Args:
            job: As the engine has it; None where nobody has anything of it.
            used: What it used, by its own machine.
            pool: Where it ran.
        """
        site, kept = self.site, keep_new_files(self.site, self.container).sentence()
        exit_ = end_of(job)
        exit_ = replace(exit_, message="; ".join(filter(None, (exit_.message, kept))))
        measured = _measured(job, used or Used())
        record, demand = self.record, self.demand
        learnt = lesson_of(self, exit_, measured, demand, None)
        gpu_type = self._gpu_type(pool)
        if learnt is not None and gpu_type and record.state is RunState.RUNNING:
            trace = trace_of(self, exit_, demand, learnt, gpu_type, started_at=record.started_at)
            site.ledger.traces.learn(self.fence, trace)
        if (again := self._with_more_time(exit_, job, measured, pool)) is not None:
            return again
        had = Had(
            demand,
            host_peak_bytes=measured.host_peak_bytes,
            gpu_bytes=0,
            gpu_above_bytes=None,
            spaces=self.forecaster.spaces(record.pool),
            nodes=self.job.nodes,
        )
        return conclude_attempt(self, exit_, measured, had)

    def _with_more_time(
        self, exit_: Exit, job: Job | None, measured: Measurement, pool: EnginePool
    ) -> Exit | None:
        """Try again one that was ended at a limit that its user had not named; None otherwise."""
        if exit_.kind is not ExitKind.TIMED_OUT or job is None or self.number > self.job.retries:
            return None
        limit_s = more_time_s(job.time_limit_s, self.job.max_runtime, pool.max_time_s)
        if limit_s is None:
            return None
        again = f"{exit_.message}; it is tried again with {format_duration(limit_s)}"
        return self.site.ledger.runs.requeue(
            self.fence,
            replace(exit_, message=again),
            measured,
            demand_override={**self.override, LIMIT: limit_s},
        )

    def _gpu_type(self, pool: EnginePool) -> str:
        """As the cluster calls its GPUs; ``cpu`` without any, empty where it may be any of several.

        A trace says of what kind of GPU it is.
        """
        if not self.job.gpus:
            return "cpu"
        types = {kind.type for node in pool.nodes for kind in node.gpus}
        return self.job.resources.gpu_type or (types.pop() if len(types) == 1 else "")

    def step(self, name: str, state: StepState, message: str = "") -> None:
        """Keep in the ledger that a step has begun, or how it ended."""
        steps = self.site.ledger.steps
        if state is StepState.RUNNING:
            steps.started(self.fence, name)
        else:
            steps.ended(self.fence, name, state, message)

    def clean_up(self) -> None:
        """Remove the copy of its code, which no other attempt uses."""
        forget_working_copy(self.site.settings, self.container)


class EngineLog:
    """The log of an attempt on an engine, and what its program writes beside it, as it grows."""

    def __init__(self, attempt: EngineAttempt, began: datetime | None) -> None:
        """Nothing of it was read yet; what an earlier process has kept is not kept twice.

        Args:
            attempt: The attempt.
            began: When its program started; None for when that was heard of.
        """
        self._attempt, site, job = attempt, attempt.site, attempt.job
        self._site, ahead = site, ahead_of(attempt, attempt.demand.gpus * job.nodes)
        is_resumed, totals = attempt.number > 1, ahead.totals
        self._remaining = remaining_of(
            attempt.prediction, is_resumed=is_resumed, after=ahead.after_count
        )
        self._began = began or attempt.record.started_at or site.clock.now()
        self._log = LogProgress(
            partial(read_chunk, attempt.log),
            site.clock,
            LogParser(job.progress, **totals._asdict(), is_resumed=is_resumed),
            self._remaining,
            Redactor(()),
            lambda _data, _skipped: None,
            WrittenProgress(attempt.written_folders, site.clock, self._began, *totals[:2]),
            ahead.iterations,
            ahead.epochs,
            ahead.course,
        )
        self._snapshot_due = NowAndThen(site.clock, _SNAPSHOT_EVERY_S)

    def read(self, *, last: bool = False) -> None:
        """Read what is new, and keep how far the run is.

        Raises:
            LeaseLost: Another attempt has the run, or it has ended.
        """
        fence, ledger = self._attempt.fence, self._site.ledger
        elapsed_s = max((self._site.clock.now() - self._began).total_seconds(), 0.0)
        self._log.read(elapsed_s, last=last)

        def keep(before: int, points: Sequence[ProgressPoint]) -> None:
            ledger.progress.append(fence, points, first=before)

        self._log.keep(keep)
        if last or self._snapshot_due.is_due():
            left = self._remaining.at(elapsed_s)
            now = Watched(elapsed_s, self._log.point, left, Usage(), per_s=self._remaining.per_s)
            keep_snapshot(self._site, fence, now)


def _measured(job: Job | None, used: Used) -> Measurement:
    began, ended = (job.started_at, job.ended_at) if job is not None else (None, None)
    return Measurement(
        runtime_s=max((ended - began).total_seconds(), 0.0) if began and ended else None,
        host_peak_bytes=used.host_peak_bytes,
        gpu_peak_bytes=used.gpu_peak_bytes,
        gpu_utilisation_frac=used.gpu_utilisation_frac,
        cpu_s=used.cpu_s,
    )


def _lead(link: Path, to: Path) -> None:
    """Let what the engine's machine writes at *link* lie at *to*."""
    link.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(to)

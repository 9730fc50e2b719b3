"""PBS and LSF, by PSI/J (PyPI: psij-python), as the user who runs their commands.

PSI/J submits and cancels; all else of the port is the shared folder's. It has no keys, so a try
that was cut off may leave a second job in the queue: the wrapper of one of them runs the program,
the other ends at once. It cannot tell what a queue has, so who adds one says it (`EnginePool`).
Its own polling is not used, since it takes a job that is not told of for one that ended well, and
a question that failed for the end of all: batch schedulers are asked here, by the command that
PSI/J makes and reads.
"""

import os
import pwd
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from headway.clock import Clock
from headway.engine.errors import EngineAway, EngineRefused
from headway.engine.folder_engine import FolderEngine
from headway.engine.judge import Seen
from headway.engine.login import Login
from headway.engine.place import Place
from headway.engine.port import Cluster, GpuAsk, Part, Phase, Request, Submitted
from headway.model.engine import EnginePool
from headway.model.run import ExitKind
from headway.units import DAY_S, MINUTE_S

_ANSWERS_WITHIN_S = 60.0
_SPARE_S = 2 * MINUTE_S
"""On top of a job's limit: its wrapper ends it before the scheduler does."""
_UNLIMITED_S = 365 * DAY_S
"""PSI/J gives ten minutes to who names no limit."""
_COMMANDS = 30
"""The most that one question may take, where some of its jobs cannot be read."""
_NEVER_S = 10**8
"""How often PSI/J itself is to ask."""
_AWAY = re.compile(
    r"connect|timed? ?out|unreachable|communicat|not responding|is down|try again", re.IGNORECASE
)
_GONE = re.compile(r"unknown|invalid job|not found|no matching|finished", re.IGNORECASE)
"""What schedulers say of a job that they do not know any more."""
_OF_SCHEDULERS = ("PBS", "LSF_", "LSB_", "EGO_", "SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS")
"""How the variables begin by which their commands find the cluster."""
_KILLED = "somebody cancelled it with the cluster's own commands, or its queue killed it at a limit"
_STATES: Mapping[str, tuple[Phase, ExitKind | None, str]] = {
    "QUEUED": (Phase.WAITING, None, "it waits in the cluster's queue"),
    "ACTIVE": (Phase.RUNNING, None, "it runs"),
    "COMPLETED": (Phase.ENDED, ExitKind.OK, "it ended well"),
    "FAILED": (Phase.ENDED, ExitKind.FAILED, "it failed"),
    "CANCELED": (Phase.ENDED, ExitKind.CANCELLED, _KILLED),
}
"""By PSI/J's names; any other is told as it is, and its job taken to go on."""


def _slots(cpus: int, gpus: int) -> dict[str, int | None]:
    """A slot for each CPU, where PSI/J's script asks for slots alone."""
    return {"processes_per_node": cpus, "node_count": 1, "gpu_cores_per_process": gpus or None}


def _process(cpus: int, gpus: int) -> dict[str, int | None]:
    return {
        "process_count": 1,
        "cpu_cores_per_process": cpus,
        "gpu_cores_per_process": gpus or None,
    }


@dataclass(frozen=True, slots=True)
class Kind:
    """In what PSI/J's executors differ."""

    title: str
    job_id: str
    """The engine's name for a job, in that job's shell."""
    shape: Callable[[int, int], dict[str, int | None]] = _slots
    """CPUs and GPUs, as its script asks for them."""
    has_gpus: bool = False
    """Whether its script can ask for a number of GPUs for the whole job."""


KINDS: Mapping[str, Kind] = {
    "pbs": Kind("PBS", "$PBS_JOBID"),
    "pbs_classic": Kind("Torque", "$PBS_JOBID", has_gpus=True),
    "lsf": Kind("LSF", "$LSB_JOBID"),
    "slurm": Kind("Slurm by PSI/J", "$SLURM_JOB_ID", _process, has_gpus=True),
    "local": Kind("this machine", "$PPID", _process),
}
"""By PSI/J's names. By the last two the contract is tried; Slurm has an adapter of its own."""


class PsijEngine(FolderEngine):
    """Port `Engine` on one of PSI/J's executors: single jobs, each on one node."""

    takes: frozenset[type[Part]] = frozenset()
    _spread = ()
    _rank_variable = ""

    def __init__(
        self, place: Place, site: str, clock: Clock, *, kind: str, pools: Sequence[EnginePool]
    ) -> None:
        """An adapter for one site.

        Args:
            place: The folder that this host and all nodes of the cluster share.
            site: Name of the installation.
            clock: For how long something has been so.
            kind: Which of `KINDS`.
            pools: Its queues, with what each has: PSI/J cannot say.
        """
        super().__init__(place, site, clock)
        self._kind, self._pools = KINDS[kind], {pool.name: pool for pool in pools}
        self.name = self._kind.title
        self._names = f'export HEADWAY_JOB="{self._kind.job_id}" HEADWAY_ALONE=1'
        self._psij, batch = _loaded()
        config = batch.BatchSchedulerExecutorConfig(
            work_directory=place.root / ".psij",
            queue_polling_interval=_NEVER_S,
            initial_queue_polling_delay=_NEVER_S,
        )
        self._executor = self._psij.JobExecutor.get_instance(kind, config=config)
        self._is_batch = isinstance(self._executor, batch.BatchSchedulerExecutor)
        self._executor._run_command = self._run  # noqa: SLF001 - in time; and told from a refusal
        self._files = place.root / ".psij" / kind
        self._attached: dict[str, Any] = {}

    def inspect(self) -> Cluster:
        """What was said of it."""
        return Cluster(f"PSI/J {self._psij.__version__}", tuple(self._pools.values()), max_array=1)

    def submit(self, request: Request) -> Submitted:
        """See `Engine.submit`; within its queue's own limit the wrapper leaves it its grace."""
        pool = self._pools.get(request.pool)
        if request.time_limit_s is None and pool is not None and pool.max_time_s is not None:
            left_s = max(pool.max_time_s - request.grace_s - _SPARE_S, MINUTE_S)
            request = replace(request, time_limit_s=left_s)
        return super().submit(request)

    def forget(self, key: str) -> None:
        """See `Engine.forget`; PSI/J's own files, too."""
        name = self._place.noted(key) or key
        for path in self._files.glob(f"{name}.*"):
            path.unlink(missing_ok=True)
        self._attached.pop(name, None)
        super().forget(key)

    def _submit(self, request: Request, script: Path, _ids: Mapping[str, str]) -> str:
        psij, pool = self._psij, self._pools.get(request.pool)
        longest_s = (pool and pool.max_time_s) or _UNLIMITED_S
        asked_s = (request.time_limit_s or _UNLIMITED_S) + request.grace_s + _SPARE_S
        job = psij.Job(
            psij.JobSpec(
                executable="/bin/sh",
                arguments=[str(script)],
                directory=script.parent,
                inherit_environment=False,
                environment=_environment(),
                stderr_path=script.parent / "batch.log",
                resources=psij.ResourceSpecV1(
                    **self._kind.shape(request.cpus, self._gpus(request)),
                    memory=request.host_memory_bytes,
                ),
                attributes=psij.JobAttributes(
                    duration=timedelta(seconds=min(asked_s, longest_s)),
                    queue_name=request.pool,
                    account=request.account or None,
                ),
            )
        )
        try:
            self._executor.submit(job)
        except (psij.SubmitException, psij.InvalidJobException) as error:
            raise EngineRefused(self.name, request.key, " ".join(str(error).split())) from error
        finally:
            (self._files / f"{job.id}.job").unlink(missing_ok=True)
        job.spec = None  # PSI/J keeps it
        if job.native_id is None:
            raise EngineAway(self.name, "submit", "it gave the job no name")
        return str(job.native_id)

    def _gpus(self, request: Request) -> int:
        """How many it asks for.

        Raises:
            EngineRefused: As PSI/J cannot: those of a type, parts of one, or any at all there.
        """
        asked = request.gpus or GpuAsk(0)
        if asked.type or asked.shards or (asked.count and not self._kind.has_gpus):
            said = "PSI/J cannot name a type of GPU, or a part of one"
            said = said if self._kind.has_gpus else "PSI/J cannot name GPUs for it"
            raise EngineRefused(self.name, request.key, said)
        if request.qos:
            raise EngineRefused(self.name, request.key, "PSI/J cannot name a QOS")
        return asked.count

    def _queue(self) -> dict[str, dict[tuple[str, int], Seen]]:
        known = self._place.known().items()
        keys = {facts.engine_id: key for key, facts in known if facts.engine_id}
        return {keys[name]: {(name, 0): seen} for name, seen in self._ask(list(keys)).items()}

    def _ask_to_stop(self, which: Sequence[tuple[str, int]], _login: Login | None) -> None:
        """Those that run are told by their wrappers, who look for the mark."""
        seen = self._ask([engine_id for engine_id, _ in which])
        self._kill([each for each in which if _waits(seen.get(each[0]))], _login)

    def _kill(self, which: Sequence[tuple[str, int]], _login: Login | None) -> None:
        for engine_id, _ in which:
            if self._is_batch:
                with suppress(subprocess.CalledProcessError):  # it has ended meanwhile
                    self._run(self._executor.get_cancel_command(engine_id))
            elif (job := self._attach(engine_id)) is not None:
                self._executor.cancel(job)

    def _ask(self, ids: list[str]) -> dict[str, Seen]:
        """What the engine knows of those jobs; not those that it does not know any more."""
        if not ids:
            return {}
        if not self._is_batch:
            jobs = {name: self._attach(name) for name in ids}
            return {name: self._seen(name, job.status) for name, job in jobs.items() if job}
        told: dict[str, Seen] = {}
        parts = [ids]
        for _ in range(_COMMANDS):
            if parts:
                part = parts.pop()
                told |= self._ask_of(part, parts)
        # Of those that would take more than that nothing is known now.
        return told | {name: Seen(name, "not asked", Phase.UNKNOWN) for p in parts for name in p}

    def _ask_of(self, ids: list[str], parts: list[list[str]]) -> dict[str, Seen]:
        """What one command tells of them; where not all can be read, both halves go to *parts*."""
        command, code = self._executor.get_status_command(ids), 0
        try:
            said = self._run(command)
        except subprocess.CalledProcessError as error:
            code, said = error.returncode, error.output
        try:
            found = self._executor.parse_status_output(code, said)
        except Exception:  # noqa: BLE001 - it asserts: of one job it cannot read, or all at once
            if len(ids) > 1 and ids[0] in command:
                half = len(ids) // 2
                parts += ids[:half], ids[half:]
                return {}
            known = [] if code and _GONE.search(said) else ids
            return {name: Seen(name, "not understood", Phase.UNKNOWN) for name in known}
        return {name: self._seen(name, found[name]) for name in ids if name in found}

    def _seen(self, engine_id: str, status: Any) -> Seen:
        word = status.state.name
        phase, kind, sentence = _STATES.get(word, (Phase.UNKNOWN, None, ""))
        if kind is ExitKind.OK and self._is_batch:  # its script ends well, whatever it ran
            code = self._files / f"{engine_id}.ec"
            ended_well = code.exists() and code.read_text().strip() == "0"
            kind, sentence = (kind, sentence) if ended_well else (ExitKind.FAILED, "it failed")
        sentence += f": {status.message}" if status.message else ""
        return Seen(engine_id, word, phase, kind, sentence)

    def _attach(self, engine_id: str) -> Any:
        """PSI/J's job of that name; None where the engine has none."""
        if engine_id not in self._attached:
            job = self._psij.Job()
            try:
                self._executor.attach(job, engine_id)
            except Exception:  # noqa: BLE001 - each executor raises its own, for one that is gone
                return None
            self._attached[engine_id] = job
        return self._attached[engine_id]

    def _run(self, command: list[str]) -> str:
        """What *command* answers.

        Raises:
            EngineAway: It does not, in time.
            CalledProcessError: It says no.
        """
        try:
            done = subprocess.run(
                command,
                env=_of_commands(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_ANSWERS_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            said = f"nothing for {_ANSWERS_WITHIN_S:.0f} s"
            raise EngineAway(self.name, command[0], said) from None
        except OSError as error:
            raise EngineAway(self.name, command[0], error.strerror or str(error)) from error
        said = done.stdout.decode(errors="replace")
        if done.returncode and _AWAY.search(said):
            raise EngineAway(self.name, command[0], " ".join(said.split()))
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, output=said)
        return said


def _waits(seen: Seen | None) -> bool:
    return seen is not None and seen.phase is Phase.WAITING


def _environment() -> dict[str, str]:
    """What a job is given beside its own: nothing of headway's, which has the site's secrets."""
    me = pwd.getpwuid(os.getuid())
    who = {"HOME": me.pw_dir, "USER": me.pw_name, "LOGNAME": me.pw_name}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin"} | who


def _of_commands() -> dict[str, str]:
    """What the scheduler's commands are given: it hands on to jobs what they have."""
    names = {"PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME"}
    own = {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith(_OF_SCHEDULERS)
    }
    # bsub reads a file's own options only then.
    return _environment() | own | {"LC_ALL": "C", "LSB_BSUB_PARSE_SCRIPT": "Y"}


def _loaded() -> tuple[Any, Any]:
    """PSI/J, and its module of batch schedulers; without its handler of this process's children."""
    before = signal.getsignal(signal.SIGCHLD)
    import psij  # noqa: PLC0415 - an extra, for those who have such a scheduler
    from psij.executors.batch import batch_scheduler_executor  # noqa: PLC0415

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before)
    return psij, batch_scheduler_executor

"""PSI/J's executor ``headway``: jobs of parsl's, RADICAL's and other users of PSI/J on a site.

    psij.JobExecutor.get_instance("headway").submit(job)

Standard streams are paths on the machine of whoever submits: what is to be read is sent along,
what was written is fetched once the job has ended. `directory` and `executable` are the node's.
"""

import logging
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import psij
from psij.resource_spec import ResourceSpecV1

from headway.bridges.calls import as_name, in_this_python, sent_with
from headway.bridges.patience import patiently
from headway.client import Client
from headway.client.run import LOOK_EVERY_S, Run
from headway.clock import SystemClock
from headway.errors import HeadwayError, InvalidInput, RunUnknown

_log = logging.getLogger(__name__)
_PREFIX = "headway."
"""Of custom attributes that are fields of a job file, such as ``headway.image``."""
_STARTED = frozenset({"Running", "Cancelling"})
_ENDS = {"Completed": psij.JobState.COMPLETED, "Cancelled": psij.JobState.CANCELED}
_MOST_MISSES = 60
_LISTED = 1000
_SCRIPT = b"""\
set -e
program=$PWD outputs=$HEADWAY_OUTPUTS
if [ -n "$1" ]; then cd "$1"; fi
shift
if [ -e "$program/stdin" ]; then exec < "$program/stdin"; else exec < /dev/null; fi
exec "$@" > "$outputs/stdout" 2> "$outputs/stderr"
"""


_Jobs = list[psij.Job]
"""Of one run; in the class below `list` is a method."""
_Ids = list[str]


class HeadwayJobExecutor(psij.JobExecutor):
    """Submits each job as a run, and tells of its states from one thread for all."""

    def __init__(
        self, url: str | None = None, config: psij.JobExecutorConfig | None = None
    ) -> None:
        """The site of `headway login`; *url* and *config* are PSI/J's and say nothing here."""
        super().__init__(url=url, config=config or psij.JobExecutorConfig())
        self._clock = SystemClock()
        self._jobs: dict[str, _Jobs] = {}
        self._misses: dict[str, int] = {}
        """Of runs that have ended: how often their streams could not be fetched."""
        self._lock = Lock()
        self._watching = False

    def submit(self, job: psij.Job) -> None:
        """See `psij.JobExecutor.submit`."""
        spec = self._check_job(job)
        try:
            fields = _fields(spec)
            files = {"run.sh": _SCRIPT}
            if spec.stdin_path is not None:
                files["stdin"] = Path(spec.stdin_path).read_bytes()
            with Client() as client, sent_with(fields, files, []) as sent:
                queue, key = getattr(spec.attributes, "queue_name", None), uuid.uuid4().hex
                run = patiently(lambda: client.submit(sent, key=key, queue=queue))
                self._follow(client, job, run.run_id)
        except InvalidInput as error:
            raise psij.InvalidJobException(str(error)) from error
        except (HeadwayError, OSError) as error:
            raise psij.SubmitException(str(error)) from error

    def attach(self, job: psij.Job, native_id: str) -> None:
        """See `psij.JobExecutor.attach`; *native_id* is a run's id."""
        if job.status.state != psij.JobState.NEW:
            raise psij.InvalidJobException("Job must be in the NEW state")
        job.executor = self
        with Client() as client:
            self._follow(client, job, native_id)

    def _follow(self, client: Client, job: psij.Job, run_id: str) -> None:
        with self._lock:
            job._native_id = run_id  # noqa: SLF001 - PSI/J's own executors set it
            given_up = job.status.final  # cancelled while it was submitted
        if given_up:
            patiently(lambda: client.cancel(run_id))
            return
        self._set_job_status(job, psij.JobStatus(psij.JobState.QUEUED))
        with self._lock:
            self._jobs.setdefault(run_id, []).append(job)
            begin, self._watching = not self._watching, True
        if begin:
            Thread(target=self._watch, daemon=True, name="headway-psij").start()

    def cancel(self, job: psij.Job) -> None:
        """See `psij.JobExecutor.cancel`."""
        with self._lock:
            run_id = job.native_id
            if run_id is None:
                self._set_job_status(job, psij.JobStatus(psij.JobState.CANCELED))
                return
        try:
            with Client() as client:
                client.cancel(run_id)
        except HeadwayError as error:
            raise psij.SubmitException(str(error)) from error

    def list(self) -> _Ids:
        """The runs of the token's user that have not ended."""
        with Client() as client:
            found = client.runs(_LISTED, mine=True, members=True)
        return [each["run_id"] for each in found if each.get("ended_at") is None]

    def _watch(self) -> None:
        """Tell of changes until no job is left."""
        while True:
            with self._lock:
                jobs = {run_id: [*each] for run_id, each in self._jobs.items()}
                self._watching = bool(jobs)
            if not jobs:
                return
            try:
                with Client() as client:  # with the token of now
                    for run_id, each in jobs.items():
                        self._look(client, run_id, each)
            except (HeadwayError, OSError) as error:
                _log.warning("the site cannot be asked now: %s", error)
            self._clock.sleep(LOOK_EVERY_S)

    def _look(self, client: Client, run_id: str, jobs: _Jobs) -> None:
        """Tell *jobs* how their run stands; what is not known now is asked for later."""
        try:
            status = self._status(client, run_id, jobs)
        except RunUnknown as error:
            status = psij.JobStatus(psij.JobState.FAILED, message=str(error))
        if status is None:
            return
        if status.final:
            with self._lock:
                left = [each for each in self._jobs.pop(run_id, []) if each not in jobs]
                if left:
                    self._jobs[run_id] = left
                self._misses.pop(run_id, None)
        for job in jobs:
            if status.final or status.state.is_greater_than(job.status.state):
                self._set_job_status(job, status)

    def _status(self, client: Client, run_id: str, jobs: _Jobs) -> psij.JobStatus | None:
        """How the run stands; None where that is not all known yet."""
        standing = client.standing(run_id)
        if not standing["over"]:
            active = standing["state"] in _STARTED
            return psij.JobStatus(psij.JobState.ACTIVE if active else psij.JobState.QUEUED)
        run = client.run(run_id)
        lost = ""
        try:
            _bring(run, [job.spec for job in jobs if job.spec is not None])
        except (HeadwayError, OSError) as error:
            misses = self._misses[run_id] = self._misses.get(run_id, 0) + 1
            if misses < _MOST_MISSES:
                return None
            lost = f"; its streams could not be fetched: {error}"
        state = _ENDS.get(run["state"], psij.JobState.FAILED)
        code = (run.get("exit") or {}).get("code")
        return psij.JobStatus(state, message=run.message + lost, exit_code=code)


def _bring(run: Run, wanted: Sequence[psij.JobSpec]) -> None:
    """The run's streams to where jobs want them."""
    if not run["attempts"] or not any(each.stdout_path or each.stderr_path for each in wanted):
        return
    with tempfile.TemporaryDirectory(prefix="headway-psij-") as made:
        found = run.outputs(Path(made) / "outputs", ["stdout", "stderr"])
        streams = {each.name: each for each in found}
        for spec in wanted:
            for name, path in (("stdout", spec.stdout_path), ("stderr", spec.stderr_path)):
                if path is not None and name in streams:
                    shutil.copyfile(streams[name], path)


def _fields(spec: psij.JobSpec) -> dict[str, Any]:
    """*spec* as fields of a job file.

    Raises:
        InvalidInput: It asks for what a run does not have.
    """
    refused = {
        "launcher": spec.launcher not in {None, "", "single"},
        "pre_launch": spec.pre_launch is not None,
        "post_launch": spec.post_launch is not None,
        "stage_in": bool(getattr(spec, "stage_in", None)),
        "stage_out": bool(getattr(spec, "stage_out", None)),
        "inherit_environment": not spec.inherit_environment,
    }
    for name, asked in refused.items():
        if asked:
            allowed = "a run has none of it: leave it out, or write a job file"
            raise InvalidInput(name, str(getattr(spec, name)), allowed)
    if not spec.executable:
        raise InvalidInput("executable", "", "name the program, such as /bin/date")
    attributes = spec.attributes
    given: Mapping[str, Any] = getattr(attributes, "custom_attributes", None) or {}
    own = {n.removeprefix(_PREFIX): v for n, v in given.items() if n.startswith(_PREFIX)}
    fields = in_this_python(own)
    if account := getattr(attributes, "account", None):
        fields["team"] = account
    if (lasts := getattr(attributes, "duration", None)) is not None:
        fields.setdefault("max_runtime", f"{lasts.total_seconds():.0f}s")
    fields["name"] = as_name(spec.name or spec.executable)
    words = [str(each) for each in spec.arguments or []]
    fields["command"] = ["sh", "run.sh", str(spec.directory or ""), str(spec.executable), *words]
    fields["env"] = {name: str(value) for name, value in (spec.environment or {}).items()}
    return fields | {
        "resources": _resources(spec.resources or ResourceSpecV1(), own.get("resources") or {})
    }


def _resources(spec: psij.ResourceSpec, own: Mapping[str, Any]) -> dict[str, Any]:
    """*own*, and what *spec* says; one process."""
    if not isinstance(spec, ResourceSpecV1):
        raise InvalidInput("resources", type(spec).__name__, "give a ResourceSpecV1")
    if spec.computed_process_count > 1:
        allowed = "1: several are for jobs with `launch`, which PSI/J cannot say"
        raise InvalidInput("process_count", str(spec.computed_process_count), allowed)
    found: dict[str, Any] = {}
    if spec.cpu_cores_per_process:
        found["cpus"] = spec.cpu_cores_per_process
    if spec.gpu_cores_per_process:
        found["gpus"] = spec.gpu_cores_per_process
    if (memory := getattr(spec, "memory", None)) is not None:
        found["host_memory"] = int(memory)
    if spec.exclusive_node_use:
        found["sharing"] = "whole"
    return {**found, **own}

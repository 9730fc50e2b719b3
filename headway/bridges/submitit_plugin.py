"""submitit's executor ``headway``: Python functions of its users, and of Hydra's, on a site.

submitit finds it by its entry points. Function and result travel with the run, so that no folder
has to be shared with the nodes; submitit's own folder is on the machine of whoever submits.
"""

import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import cloudpickle
import submitit
import typing_extensions
from submitit.core import utils
from submitit.core.core import InfoWatcher, Job, PicklingExecutor

from headway.bridges.calls import in_this_python, name_of, sent_with
from headway.bridges.patience import patiently
from headway.bridges.sent import headway_submitit
from headway.client import Client
from headway.errors import GatewayRefused, InvalidInput, RunUnknown, SiteUnreachable
from headway.model.job import TrainingJob
from headway.units import format_size

_PROGRAM = "headway_submitit"
_PLUGIN = {
    f"{_PROGRAM}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {_PROGRAM}\nVersion: 1\n",
    f"{_PROGRAM}.dist-info/entry_points.txt": (
        f"[submitit]\njob_environment = {_PROGRAM}:HeadwayJobEnvironment\n"
    ),
}
"""By these submitit finds the environment on a node, where headway is not installed."""
_RESOURCES = {"cpus_per_task": "cpus", "gpus_per_node": "gpus"}
_OWN = frozenset({"pool", "queue"})
_LOOK_EVERY_S = 5
_NO_LIMIT_MIN = 60 * 24 * 365


class HeadwayInfoWatcher(InfoWatcher):
    """Asks the site how the jobs stand that have not ended."""

    def update(self) -> None:
        """Ask of each; one that cannot be asked about now is asked about later."""
        self._num_calls += 1
        with Client() as client:
            for job_id in self._registered - self._finished:
                try:
                    standing = client.standing(job_id)
                except RunUnknown:
                    standing = {"state": "Unknown", "over": True}
                except (SiteUnreachable, GatewayRefused):
                    continue
                self._info_dict[job_id] = {"State": str(standing["state"]).upper()}
                if standing["over"]:
                    self._finished.add(job_id)
        self._last_status_check = time.time()  # noqa: TID251 - as its base class has it

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Prefect's state in capitals; ``UNKNOWN`` before the first answer."""
        return self.get_info(job_id, mode=mode).get("State", "UNKNOWN")

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether the run has ended."""
        self.get_info(job_id, mode=mode)
        return job_id in self._finished


class HeadwayJob(Job[Any]):
    """A run, as submitit's users hold it; its id is the run's."""

    watcher = HeadwayInfoWatcher(delay_s=_LOOK_EVERY_S)
    _results_timeout_s = 0  # what there is has been fetched

    def done(self, force_check: bool = False) -> bool:  # noqa: FBT001, FBT002 - submitit's
        """Whether it has ended; then log and result are in submitit's folder."""
        if self.paths.result_pickle.exists():
            return True
        if not self.watcher.is_done(self.job_id, mode="force" if force_check else "standard"):
            return False
        self._fetch()
        return True

    def _fetch(self) -> None:
        paths = self.paths
        paths.folder.mkdir(parents=True, exist_ok=True)
        with Client() as client, tempfile.TemporaryDirectory(dir=paths.folder) as made:
            run = patiently(lambda: client.run(self.job_id))
            if run["attempts"]:
                paths.stdout.write_text(patiently(run.log))
                wanted = [paths.result_pickle.name]
                for found in patiently(lambda: run.outputs(Path(made) / "outputs", wanted)):
                    shutil.move(found, paths.result_pickle)

    def stdout(self) -> str | None:
        """What the program has written so far, errors included: a run has one log."""
        with Client() as client:
            return b"".join(client.log(self.job_id)).decode(errors="replace")

    def cancel(self, check: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - submitit's
        """End the run."""
        with Client() as client:
            client.cancel(self.job_id)


class HeadwayExecutor(PicklingExecutor):
    """Submits each function as a run.

    Parameters of submitit that are understood: name, timeout_min, mem_gb, cpus_per_task,
    gpus_per_node; beside them ``headway_pool``, ``headway_queue`` and every field of a job file
    but command, such as ``headway_image`` or ``headway_requirements`` (a list of packages).
    """

    job_class = HeadwayJob

    @classmethod
    def affinity(cls) -> int:
        """Only where it is asked for: to know of a site, it would have to be asked."""
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return (set(TrainingJob.model_fields) | _OWN) - {"command"}

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[Job[Any]]:
        return [self._submitted(each) for each in delayed_submissions]

    def _submitted(self, delayed: utils.DelayedSubmission) -> Job[Any]:
        given = dict(self.parameters)
        place = {name: given.pop(name, None) for name in _OWN}
        # Without a time limit a run that is stopped for another one has not timed out.
        delayed.set_timeout(given.get("timeout_min", _NO_LIMIT_MIN), self.max_num_timeout)
        call = cloudpickle.dumps(delayed)
        if len(call) > (most := self.max_pickle_size_gb * 1024**3):
            allowed = f"at most {format_size(int(most))}: raise headway_max_pickle_size_gb"
            raise InvalidInput("function", format_size(len(call)), allowed)
        job = self._job(given) | {"command": ["python", "-u", f"{_PROGRAM}.py"]}
        job.setdefault("name", name_of(delayed.function))
        files = {headway_submitit.CALL: call, **{n: t.encode() for n, t in _PLUGIN.items()}}
        modules = [headway_submitit, submitit, cloudpickle, typing_extensions]
        with Client() as client, sent_with(job, files, modules) as sent:
            key = uuid.uuid4().hex
            run = patiently(lambda: client.submit(sent, key=key, **place))
        made = self.job_class(self.folder, run.run_id)
        made.paths.folder.mkdir(parents=True, exist_ok=True)
        made.paths.submitted_pickle.write_bytes(call)
        return made

    def _job(self, given: dict[str, Any]) -> dict[str, Any]:
        """*given* as fields of a job file."""
        for name in ("nodes", "tasks_per_node"):
            if (asked := given.pop(name, 1)) > 1:
                allowed = "1: a function is called once; several nodes are for jobs with a command"
                raise InvalidInput(name, str(asked), allowed)
        given.pop("stderr_to_stdout", None)  # a run has one log
        resources = dict(given.pop("resources", {}))
        for theirs, ours in _RESOURCES.items():
            if (asked := given.pop(theirs, None)) is not None:
                resources[ours] = asked
        if (memory := given.pop("mem_gb", None)) is not None:
            resources["host_memory"] = f"{memory * 1024:.0f}MiB"
        if (minutes := given.pop("timeout_min", None)) is not None:
            given["max_runtime"] = f"{minutes * 60:.0f}s"
        return in_this_python(given) | {"resources": resources}

    def _num_tasks(self) -> int:
        return 1

    # The rest of what submitit's base class wants is of executors that write scripts.
    def _make_submission_file_text(self, command: str, uid: str) -> str:
        raise NotImplementedError

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        raise NotImplementedError

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError

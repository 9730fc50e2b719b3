"""Hydra's launcher ``headway``: each job of a sweep as a run (``-m hydra/launcher=headway``).

Hydra finds it by its package, whose name it prescribes. The configuration of each job is made here
and travels with the call, so that a node needs Hydra, but neither this machine's files nor headway.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, filter_overrides
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

_LOG = logging.getLogger(__name__)
_FOLDER = "hydra-sweep"
"""Of the outputs of a run: where its jobs write what Hydra keeps."""


@dataclass
class HeadwayLauncherConf:
    """What may be said as ``hydra.launcher.NAME``; what is left open is learnt, as of any run."""

    _target_: str = "hydra_plugins.headway_launcher.HeadwayLauncher"
    name: str = "${hydra.job.name}"
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    mem_gb: float | None = None
    timeout_min: int | None = None
    pool: str | None = None
    queue: str | None = None
    requirements: list[str] = field(default_factory=list)
    """Packages of the environment that the runs get, beside Hydra; without any they find what the
    node or the image has."""
    job: dict[str, Any] = field(default_factory=dict)
    """Further fields of a job file."""


class HeadwayLauncher(Launcher):
    """Submits the jobs of a sweep together and waits for all of them."""

    def __init__(self, **given: Any) -> None:
        """Of `HeadwayLauncherConf` what is *given*."""
        self._given = given
        self._context: HydraContext
        self._task: TaskFunction
        self._config: DictConfig

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """See Hydra's `Launcher`."""
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """One result for each of *job_overrides*, in their order."""
        # Hydra imports all its plugins whenever it starts.
        import cloudpickle  # noqa: PLC0415
        import submitit  # noqa: PLC0415

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a node does not have it
        logging.getLogger("httpx").setLevel(logging.WARNING)  # each question to the gateway
        sweep = Path(str(self._config.hydra.sweep.dir))
        executor = submitit.AutoExecutor(folder=sweep / ".submitit", cluster="headway")
        executor.update_parameters(**self._parameters())
        calls = []
        for number, overrides in enumerate(job_overrides, start=initial_job_idx):
            given = list(overrides)
            config = self._context.config_loader.load_sweep_config(self._config, given)
            with open_dict(config):
                config.hydra.job.num, config.hydra.job.id = number, str(number)
            _LOG.info("\t#%s : %s", number, " ".join(filter_overrides(given)))
            state = Singleton.get_state()
            calls.append(executor.submit(_run, self._context, self._task, config, state, _FOLDER))
        for call in calls:  # what they wrote is here though one of them fails
            call.wait()
            _take_home(call.job_id, sweep)
        return [self._result(call, sweep) for call in calls]

    def _result(self, call: Any, sweep: Path) -> JobReturn:
        """What Hydra is told of *call*, as if it had run here."""
        found: JobReturn = call.result()
        before, is_in_it, below = str(found.working_dir).partition(f"/{_FOLDER}/")
        found.working_dir = str(sweep / below) if is_in_it else before
        return found

    def _parameters(self) -> dict[str, Any]:
        """*given* as submitit's executor for headway has it."""
        given: dict[str, Any] = {
            name: OmegaConf.to_container(each, resolve=True) if OmegaConf.is_config(each) else each
            for name, each in self._given.items()
        }
        fields = dict(given.pop("job", None) or {})
        if packages := given.pop("requirements", []):
            fields["requirements"] = [f"hydra-core=={version('hydra-core')}", *packages]
        for name in ("pool", "queue"):
            fields[name] = given.pop(name, None)
        found = given | {f"headway_{name}": each for name, each in fields.items()}
        return {name: each for name, each in found.items() if each is not None}


def _take_home(run_id: str, sweep: Path) -> None:
    """Put what a run wrote for Hydra below *sweep*."""
    from headway.client import Client  # noqa: PLC0415

    sweep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=sweep) as made, Client() as client:
        client.run(run_id).outputs(Path(made, "run"), [f"{_FOLDER}/*"])
        if (written := Path(made, "run", _FOLDER)).is_dir():
            shutil.copytree(written, sweep, dirs_exist_ok=True)


def _run(
    context: HydraContext, task: TaskFunction, config: DictConfig, state: Any, folder: str
) -> JobReturn:
    """On the node: the job as Hydra itself runs it."""
    from hydra.core.singleton import Singleton  # noqa: PLC0415 - of the node's Hydra
    from hydra.core.utils import run_job, setup_globals  # noqa: PLC0415

    Singleton.set_state(state)
    setup_globals()
    config.hydra.sweep.dir = f"{os.environ['HEADWAY_OUTPUTS']}/{folder}"
    return run_job(
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        hydra_context=context,
    )


ConfigStore.instance().store(
    group="hydra/launcher", name="headway", node=HeadwayLauncherConf(), provider="headway"
)

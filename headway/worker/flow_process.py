"""How the flow process of a run is started: from this installation's own table, `FLOWS`."""

import os
from pathlib import Path

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.logging import get_logger
from prefect.workers.process import ProcessJobConfiguration
from pydantic import PrivateAttr

from headway.errors import HeadwayError, shown
from headway.node.forkstart import start_server
from headway.project import FLOWS, PROJECT

PRELOAD = (
    "prefect.engine",
    "prefect.flow_engine",
    "prefect.task_engine",
    "fastapi.encoders",  # Prefect encodes a flow's parameters with it
    "flows.train",
    "headway.runtime.docker.containers",
    "headway.views.charts",
)
"""What the fork server imports once, so that no run waits or pays for it."""

PRELOAD_ENV = {"OPENBLAS_NUM_THREADS": "1"}
"""With it numpy starts no threads: a process that has some must not fork."""

ENTRYPOINT = "PREFECT__FLOW_ENTRYPOINT"
"""With it Prefect's engine imports that flow, and asks no deployment."""

log = get_logger("worker.gpu-node")


def have_fork_server(state_dir: Path) -> None:
    """Start it unless it runs; without it runs start a second or two later each."""
    try:
        start_server(state_dir, PRELOAD, {**os.environ, **PRELOAD_ENV})
    except HeadwayError as error:
        log.warning("%s", error)


class GpuNodeConfiguration(ProcessJobConfiguration):
    """How one flow process is started.

    Whoever may write to Prefect's API chooses job variables, the pool's template,
    a deployment's entrypoint and its pull steps. Nothing of that is read here:
    it would run as the worker's owner.
    """

    _run_id: str = PrivateAttr(default="")
    _flow: str = PrivateAttr(default="")

    @property
    def run_id(self) -> str:
        """The run that the process is for."""
        return self._run_id

    @classmethod
    async def resolve_for_flow_run(
        cls, flow_run: FlowRun, *, client: PrefectClient, **_: object
    ) -> "GpuNodeConfiguration":
        """The configuration for *flow_run*, of which only its id and its flow's name count."""
        flow = await client.read_flow(flow_run.flow_id)
        # Streaming ties the flow to the worker's life: with it a flow whose worker
        # is killed ends Crashed, without it Completed (measured).
        configuration = cls(stream_output=False, working_dir=PROJECT)
        configuration.prepare_for_flow_run(flow_run, flow=flow if flow.name in FLOWS else None)
        configuration._run_id, configuration._flow = str(flow_run.id), flow.name
        return configuration

    def start_with(self, command: str) -> None:
        """Start the flow of the run with *command*.

        Raises:
            HeadwayError: It is not one of this installation's.
        """
        if self._flow not in FLOWS:
            raise HeadwayError(refusal(self._flow))
        self.command = command
        self._command_configured = True
        self.env[ENTRYPOINT] = FLOWS[self._flow]


def refusal(flow: str) -> str:
    """Why a run of *flow* is not started, and what to do."""
    return (
        f"flow {shown(flow)} is not one of headway's ({', '.join(sorted(FLOWS))}), so its run was "
        "not started; give it to a work pool with a worker of its own, such as "
        "`prefect worker start --type process`"
    )

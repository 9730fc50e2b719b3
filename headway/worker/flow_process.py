"""How the flow process of a run is started: from this installation's own table, `FLOWS`.

Whoever may write to Prefect's API chooses job variables, the pool's template,
a deployment's entrypoint and its pull steps. Nothing of that is read here: it
would run as the worker's owner.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from prefect.logging import get_logger
from prefect.settings import get_current_settings

from headway.errors import HeadwayError, shown
from headway.node.forkstart import PRELOAD, PRELOAD_ENV, start_server
from headway.project import FLOWS, VERSION_CHECK

RUN_ID = "PREFECT__FLOW_RUN_ID"
"""Which run Prefect's engine is to execute."""
ENTRYPOINT = "PREFECT__FLOW_ENTRYPOINT"
"""With it Prefect's engine imports that flow, and asks no deployment."""
_HOOKS = "PREFECT__ENABLE_CANCELLATION_AND_CRASHED_HOOKS"
"""Prefect's engine leaves the state of a run that was told to end to whoever started it."""

log = get_logger("worker.gpu-node")


def have_fork_server(state_dir: Path) -> None:
    """Start it unless it runs; without it no run starts."""
    try:
        start_server(state_dir, PRELOAD, {**_environment(), **PRELOAD_ENV})
    except HeadwayError as error:
        log.warning("%s", error)


def flow_environment(run_id: str, flow: str) -> dict[str, str]:
    """The environment of the process that executes run *run_id* of *flow*.

    Raises:
        HeadwayError: The flow is not one of this installation's.
    """
    if flow not in FLOWS:
        raise HeadwayError(refusal(flow))
    return {**_environment(), RUN_ID: run_id, ENTRYPOINT: FLOWS[flow], _HOOKS: "false"}


def _environment() -> dict[str, str]:
    """What all flow processes and the fork server have in common: none has to read it again."""
    return {**os.environ, **_prefect_settings(), VERSION_CHECK: "False"}


@cache
def _prefect_settings() -> Mapping[str, str]:
    """Settings of Prefect in this worker, which do not change; to collect them takes 0.1 s."""
    return get_current_settings().to_environment_variables(exclude_unset=True)


def refusal(flow: str) -> str:
    """Why a run of *flow* is not started, and what to do."""
    return (
        f"flow {shown(flow)} is not one of headway's ({', '.join(sorted(FLOWS))}), so its run was "
        "not started; give it to a work pool with a worker of its own, such as "
        "`prefect worker start --type process`"
    )

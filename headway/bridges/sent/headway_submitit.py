"""Runs submitit's job on a node: sent along with it, beside submitit itself.

Its pickle lies in the run's checkpoint, where submitit writes what a requeued job goes on from,
so that the next attempt finds that.
"""

import os
import shutil
from pathlib import Path
from typing import ClassVar

from submitit.core.job_environment import JobEnvironment
from submitit.core.submission import process_job

CALL = "call.pkl"


class HeadwayJobEnvironment(JobEnvironment):
    """What submitit's functions ask of the job that they are in."""

    USR_SIG = "TERM"  # by which headway asks a program to leave, with its grace time
    _env: ClassVar = {
        "job_id": "HEADWAY_RUN_ID",
        "num_tasks": "HEADWAY_NODES",
        "num_nodes": "HEADWAY_NODES",
        "node": "HEADWAY_NODE_RANK",
        "global_rank": "HEADWAY_NODE_RANK",
        "local_rank": "HEADWAY_LOCAL_RANK",
    }

    @classmethod
    def name(cls) -> str:
        """Of the executor."""
        return "headway"

    def activated(self) -> bool:
        """Whether this process is in a run that the executor submitted."""
        return "HEADWAY_RUN_ID" in os.environ and super().activated()

    def _requeue(self, countdown: int) -> None:
        """Nothing is to be done: headway starts a run again that it stopped for another one."""


def main() -> None:
    """Call the function; its result is among the outputs."""
    os.environ["SUBMITIT_EXECUTOR"] = HeadwayJobEnvironment.name()
    run_id = os.environ["HEADWAY_RUN_ID"]
    folder = Path(os.environ["HEADWAY_CHECKPOINT"], "submitit")
    folder.mkdir(parents=True, exist_ok=True)
    submitted, result = folder / f"{run_id}_submitted.pkl", folder / f"{run_id}_0_result.pkl"
    kept = Path(os.environ["HEADWAY_OUTPUTS"], result.name)
    for each in (result, kept):
        if each.exists():
            each.unlink()  # an earlier attempt's
    if not submitted.exists():
        part = submitted.with_suffix(".part")
        shutil.copy(Path(__file__).with_name(CALL), part)
        part.replace(submitted)
    try:
        process_job(folder)
    finally:
        if result.exists():
            shutil.copy(result, kept)


if __name__ == "__main__":
    main()

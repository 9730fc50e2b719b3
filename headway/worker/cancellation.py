"""Ending the flow process of a run that was cancelled before its flow began."""

import signal

import psutil

RUN_ID = "PREFECT__FLOW_RUN_ID"
"""Variable of a flow process that says which run it was started for."""


def end_flow_process(pid: str, run_id: str) -> None:
    """Ask process *pid* to end if it was started for *run_id*.

    Prefect's API hands out the pid, and anybody may have written it there.

    Raises:
        psutil.Error: There is no such process, or it is another user's.
        ValueError: *pid* is no number.
    """
    process = psutil.Process(int(pid))
    if process.environ().get(RUN_ID) == run_id:
        process.send_signal(signal.SIGTERM)

"""The private parts of Prefect that headway leans on: one table.

They may move with any version of Prefect. A test looks each of them up in the
Prefect that is installed, and fails with the rows that are true no more.
"""

from typing import NamedTuple


class Seam(NamedTuple):
    """One private name of Prefect that headway overrides, replaces, reads or writes."""

    owner: str
    """Module, and the class in it if there is one, such as ``prefect.results:ResultStore``."""
    name: str
    asked_by: str = ""
    """Function of the same module that must go on using it; empty where only headway does."""


_WORKER = "prefect.workers.base:BaseWorker"

SEAMS = (
    # Overridden: what the queue starts here now, instead of what Prefect lists first.
    Seam(_WORKER, "_get_scheduled_flow_runs", "BaseWorker.get_and_submit_flow_runs"),
    # Overridden: what fails on the way to a flow process gives the claim back and ends no worker.
    Seam(_WORKER, "_submit_run", "BaseWorker._submit_scheduled_flow_runs"),
    # Used: the claim, which is atomic; and the end of a flow process that said nothing itself.
    Seam(_WORKER, "_propose_pending_state", "BaseWorker._submit_run"),
    Seam(_WORKER, "_propose_crashed_state", "BaseWorker._submit_run_and_capture_errors"),
    # Read, and cleared: runs that are being claimed.
    Seam(_WORKER, "_submitting_flow_run_ids", "BaseWorker._submit_run"),
    # Read, and given back: how many runs `--limit` leaves.
    Seam(_WORKER, "_limiter", "BaseWorker._submit_scheduled_flow_runs"),
    Seam(_WORKER, "_release_limit_slot", "BaseWorker._submit_run"),
    # Overridden: the janitor ends what was cancelled.
    Seam(_WORKER, "_cancel_run", "BaseWorker._setup_cancellation_observer"),
    # Used: the worker's own tasks run in it, beside those of its runs.
    Seam(_WORKER, "_runs_task_group", "BaseWorker.setup"),
    # Read: how long before its time a run is taken in.
    Seam(_WORKER, "_prefetch_seconds"),
    # Replaced, in flows/: a stored result is a pickle.
    Seam("prefect.results:ResultStore", "_from_metadata"),
    # Replaced, in flows/: the janitor suspends runs.
    Seam(
        "prefect.flow_engine",
        "observe_flow_run_suspension",
        "BaseFlowRunEngine.setup_flow_run_suspension_request",
    ),
    # Replaced, in flows/: certificates are read once.
    Seam("prefect.client.orchestration", "ssl", "PrefectClient.__init__"),
    # Replaced, in flows/: no storage that is named in Prefect's API.
    Seam(
        "prefect.results",
        "_aread_server_default_result_storage_block_id",
        "_aget_default_result_storage",
    ),
    Seam(
        "prefect.results",
        "_read_server_default_result_storage_block_id",
        "_get_default_result_storage",
    ),
)

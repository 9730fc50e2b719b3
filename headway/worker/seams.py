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
    # Overridden: the scheduler ends what was cancelled.
    Seam(_WORKER, "_cancel_run", "BaseWorker._setup_cancellation_observer"),
    # Used: the worker's own tasks run in it, beside those of its runs.
    Seam(_WORKER, "_runs_task_group", "BaseWorker.setup"),
    # Read: how many runs go on here at once.
    Seam(_WORKER, "_limit", "BaseWorker.setup"),
    # Replaced, in flows/: a stored result is a pickle.
    Seam("prefect.results:ResultStore", "_from_metadata"),
    # Replaced, in flows/: the scheduler suspends runs.
    Seam(
        "prefect.flow_engine",
        "observe_flow_run_suspension",
        "BaseFlowRunEngine.setup_flow_run_suspension_request",
    ),
    # Written to, in flows/: what a run's events name is not asked for.
    Seam("prefect.events.related", "RESOURCE_CACHE", "related_resources_from_run_context"),
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

"""What happens, in order: Prefect flows, thin.

No result of a run is kept: what became of it is in the ledger. So none is read
either. A result is a pickle, and where it lies would be for whoever writes to
Prefect's API to say: in a run's state, or as the server's default storage.
"""

from contextlib import nullcontext
from typing import NoReturn

from prefect import flow_engine, results


async def _never_read(*_: object) -> NoReturn:
    raise RuntimeError("headway reads no stored results")


async def _no_block() -> None:
    return None


results.ResultStore._from_metadata = _never_read  # type: ignore[assignment,method-assign]  # noqa: SLF001
results._aread_server_default_result_storage_block_id = _no_block  # noqa: SLF001
results._read_server_default_result_storage_block_id = lambda: None  # noqa: SLF001
# The janitor suspends runs: no flow has to listen for it, over a connection of its own.
vars(flow_engine)["observe_flow_run_suspension"] = lambda *_: nullcontext()

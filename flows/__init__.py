"""What happens, in order: Prefect flows, thin.

No result of a run is kept: what became of it is in the ledger. So none is read
either. A result is a pickle, and where it lies would be for whoever writes to
Prefect's API to say: in a run's state, or as the server's default storage.
"""

import ssl
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import NoReturn

from prefect import flow_engine, results
from prefect.client import orchestration


async def _never_read(*_: object) -> NoReturn:
    raise RuntimeError("headway reads no stored results")


async def _no_block() -> None:
    return None


results.ResultStore._from_metadata = _never_read  # type: ignore[assignment,method-assign]  # noqa: SLF001
results._aread_server_default_result_storage_block_id = _no_block  # noqa: SLF001
results._read_server_default_result_storage_block_id = lambda: None  # noqa: SLF001
# The janitor suspends runs: no flow has to listen for it, over a connection of its own.
vars(flow_engine)["observe_flow_run_suspension"] = lambda *_: nullcontext()

# Each of a flow's clients would read the certificates of all authorities anew, 20 ms each time;
# so they are read once, by the fork server.
_context = cache(ssl.create_default_context)
_context(cafile=vars(orchestration)["certifi"].where())
vars(orchestration)["ssl"] = SimpleNamespace(**{**vars(ssl), "create_default_context": _context})

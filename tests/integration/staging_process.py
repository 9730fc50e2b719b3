"""One process that stages a data set, for tests that kill it or race it.

    python -m tests.integration.staging_process ROOT BUDGET RUN_ID PAUSE_S URI...

Prints "done N" after every piece and "staged RESULT" as JSON at the end of
each URI; waits for a line on stdin; then releases.
"""

import fcntl
import json
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

from headway.model.job_parts import Dataset
from headway.staging.cache import DataCache
from tests.ports.staging import MemoryIndex


class FileIndex:
    """`MemoryIndex`, kept in a file between calls: shared by processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def _loaded(self) -> Iterator[MemoryIndex]:
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            index = MemoryIndex()
            text = file.read()
            index._sets = pickle.loads(text) if text else {}
            yield index
            file.truncate(0)
            file.write(pickle.dumps(index._sets))

    def _call(self, what: str, *given: Any) -> Any:
        with self._loaded() as index:
            return getattr(index, what)(*given)

    record = partialmethod(_call, "record")
    acquire = partialmethod(_call, "acquire")
    release = partialmethod(_call, "release")
    remove = partialmethod(_call, "remove")
    list = partialmethod(_call, "list")


def cache_at(root: Path, budget_bytes: int) -> DataCache:
    root.mkdir(exist_ok=True)
    return DataCache(root / "cache", budget_bytes, FileIndex(root / "index"), node="n")


def main(root: str, budget: str, run_id: str, pause_s: str, *uris: str) -> None:
    cache = cache_at(Path(root), int(budget))

    def progress(done: int, total: int | None) -> None:
        print("done", done, flush=True)
        time.sleep(float(pause_s))

    for uri in uris:
        staged = cache.stage(Dataset(uri=uri), run_id, progress=progress)
        result = {"path": str(staged.path), "from_cache": staged.from_cache}
        print("staged", json.dumps(result), flush=True)
    sys.stdin.readline()
    cache.release(run_id)


if __name__ == "__main__":
    main(*sys.argv[1:])

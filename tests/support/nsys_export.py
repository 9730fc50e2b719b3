"""Exports of Nsight Systems for tests: the schema of a version, and rows put into it."""

import csv
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data/profile"
HTOD, DTOH, DTOD, PTOP = 1, 2, 8, 10
PAGEABLE, PINNED, DEVICE = 0, 1, 2


class Export:
    """An export that grows; nsys has not written CUDA's tables when *version* is empty."""

    def __init__(self, path: Path, version: str = "2022.4") -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self._run((DATA / "nsys-2022.4-without-cuda.sql").read_text())
        if version:
            self._run((DATA / f"cuda-{version}.sql").read_text())

    def kernel(self, name: str, start_ns: int, end_ns: int) -> None:
        """One launch."""
        names = "SELECT id FROM StringIds WHERE value = ?"
        with closing(sqlite3.connect(self.path)) as database, database:
            found = database.execute(names, (name,)).fetchone()
            if found is None:
                database.execute("INSERT INTO StringIds (value) VALUES (?)", (name,))
                found = database.execute(names, (name,)).fetchone()
            shape = dict.fromkeys(_SHAPE, 1)
            ids = {"demangledName": found[0], "shortName": found[0]}
            _insert(database, "CUPTI_ACTIVITY_KIND_KERNEL", _timed(start_ns, end_ns) | shape | ids)

    def copy(self, kind: int, start_ns: int, end_ns: int, size_bytes: int, **more: int) -> None:
        """One copy; *more* are further columns."""
        row = {**_timed(start_ns, end_ns), "bytes": size_bytes, "copyKind": kind, **more}
        with closing(sqlite3.connect(self.path)) as database, database:
            _insert(database, "CUPTI_ACTIVITY_KIND_MEMCPY", row)

    def gpu(self, memory_bytes_per_s: int) -> None:
        """One GPU with the bandwidth of its memory."""
        row = {"vmId": 0, "id": 0, "name": "NVIDIA A100", "memoryBandwidth": memory_bytes_per_s}
        with closing(sqlite3.connect(self.path)) as database, database:
            _insert(database, "TARGET_INFO_GPU", row)

    def sql(self, script: str) -> None:
        """Anything else."""
        self._run(script)

    def a100(self) -> None:
        """The recorded excerpt."""
        for row in csv.DictReader((DATA / "a100-excerpt.csv").read_text().splitlines()):
            start, end = int(row["start_ns"]), int(row["end_ns"])
            if row["bytes"]:
                kind = HTOD if row["what"] == "HtoD" else DTOH
                self.copy(kind, start, end, int(row["bytes"]))
            else:
                self.kernel(row["what"], start, end)

    def _run(self, script: str) -> None:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.executescript(script)


def _timed(start_ns: int, end_ns: int) -> dict[str, int]:
    return {"start": start_ns, "end": end_ns, "deviceId": 0, "contextId": 1, "streamId": 7}


_SHAPE: Iterable[str] = (
    "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
    "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread", "localMemoryTotal",
    "gridId",
)  # fmt: skip


def _insert(database: sqlite3.Connection, table: str, row: Mapping[str, object]) -> None:
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))

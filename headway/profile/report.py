"""Profiles: from the SQLite file that Nsight Systems exports, or from NVML's counters.

The schema is in its user guide, "SQLite Schema Reference": tables are there
only if something was recorded, columns come and go with versions. The file
was made where the program could write, so nothing in it is trusted.
"""

import math
import sqlite3
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from headway.clock import Clock
from headway.errors import ProfileUnreadable
from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.profile import Copies, Direction, GpuKernel, Profile, ProfileSource
from headway.model.telemetry import TelemetryPoint


def limit_of(
    direction: Direction, links: Sequence[GpuLinks], *, memory_bytes_per_s: float | None = None
) -> tuple[str, float | None]:
    """Name and rate, in bytes/s, of what bounds copies of *direction*; the slowest GPU's.

    Host copies go over PCIe, copies to a peer over NVLink where there is
    one. A copy within a GPU reads and writes each byte, so it is bound by
    half of what its memory moves.
    """
    if direction is Direction.DEVICE_TO_DEVICE:
        return ("memory", memory_bytes_per_s / 2) if memory_bytes_per_s else ("", None)
    slowest: tuple[str, float | None] = "", None
    for each in links:
        link: Pcie | NvLink | None = each.pcie_at_most or each.pcie
        if direction is Direction.PEER_TO_PEER and each.nvlink is not None:
            link = each.nvlink
        rate = link.bytes_per_s if link is not None else None
        if rate is not None and (slowest[1] is None or rate < slowest[1]):
            slowest = str(link), rate
    return slowest


def link_notes(links: Sequence[GpuLinks]) -> Iterator[str]:
    """A sentence for each GPU whose PCIe link is below what it is able to do."""
    for each in links:
        now, best = each.pcie, each.pcie_at_most
        if now is None or best is None or now == best:
            continue
        reason = (
            "an idle GPU lowers its generation"
            if now.lanes == best.lanes
            else "it has fewer lanes than GPU and slot offer: look at riser and slot"
        )
        yield f"{each.uuid} was at {_with_rate(now)} of {_with_rate(best)}: {reason}"


def _with_rate(link: Pcie) -> str:
    rate = link.bytes_per_s
    return str(link) if rate is None else f"{link} ({rate / 1e9:.1f} GB/s)"


_RATES: tuple[tuple[Direction, str, Callable[[TelemetryPoint], float | None]], ...] = (
    # What a GPU receives over PCIe comes from the host, what it sends goes there.
    (Direction.HOST_TO_DEVICE, "pcie", lambda point: point.pcie_rx_bytes_per_s),
    (Direction.DEVICE_TO_HOST, "pcie", lambda point: point.pcie_tx_bytes_per_s),
    (Direction.PEER_TO_PEER, "nvlink", lambda point: point.nvlink_rx_bytes_per_s),
)


def from_counters(
    series: Mapping[str, Sequence[TelemetryPoint]], links: Sequence[GpuLinks], why: str
) -> Profile:
    """A profile from the telemetry of the run's GPUs.

    Args:
        series: GPU's uuid → its points over the window.
        links: How these GPUs are connected; those that are missing have no limit.
        why: Why nsys has no part in it, as a sentence.
    """
    by_uuid = {each.uuid: each for each in links}
    copies, window_s = [], 0.0
    for gpu, points in series.items():
        window_s = max(window_s, sum(point.period_s for point in points))
        own = [by_uuid[gpu]] if gpu in by_uuid else []
        for direction, over, rate_of in _RATES:
            seen = [(rate, p.period_s) for p in points if (rate := rate_of(p)) is not None]
            if not seen or (over == "nvlink" and not any(rate for rate, _ in seen)):
                continue  # not told; no NVLink, or nobody used it
            copies.append(
                Copies(
                    direction,
                    int(sum(rate * period_s for rate, period_s in seen)),
                    float(sum(period_s for _, period_s in seen)),
                    *limit_of(direction, own),
                    gpu=gpu,
                    peak_bytes_per_s=max(rate for rate, _ in seen),
                )
            )
    notes = [why, "NVML samples all traffic of a GPU, also of other runs that share it"]
    if not copies:
        nothing = "no PCIe or NVLink traffic of its GPUs was read in this time"
        notes[1:] = [nothing if series else "the run held no GPU, whose copies could be counted"]
    return Profile(
        ProfileSource.NVML, window_s, copies=tuple(copies), notes=(*notes, *link_notes(links))
    )


MAX_BYTES = 8 << 30
MAX_S = 30.0
"""For all questions to one report."""
_KERNELS = 10
_NAME_CHARACTERS = 200
_STEPS_BETWEEN_CHECKS = 100_000
"""Of SQLite's virtual machine: some milliseconds."""
_MOST_NS = 10**18
"""Thirty years; a number beyond is damage."""

_OWN = "CUPTI_ACTIVITY_KIND_"
_DIRECTIONS = {
    # CUDA_MEMCPY_KIND of the user guide: plain, array and unified memory go the same way.
    1: Direction.HOST_TO_DEVICE,
    3: Direction.HOST_TO_DEVICE,
    11: Direction.HOST_TO_DEVICE,
    2: Direction.DEVICE_TO_HOST,
    4: Direction.DEVICE_TO_HOST,
    12: Direction.DEVICE_TO_HOST,
    **dict.fromkeys((5, 6, 7, 8, 13), Direction.DEVICE_TO_DEVICE),
    10: Direction.PEER_TO_PEER,
}
_HOST_SIDE = {Direction.HOST_TO_DEVICE: "srcKind", Direction.DEVICE_TO_HOST: "dstKind"}
_PAGEABLE = 0
"""CUDA_MEMOPR_MEMORY_KIND_PAGEABLE."""


def read_report(path: Path, links: Sequence[GpuLinks], clock: Clock) -> Profile:
    """Summarise the export at *path*, its copies against *links* of the run's GPUs.

    Raises:
        ProfileUnreadable: No regular file, too large, no export of nsys,
            damaged, or too slow to read.
    """
    try:
        found = path.lstat()
    except OSError as error:
        raise ProfileUnreadable(str(path), error.strerror or str(error)) from error
    if not stat.S_ISREG(found.st_mode):
        raise ProfileUnreadable(str(path), "it is no regular file")
    if found.st_size > MAX_BYTES:
        raise ProfileUnreadable(str(path), f"it has {found.st_size} bytes, read are {MAX_BYTES}")
    try:
        # Immutable: no journal that lies beside it is played back.
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            return _Report(database, clock).profile(links)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        raise ProfileUnreadable(str(path), str(error)) from error


class _Report:
    """One open export."""

    def __init__(self, database: sqlite3.Connection, clock: Clock) -> None:
        self._database = database
        give_up_s = clock.monotonic_s() + MAX_S
        database.set_progress_handler(
            lambda: clock.monotonic_s() > give_up_s, _STEPS_BETWEEN_CHECKS
        )
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 64 << 20)
        database.execute("PRAGMA trusted_schema = OFF")
        # Tables, not views: a view could ask for anything.
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 1000")
        self._tables = {str(name) for (name,) in rows}
        if "StringIds" not in self._tables and not any(
            t.startswith("TARGET_") for t in self._tables
        ):
            raise sqlite3.DatabaseError("it is no export of Nsight Systems")

    def profile(self, links: Sequence[GpuLinks]) -> Profile:
        kernels, kernels_s = self._kernels()
        copies = self._copies(links)
        notes = list(link_notes(links))
        if not kernels and not copies:
            notes.append("nsys recorded no kernel and no copy: the program used no CUDA")
        return Profile(
            ProfileSource.NSYS,
            self._window_s(),
            copies=copies,
            kernels=kernels,
            kernels_s=kernels_s,
            notes=tuple(notes),
        )

    def _columns(self, table: str) -> set[str]:
        if table not in self._tables:
            return set()
        rows = self._database.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return {str(name) for (name,) in rows}

    def _window_s(self) -> float:
        """From the first kernel or copy to the last."""
        spans = []
        for table in (f"{_OWN}KERNEL", f"{_OWN}MEMCPY", f"{_OWN}GRAPH_TRACE"):
            if {"start", "end"} <= self._columns(table):
                query = f"SELECT MIN(start), MAX(end) FROM {table} WHERE {_SANE}"  # noqa: S608 - names of ours
                first, last = self._database.execute(query).fetchone()
                if first is not None:
                    spans.append((first, last))
        if not spans:
            return 0.0
        return float(max(last for _, last in spans) - min(first for first, _ in spans)) / 1e9

    def _kernels(self) -> tuple[tuple[GpuKernel, ...], float]:
        found: list[GpuKernel] = []
        total_s = 0.0
        columns = self._columns(f"{_OWN}KERNEL")
        name = next((each for each in ("shortName", "demangledName") if each in columns), None)
        if name is not None and "StringIds" in self._tables:
            query = (
                f"SELECT substr(s.value, 1, {_NAME_CHARACTERS}), k.launches, k.took FROM ("  # noqa: S608 - names of ours
                f"SELECT {name} AS name, COUNT(*) AS launches, TOTAL(end - start) AS took "
                f"FROM {_OWN}KERNEL WHERE {_SANE} GROUP BY 1) AS k "
                "LEFT JOIN StringIds AS s ON s.id = k.name ORDER BY k.took DESC"
            )
            for text, launches, took_ns in self._database.execute(query):
                total_s += took_ns / 1e9
                if len(found) < _KERNELS:
                    found.append(GpuKernel(_plain(text), int(launches), took_ns / 1e9))
        if {"start", "end"} <= self._columns(f"{_OWN}GRAPH_TRACE"):
            query = f"SELECT COUNT(*), TOTAL(end - start) FROM {_OWN}GRAPH_TRACE WHERE {_SANE}"  # noqa: S608 - names of ours
            launches, took_ns = self._database.execute(query).fetchone()
            if launches:
                total_s += took_ns / 1e9
                found.append(GpuKernel("(CUDA graphs)", int(launches), took_ns / 1e9))
        return tuple(sorted(found, key=lambda each: -each.total_s)[:_KERNELS]), total_s

    def _copies(self, links: Sequence[GpuLinks]) -> tuple[Copies, ...]:
        table = f"{_OWN}MEMCPY"
        columns = self._columns(table)
        if not {"start", "end", "bytes", "copyKind"} <= columns:
            return ()
        optional = {"srcKind", "dstKind", "srcDeviceId", "dstDeviceId"}
        have = {each: each if each in columns else "NULL" for each in optional}
        query = (
            f"SELECT copyKind, {have['srcKind']}, {have['dstKind']}, "  # noqa: S608 - names of ours
            f"COALESCE({have['srcDeviceId']} <> {have['dstDeviceId']}, 0), "
            f"COUNT(*), TOTAL(bytes), TOTAL(end - start) FROM {table} "
            f"WHERE {_SANE} AND bytes BETWEEN 0 AND {1 << 50} GROUP BY 1, 2, 3, 4 LIMIT 10000"
        )
        sums: defaultdict[Direction, Counter[str]] = defaultdict(Counter)
        rows = self._database.execute(query)
        for kind, source, target, apart, count, size_bytes, took_ns in rows:
            direction = _DIRECTIONS.get(kind)
            if direction is None:
                continue  # host to host, or of a later version
            if direction is Direction.DEVICE_TO_DEVICE and apart:
                direction = Direction.PEER_TO_PEER
            host_side = {"srcKind": source, "dstKind": target}.get(_HOST_SIDE.get(direction, ""))
            pageable: Any = size_bytes if host_side == _PAGEABLE else 0
            sums[direction].update(count=count, size=size_bytes, ns=took_ns, pageable=pageable)
        memory = self._memory_bytes_per_s()
        return tuple(
            Copies(
                direction,
                int(seen["size"]),
                seen["ns"] / 1e9,
                *limit_of(direction, links, memory_bytes_per_s=memory),
                count=int(seen["count"]),
                pageable_bytes=int(seen["pageable"]) if direction in _HOST_SIDE else None,
            )
            for direction in Direction
            if (seen := sums.get(direction))
        )

    def _memory_bytes_per_s(self) -> float | None:
        if "memoryBandwidth" not in self._columns("TARGET_INFO_GPU"):
            return None
        query = "SELECT MIN(memoryBandwidth) FROM TARGET_INFO_GPU WHERE memoryBandwidth > 0"
        (least,) = self._database.execute(query).fetchone()
        sane = isinstance(least, int | float) and math.isfinite(least)
        return float(least) if sane else None


_SANE = (
    "typeof(start) = 'integer' AND typeof(end) = 'integer' "
    f"AND start BETWEEN 0 AND {_MOST_NS} AND end BETWEEN start AND {_MOST_NS}"
)
"""Where it is not, CUPTI could not time the activity (it writes 0), or the file is damaged."""


def _plain(text: object) -> str:
    """A kernel's name without what a terminal or a page would obey."""
    if not isinstance(text, str):
        return "(unnamed)"
    return "".join(c if c.isprintable() else "�" for c in text)

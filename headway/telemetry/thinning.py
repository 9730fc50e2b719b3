"""What is kept of telemetry: readings as points, and many points thinned to one."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from headway.model.node import NodeReading
from headway.model.profile import GpuRates
from headway.model.telemetry import TelemetryPoint

_OF_A_GPU = tuple(each.name for each in fields(GpuRates))
"""What a reading of a GPU and a point both call so."""
_MEANS = ("busy_frac", *_OF_A_GPU)


def points_of(reading: NodeReading, run_of_pid: Mapping[int, str]) -> list[TelemetryPoint]:
    """One point for the host and one for each GPU that could be read.

    Args:
        reading: The node at one moment.
        run_of_pid: Which run each process belongs to; others' memory is left out.
    """
    host = reading.host
    points = [
        TelemetryPoint(
            at=reading.at,
            used_bytes=host.used_bytes,
            busy_frac=host.cpu_frac,
            disk_free_bytes=host.disk_free_bytes,
        )
    ]
    for gpu in reading.gpus or ():
        held: dict[str, int] = {}
        for process in gpu.processes:
            run_id = run_of_pid.get(process.pid)
            if run_id is not None and process.memory_bytes is not None:
                held[run_id] = held.get(run_id, 0) + process.memory_bytes
        points.append(
            TelemetryPoint(
                at=reading.at,
                gpu=gpu.uuid,
                used_bytes=gpu.used_bytes,
                busy_frac=gpu.utilisation_frac,
                run_bytes=held,
                **{name: getattr(gpu, name) for name in _OF_A_GPU},
            )
        )
    return points


def thinned(points: Sequence[TelemetryPoint], period_s: int) -> list[TelemetryPoint]:
    """One point of *period_s* for the host and for each GPU among *points*.

    Rates and shares become their mean; memory becomes its highest and free
    disk its least, since those are what a limit is compared with.
    """
    by_gpu: dict[str, list[TelemetryPoint]] = {}
    for point in points:
        by_gpu.setdefault(point.gpu, []).append(point)
    return [_merged(gpu, group, period_s) for gpu, group in by_gpu.items()]


def _merged(gpu: str, group: Sequence[TelemetryPoint], period_s: int) -> TelemetryPoint:
    held: dict[str, int] = {}
    for point in group:
        for run_id, bytes_ in point.run_bytes.items():
            held[run_id] = max(held.get(run_id, 0), bytes_)
    used = [p.used_bytes for p in group if p.used_bytes is not None]
    free = [p.disk_free_bytes for p in group if p.disk_free_bytes is not None]
    return TelemetryPoint(
        at=max(point.at for point in group),
        gpu=gpu,
        period_s=period_s,
        used_bytes=max(used, default=None),
        disk_free_bytes=min(free, default=None),
        run_bytes=held,
        **{name: _mean([getattr(point, name) for point in group]) for name in _MEANS},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

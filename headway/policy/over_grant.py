"""Who holds so much of a shared GPU that others cannot have what they were granted there."""

from collections.abc import Mapping

from headway.model.node import Gpu, GpuReading
from headway.model.run_warning import Silent, SilentFailure
from headway.policy.headroom import gpu_bytes_of_runs
from headway.units import format_size

LASTS_S = 10.0
"""How long it has to be so: a process that has just begun is not known to be a run's at once."""


_SOME = 0.05
"""Of a grant what a run may have above it, while so much of the GPU is free."""


def most_bytes(gpu: Gpu, granted_bytes: int) -> int:
    """What a run may have of *gpu* however full that is: its grant, and its part of the reserve.

    All that is granted there together, so much more, is what the GPU has.
    """
    usable_bytes = max(gpu.memory_bytes - gpu.reserve_bytes, 1)
    return granted_bytes * max(gpu.memory_bytes, 1) // usable_bytes


def over_grants(gpu: Gpu, seen: GpuReading, granted: Mapping[str, int]) -> dict[str, SilentFailure]:
    """The runs that are to give *gpu* back, with what is to be said of them.

    What is free and what the others have still to get of their grants is compared. While they can
    have it nobody is over: the memory that is nobody's may be used. Else as many go as it takes,
    whoever is furthest above its grant first. A run may be above by its part of the reserve, as
    runs that keep to that cannot bring it about; and by a twentieth while a twentieth of the GPU
    is free, since a prediction may err by that, and others may never want all that they were
    granted.

    Args:
        gpu: With its reserve.
        seen: What it shows now.
        granted: Of each run that shares it, bytes.

    Returns:
        Nothing where a driver does not say what each process holds.
    """
    if any(each.memory_bytes is None for each in seen.processes):
        return {}
    by_run = gpu_bytes_of_runs(seen)
    held = {run_id: by_run.get(run_id, 0) for run_id in granted}
    # Processes that are nobody's yet may be those of who has still to get something.
    unnamed = sum(each.memory_bytes or 0 for each in seen.processes if not each.run_id)
    owed = sum(max(bytes_ - held[run_id], 0) for run_id, bytes_ in granted.items()) - unnamed
    free = seen.memory_bytes - seen.used_bytes
    missing = owed - free
    slack = 1 + _SOME if free >= _SOME * seen.memory_bytes else 1
    over = [
        run_id
        for run_id, bytes_ in granted.items()
        if held[run_id] > max(most_bytes(gpu, bytes_), bytes_ * slack)
    ]
    found = {}
    for run_id in sorted(over, key=lambda each: (granted[each] - held[each], each)):
        if missing <= 0:
            break
        text = (
            f"holds {format_size(held[run_id])} of {gpu.uuid}, was granted "
            f"{format_size(granted[run_id])}, and others lack {format_size(missing)} of what "
            "they were granted there"
        )
        found[run_id] = SilentFailure(
            Silent.OVER_GRANT, run_id, gpu.uuid, held[run_id], granted[run_id], text
        )
        missing -= held[run_id]
    return found

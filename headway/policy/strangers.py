"""Programs that are no run of this site, on its GPUs: whose they are."""

from collections.abc import Mapping

from headway.model.node import GpuProcess, GpuReading, NodeReading


def strangers(gpu: GpuReading) -> list[GpuProcess]:
    """The processes on *gpu* that are no run's, who holds most first."""
    found = [each for each in gpu.processes if not each.run_id]
    return sorted(found, key=lambda each: (-(each.memory_bytes or 0), each.pid))


def told_strangers(reading: NodeReading | None) -> Mapping[str, str]:
    """By uuid of each GPU that has some, whose they are, in words.

    In the order of their pids: which holds most changes from look to look.
    """
    gpus = (reading.gpus or ()) if reading is not None else ()
    found = {gpu.uuid: sorted(strangers(gpu), key=lambda each: each.pid) for gpu in gpus}
    return {uuid: f"in use by {whose(those)}" for uuid, those in found.items() if those}


def whose(found: list[GpuProcess]) -> str:
    """*found* in words: the first, and how many more there are."""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{_told(found[0])}{more}"


def _told(process: GpuProcess) -> str:
    """Without what changes from look to look, such as its memory."""
    if not process.user:
        return f"pid {process.pid}, of which nothing can be read here"
    since = f", since {process.since:%Y-%m-%d %H:%M} UTC" if process.since else ""
    return f"{process.user}'s {process.command} (pid {process.pid}{since})"

"""What the GPUs of an attempt showed when it ran out of their memory."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headway.model.lease import Lease
from headway.model.node import GpuReading
from headway.model.run import Exit
from headway.policy.oom_cause import GpuShare, Holder, Shortage, cause_of
from headway.run.followed import Followed, GpuUse
from headway.runtime.oom_log import tried_bytes
from headway.site import Site
from headway.this_node import read_node


def shortage_of(site: Site, lease: Lease, followed: Followed) -> Shortage:
    """Why the attempt that held *lease* ran out of GPU memory.

    Looked at are the GPUs as they were when it was last seen to run, and as
    they are now that it is gone: others may come or go between the two.
    """
    now = {gpu.uuid: gpu for gpu in read_node(site).gpus or ()}
    use = followed.gpu_use or GpuUse()
    before = {gpu.uuid: gpu for gpu in use.newest}
    run_of = {each.pid: each.run_id for gpu in now.values() for each in gpu.processes}
    granted = {
        (each.run_id, grant.uuid): grant.memory_bytes
        for each in site.ledger.leases.live(lease.node)
        for grant in each.gpus
    }
    shares = []
    for grant in lease.gpus:
        views = [
            list(_others(each, lease.run_id, run_of, granted, gone=seen is now))
            for seen in (before, now)
            if (each := seen.get(grant.uuid)) is not None
        ]
        gpu = now.get(grant.uuid) or before.get(grant.uuid)
        shares.append(
            GpuShare(
                uuid=grant.uuid,
                memory_bytes=gpu.memory_bytes - gpu.driver_bytes if gpu is not None else 0,
                granted_bytes=grant.memory_bytes,
                held_bytes=use.peaks.get(grant.uuid),
                others=tuple(
                    max(views, key=lambda view: sum(each.bytes_ for each in view), default=())
                ),
            )
        )
    return cause_of(shares, tried_bytes(followed.log_tail))


def with_shortage(exit_: Exit, found: Shortage) -> Exit:
    """*exit_* with the words for what was found."""
    return replace(exit_, message=f"{exit_.message}; {found.words}") if found.words else exit_


def _others(
    gpu: GpuReading,
    own: str,
    run_of: Mapping[int, str],
    granted: Mapping[tuple[str, str], int],
    *,
    gone: bool,
) -> Iterator[Holder]:
    """Who other than run *own* holds memory of *gpu*; once it is *gone*, all that is in use."""
    held: dict[str, int] = {}
    named_bytes = 0
    for each in gpu.processes:
        run_id = each.run_id or run_of.get(each.pid, "")
        named_bytes += each.memory_bytes or 0
        if not run_id and each.memory_bytes:
            yield Holder(each.memory_bytes, pid=each.pid)
        elif run_id != own:
            held[run_id] = held.get(run_id, 0) + (each.memory_bytes or 0)
    for run_id, bytes_ in held.items():
        yield Holder(bytes_, run_id, granted.get((run_id, gpu.uuid), 0))
    unnamed_bytes = gpu.program_bytes - named_bytes
    if gone and unnamed_bytes > 0:
        yield Holder(unnamed_bytes)

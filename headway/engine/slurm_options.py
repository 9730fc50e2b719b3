"""A request as options of `sbatch`. Pure functions of values."""

import math
from collections.abc import Mapping

from headway.engine.port import After, Array, Gang, GpuAsk, Nice, Request, Requeue
from headway.model.run import When
from headway.units import MIB, MINUTE_S

DEPENDENCY: Mapping[When, str] = {
    When.OK: "afterok",
    When.FAILED: "afternotok",
    When.ANY: "afterany",
}


def options(request: Request, comment: str, ids: Mapping[str, str]) -> list[str]:
    """What `sbatch` is told beside the script.

    Args:
        request: What is asked for.
        comment: By which the job is found again.
        ids: Slurm's ids of the jobs that it follows, by key; those that have ended so are left out.
    """
    gang = request.part(Gang) or Gang(1)
    found = [
        "--parsable",
        f"--comment={comment}",
        f"--job-name={request.name}",
        f"--partition={request.pool}",
        f"--nodes={gang.nodes}",
        f"--ntasks-per-node={1 if not gang.starts_others else _slots(request.gpus)}",
        f"--cpus-per-task={_cpus_a_task(request, gang)}",
        f"--mem={math.ceil(request.host_memory_bytes / MIB)}M",
        f"--signal=B:TERM@{math.ceil(request.grace_s)}",
        # Of an environment made for it (`slurm`): for NONE, and for names of variables, the node
        # makes a login of the user first, which takes a second or two.
        "--export=ALL",
        "--open-mode=append",
        "--requeue" if request.part(Requeue) else "--no-requeue",
    ]
    if request.gpus is not None and request.gpus.count:
        found.append(f"--gres={gres(request.gpus)}")
    if request.time_limit_s is not None:
        found.append(f"--time={minutes(request.time_limit_s, request.grace_s)}")
    if array := request.part(Array):
        found.append(f"--array=1-{array.members}" + (f"%{array.at_most}" if array.at_most else ""))
    if nice := request.part(Nice):
        found.append(f"--nice={nice.value}")
    follows = [part for part in request.parts if isinstance(part, After) and part.key in ids]
    if follows:
        after = ",".join(f"{DEPENDENCY[part.when]}:{ids[part.key]}" for part in follows)
        found += [f"--dependency={after}", "--kill-on-invalid-dep=yes"]
    found += [f"--account={request.account}"] if request.account else []
    return found + ([f"--qos={request.qos}"] if request.qos else [])


def gres(gpus: GpuAsk) -> str:
    """GPUs as Slurm writes them; of a GPU that is divided, so many shards."""
    if gpus.shards:
        return f"shard:{gpus.shards}"
    return ":".join(["gpu", *([gpus.type] if gpus.type else []), str(gpus.count)])


def minutes(limit_s: float, grace_s: float) -> int:
    """The time limit in Slurm's minutes, its signal's grace and inaccuracy added.

    The signal comes up to a minute early: without that minute it would cut a job short which ends
    just in time.
    """
    return math.ceil((limit_s + grace_s) / MINUTE_S) + 1


def _slots(gpus: GpuAsk | None) -> int:
    """How many processes `mpirun` starts on a node: one for each GPU."""
    return max(gpus.count if gpus else 1, 1)


def _cpus_a_task(request: Request, gang: Gang) -> int:
    tasks = _slots(request.gpus) if gang.starts_others else 1
    return max(1, math.ceil(request.cpus / tasks))

"""What is noted of a program before it starts: for its shim, and for whoever reads it later."""

import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headway.project import PACKAGE, PROJECT
from headway.runtime.errors import PolicyViolation, RuntimeFailure
from headway.runtime.port import ContainerSpec
from headway.runtime.process import passage
from headway.runtime.surroundings import OWN_TMP, surroundings

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOKEN = "HEADWAY_CONTAINER"  # noqa: S105 - names a process's container, opens nothing


def noted(
    spec: ContainerSpec,
    user: tuple[int, int] | None,
    token: str,
    others: Iterable[Mapping[str, Any]],
    own: Mapping[Path, Path],
    *,
    home: Path,
    weighs: bool,
) -> dict[str, Any]:
    """All but the environment, which may hold secrets and is kept apart.

    Args:
        spec: What is asked for.
        user: uid and gid to become; None to stay.
        token: Tells the program's processes from all others.
        others: The notes of the programs that have not ended.
        own: Places where everybody may write → the program's own folder to have there.
        home: The site's.
        weighs: Whether its CPUs are a weight; else it is kept to so many.
    """
    return {
        "run_id": spec.run_id,
        "attempt": spec.attempt,
        "command": [*spec.wrapper, *spec.command],
        "log_path": str(spec.log_path.resolve()),
        "log_limit_bytes": spec.log_limit_bytes,
        "host_memory_bytes": spec.host_memory_bytes,
        "pids": spec.pids,
        "working_dir": spec.working_dir or str(spec.log_path.resolve().parent),
        "user": user,
        "passage": (
            None if user is None else passage.plan(user, _needs(spec), own, spec.shm_bytes, home)
        ),
        "affinity": _near(spec) if weighs else _choose_cpus(spec, others),
        "weight_cpus": spec.cpus if weighs else None,
        "token": token,
    }


def _near(spec: ContainerSpec) -> list[int]:
    """The CPUs near its GPUs, of those that there are; none where it is not to be bound."""
    return sorted(spec.near_cpus & os.sched_getaffinity(0))


def _choose_cpus(spec: ContainerSpec, others: Iterable[Mapping[str, Any]]) -> list[int]:
    """The CPUs that the fewest other programs were given, of these those near its GPUs first."""
    taken = dict.fromkeys(os.sched_getaffinity(0), 0)
    for cpu in (cpu for other in others for cpu in other["affinity"]):
        if cpu in taken:
            taken[cpu] += 1
    free_first = sorted(taken, key=lambda cpu: (taken[cpu], cpu not in spec.near_cpus, cpu))
    return sorted(free_first[: math.ceil(spec.cpus)])


def user_of(spec: ContainerSpec) -> tuple[int, int] | None:
    """The user to become; None to stay. Never root: nothing would hold the program back."""
    if os.geteuid() == 0 and spec.user.partition(":")[0].lstrip("0") == "":
        raise PolicyViolation(
            "user",
            spec.user or "root",
            "without a container engine programs do not run as root; set "
            "HEADWAY_CONTAINER_USER to the uid:gid of another user",
        )
    if not spec.user:
        return None
    uid, gid = (int(part) for part in spec.user.split(":"))
    if (uid, gid) == (os.geteuid(), os.getegid()):
        return None
    if os.geteuid() != 0:
        raise RuntimeFailure(
            f"container {spec.name} should run as {spec.user}, but headway is not root and can "
            f"only start programs as {os.geteuid()}:{os.getegid()}; leave the user out"
        )
    return uid, gid


def _needs(spec: ContainerSpec) -> list[tuple[Path, bool]]:
    """What a program must be able to reach, and whether it writes there."""
    own = (sys.prefix, sys.base_prefix, PACKAGE, PROJECT / "samples")
    return [
        *((Path(path), False) for path in own),
        *((mount.source, not mount.read_only) for mount in spec.mounts),
        (spec.log_path.resolve().parent, True),
    ]


def environment(spec: ContainerSpec, token: str, own: Mapping[Path, Path]) -> dict[str, str]:
    """Built from nothing: what headway itself was given stays with headway.

    Its home is its own /tmp where it has one among *own*, so that no cache outlasts it.
    """
    has_tmp = Path(OWN_TMP) in own
    variables = {
        **surroundings(OWN_TMP if has_tmp else str(spec.log_path.resolve().parent), {}),
        "PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}",
        "PYTHONPATH": str(PROJECT),  # the samples
        "OMP_NUM_THREADS": str(max(1, int(spec.cpus))),
        "CUDA_VISIBLE_DEVICES": ",".join(spec.gpu_uuids),
    }
    return variables | dict(spec.env) | {_TOKEN: token}

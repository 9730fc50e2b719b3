"""What Slurm says of a cluster, as pools, nodes and GPUs. Pure functions of its words."""

import re
from functools import lru_cache

from headway.engine.port import Cluster
from headway.model.engine import EngineNode, EnginePool, GpuKind
from headway.units import DAY_S, HOUR_S, MIB, MINUTE_S

_GRES = re.compile(r"(?P<name>gpu|shard)(?::(?P<type>[A-Za-z][^:(),]*))?:(?P<count>\d+)")
_NO_ACCOUNTING = (
    "it keeps no accounts (AccountingStorageType is none): how a job ended that is killed with its "
    "wrapper is known only while Slurm remembers it, {minutes:.0f} min"
)
_SHORT_MEMORY = (
    "it forgets ended jobs after {age:.0f} s (MinJobAge): one that is killed with its wrapper, "
    "while headway does not ask for so long, has ended nobody knows how; give 300"
)
_LEAST_AGE_S = 60.0


@lru_cache(1000)
def seconds(text: str) -> float | None:
    """A duration as Slurm writes it, ``[DAYS-][[HOURS:]MINUTES:]SECONDS``; None: no limit."""
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in (*parts, days or "0")):
        return None
    units = (1.0, MINUTE_S, HOUR_S)
    found = sum(int(part) * unit for part, unit in zip(reversed(parts), units, strict=False))
    return found + int(days or 0) * DAY_S


def gpus(text: str) -> tuple[GpuKind, ...]:
    """The GPUs of a node, by its GRES, such as ``gpu:a100:4(S:0-1),shard:a100:16``."""
    found: dict[str, list[int]] = {}
    for each in _GRES.finditer(text):
        counts = found.setdefault(each["type"] or "", [0, 0])
        counts[each["name"] == "shard"] += int(each["count"])
    return tuple(GpuKind(kind, count, shards) for kind, (count, shards) in sorted(found.items()))


def cluster(nodes: str, partitions: str, config: str) -> Cluster:
    """All of it.

    Args:
        nodes: Lines of ``sinfo -N -o "%N|%R|%G|%c|%m|%T"``.
        partitions: ``scontrol show partition --oneliner``.
        config: ``scontrol show config``.
    """
    machines: dict[str, list[EngineNode]] = {}
    for line in nodes.splitlines():
        name, pool, gres, cpus, mebibytes, state = line.strip().split("|")
        node = EngineNode(name, _whole(cpus), _whole(mebibytes) * MIB, gpus(gres), state)
        machines.setdefault(pool, []).append(node)
    pools = []
    for line in partitions.splitlines():
        said = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if partition := said.get("PartitionName"):
            longest = said.get("MaxNodes", "")
            pools.append(
                EnginePool(
                    partition,
                    tuple(machines.get(partition, [])),
                    is_default=said.get("Default") == "YES",
                    is_up=said.get("State") == "UP",
                    max_time_s=seconds(said.get("MaxTime", "")),
                    default_time_s=seconds(said.get("DefaultTime", "")),
                    max_nodes=int(longest) if longest.isdigit() else None,
                )
            )
    told = (line.partition("=") for line in config.splitlines())
    known = {option.strip(): value.strip() for option, _, value in told}
    age_s = float(_whole(known.get("MinJobAge", "")))
    lacks = []
    if known.get("AccountingStorageType", "").endswith("none"):
        lacks.append(_NO_ACCOUNTING.format(minutes=age_s / MINUTE_S))
    if age_s < _LEAST_AGE_S:
        lacks.append(_SHORT_MEMORY.format(age=age_s))
    # One more than the largest number that a member may have.
    largest = max(_whole(known.get("MaxArraySize", "")) - 1, 0)
    return Cluster(known.get("SLURM_VERSION", ""), tuple(pools), largest, age_s, tuple(lacks))


def _whole(text: str) -> int:
    """The number that a text such as ``64+`` or ``300 sec`` begins with."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0

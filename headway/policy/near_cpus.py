"""To which CPUs a run keeps that has GPUs: those on whose NUMA node these are."""

from collections.abc import Iterable, Mapping

from headway.model.lease import Lease

ANY = frozenset[int]()


def near_cpus(
    lease: Lease,
    leases: Iterable[Lease],
    near: Mapping[str, frozenset[int]],
    usable: frozenset[int],
) -> frozenset[int]:
    """CPUs that the run of *lease* keeps to; empty where it may have any.

    It may where the CPUs near one of its GPUs are not known, where they are all that there are,
    and where runs that were granted earlier keep to so many of them that it would get fewer than
    it was granted.

    Args:
        lease: What it may use.
        leases: All of the node, its own too.
        near: By uuid of a GPU, logical CPUs.
        usable: All logical CPUs that runs of this node may have.
    """
    kept: list[tuple[frozenset[int], float]] = []
    for each in sorted(leases, key=lambda one: one.lease_id):
        wanted = _nearest(each, near) & usable
        taken = sum(cpus for those, cpus in kept if those & wanted)
        keeps = wanted != usable and 0 < each.cpus <= len(wanted) - taken
        if each.lease_id == lease.lease_id:
            return wanted if keeps else ANY
        if keeps:
            kept.append((wanted, each.cpus))
    return ANY


def _nearest(lease: Lease, near: Mapping[str, frozenset[int]]) -> frozenset[int]:
    known = [near.get(grant.uuid) for grant in lease.gpus]
    return ANY if None in known else ANY.union(*filter(None, known))

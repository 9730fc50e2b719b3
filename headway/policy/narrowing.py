"""Bounds narrow what blocks allow: the ceiling of a node those of the site, the site a team's."""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import TypeVar

from headway.errors import InvalidInput
from headway.model.ceiling import Ceiling
from headway.model.container_policy import ContainerPolicy, NetworkMode
from headway.model.image import pattern_within
from headway.model.number_range import NumberRange

_WIDTH = {NetworkMode.NONE: 0, NetworkMode.BRIDGE: 1, NetworkMode.UNGUARDED: 2, NetworkMode.HOST: 3}
_Bound = TypeVar("_Bound")


def narrowed(policy: ContainerPolicy, ceiling: Ceiling) -> ContainerPolicy:
    """*policy*, with what *ceiling* allows where it names nothing itself.

    Raises:
        InvalidInput: It allows more than the ceiling; both are named.
    """
    images = _within(policy.images, ceiling.images, pattern_within, "images", ceiling)
    roots = _within(policy.mount_roots, ceiling.mount_roots, _below, "mount_roots", ceiling)
    # Without a host none is allowed: nothing is to be taken from the ceiling.
    _within(policy.data_hosts, ceiling.data_hosts, _host_within, "data_hosts", ceiling)
    if ceiling.networks is not None:
        for field in ("network", "gang_network"):
            name = str(getattr(policy, field))
            if name and name not in ceiling.networks:
                raise _above(field, name, ceiling.networks, ceiling)
    pool = () if policy.uids is None else (policy.uids,)
    uids = _within(pool, ceiling.uids, _range_within, "uids", ceiling)
    for team, rules in policy.teams.items():
        own = () if rules.uids is None else (rules.uids,)
        _within(own, ceiling.uids, _range_within, f"teams.{team}.uids", ceiling)
    first = uids[0] if uids else None
    return policy.model_copy(update={"images": images, "mount_roots": roots, "uids": first})


def for_team(policy: ContainerPolicy, team: str) -> ContainerPolicy:
    """What holds for *team*: the site's *policy*, narrowed by the team's own rules.

    Raises:
        InvalidInput: The team's rules allow more than the site's; both are named.
    """
    rules = policy.teams.get(team)
    if rules is None:
        return policy
    own = rules.model_dump(exclude_none=True, exclude={"uids", "ports"})
    own["data_stores"] = {**policy.data_stores, **rules.data_stores}
    try:
        found = narrowed(policy.model_copy(update=own), Ceiling.of_site(policy))
        _refuse_wider(found, policy)
    except InvalidInput as error:
        raise InvalidInput(f"teams.{team}.{error.field}", error.value, error.allowed) from None
    return found


def check(policy: ContainerPolicy, ceiling: Ceiling | None) -> ContainerPolicy:
    """*policy* as it holds on a node with *ceiling*, the rules of every team looked at as well.

    Raises:
        InvalidInput: Something allows more than what is above it.
    """
    found = policy if ceiling is None else narrowed(policy, ceiling)
    if ceiling is not None:
        for name, volume in policy.volumes.items():
            where = f"volumes.{name}.path"
            _within((volume.path,), ceiling.mount_roots, _below, where, ceiling)
    for team in policy.teams:
        own = for_team(found, team)
        if ceiling is not None:
            narrowed(own, ceiling)
    return found


def uid_refusal(uid: int, ceiling: Ceiling, field: str = "uids") -> InvalidInput | None:
    """Why programs may not run as *uid*, which the setting *field* gives; None where they may."""
    if ceiling.uids is None or any(uid in bound for bound in ceiling.uids):
        return None
    return _above(field, uid, ceiling.uids, ceiling)


def refused_port(
    ports: Iterable[int], team: str, ranges: Mapping[str, NumberRange]
) -> tuple[int, str] | None:
    """The first of a job's *ports* that *team* may not have, and what to give; None if it may all.

    Args:
        ports: On the host.
        team: The job's.
        ranges: Of the teams that have a range of their own.
    """
    own = ranges.get(team)
    for port in ports:
        if own is not None and port not in own:
            return port, f"give ports of team {team}, {own}"
        for other, theirs in ranges.items():
            if other != team and port in theirs and own is None:
                return port, f"{theirs} are the ports of team {other}; give others"
    return None


def _refuse_wider(own: ContainerPolicy, site: ContainerPolicy) -> None:
    if _WIDTH[own.network] > _WIDTH[site.network]:
        raise _above("network", own.network, (site.network,), Ceiling.of_site(site))
    if own.gang_network == NetworkMode.HOST and site.gang_network != NetworkMode.HOST:
        raise _above("gang_network", "host", (site.gang_network or "none",), Ceiling.of_site(site))
    for prefix in own.secret_prefixes:
        if not any(each and prefix.startswith(each) for each in site.secret_prefixes):
            raise _above("secret_prefixes", prefix, site.secret_prefixes, Ceiling.of_site(site))


def _within(
    asked: tuple[_Bound, ...],
    bounds: tuple[_Bound, ...] | None,
    fits: Callable[[_Bound, _Bound], bool],
    field: str,
    ceiling: Ceiling,
) -> tuple[_Bound, ...]:
    if bounds is None:
        return asked
    for each in asked:
        if not any(fits(each, bound) for bound in bounds):
            raise _above(field, each, bounds, ceiling)
    return asked or bounds


def _above(field: str, value: object, bounds: Iterable[object], ceiling: Ceiling) -> InvalidInput:
    most = ", ".join(map(str, bounds)) or "nothing"
    return InvalidInput(field, str(value), f"{ceiling.source} allows {most}; give less than that")


def _below(path: Path, root: Path) -> bool:
    return ".." not in path.parts and path.is_relative_to(root)


def _range_within(uids: NumberRange, bound: NumberRange) -> bool:
    return bound.holds(uids)


def _host_within(host: str, bound: str) -> bool:
    try:
        inner, outer = ip_network(host, strict=False), ip_network(bound, strict=False)
    except ValueError:
        return host == bound
    same = inner.version == outer.version
    return same and inner.network_address in outer and inner.prefixlen >= outer.prefixlen

"""Adds up what teams and users held of the site, what of it they used, and what it cost."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headway.errors import InvalidInput
from headway.model.lease import Sharing
from headway.model.node import Node
from headway.model.node_settings import NodeSettings
from headway.model.run import Measurement
from headway.model.usage import Holding
from headway.site import Site
from headway.units import GIB, HOUR_S
from headway.views.tables import COLUMNS


@dataclass(slots=True)
class Usage:
    """Sums of one user of one team.

    A GPU that is shared counts by the share of its memory that was granted.
    """

    team: str
    user: str
    runs: set[str] = field(default_factory=set)
    gpu_hours: float = 0.0
    idle_gpu_hours: float = 0.0
    """Held before the program ran and after it, and while it ran without a kernel on the GPU."""
    unmeasured_gpu_hours: float = 0.0
    """Of programs whose use of the GPU is not known: among `gpu_hours`, not idle."""
    gib_hours: float = 0.0
    unused_gib_hours: float = 0.0
    """Of host memory that was granted and never used, as far as the peak was measured."""
    cpu_hours: float = 0.0
    unused_cpu_hours: float = 0.0
    cost: float = 0.0
    idle_cost: float = 0.0
    """Of the cost, what GPUs cost while they were held and idle."""

    def add(self, each: Holding, node: Node | None, since: datetime, until: datetime) -> None:
        """Count what of *each* lies between the two moments."""
        end = until if each.ended_at is None else each.ended_at
        hours = _hours(each.began_at, end, since, until)
        if hours <= 0:
            return
        program_hours, used = 0.0, each.measured
        if each.program is not None:
            program_end = end if each.program[1] is None else min(each.program[1], end)
            program_hours = _hours(each.program[0], program_end, since, until)
        self.runs.add(each.run_id)
        gpus = _gpus(each, node)
        self.gpu_hours += gpus * hours
        idle_hours = hours - program_hours
        busy_frac = used.gpu_utilisation_frac if used is not None else None
        if busy_frac is None:
            self.unmeasured_gpu_hours += gpus * program_hours
        else:
            idle_hours += program_hours * (1 - min(busy_frac, 1.0))
        self.idle_gpu_hours += gpus * idle_hours
        self.gib_hours += each.host_memory_bytes / GIB * hours
        self.cpu_hours += each.cpus * hours
        if used is not None and used.host_peak_bytes is not None:
            unused_bytes = max(each.host_memory_bytes - used.host_peak_bytes, 0)
            self.unused_gib_hours += unused_bytes / GIB * hours
        if used is not None and used.cpu_s is not None and used.runtime_s:
            idle_cpus = max(each.cpus - used.cpu_s / used.runtime_s, 0.0)
            self.unused_cpu_hours += idle_cpus * hours
        if node is not None:
            self.cost += _price(each, gpus, node, hours)
            self.idle_cost += gpus * idle_hours * node.gpu_price_per_hour


def usage_of(
    holdings: Iterable[Holding], nodes: Mapping[str, Node], since: datetime, until: datetime
) -> list[Usage]:
    """What each user held between *since* and *until*, by team and user."""
    found: dict[tuple[str, str], Usage] = {}
    for each in holdings:
        key = (each.team, each.user)
        row = found.setdefault(key, Usage(*key))
        row.add(each, nodes.get(each.node), since, until)
    return [found[key] for key in sorted(found) if found[key].runs]


def _hours(begin: datetime, end: datetime, since: datetime, until: datetime) -> float:
    return max((min(end, until) - max(begin, since)).total_seconds(), 0.0) / HOUR_S


def _gpus(each: Holding, node: Node | None) -> float:
    """GPUs held; of one that is shared a part, where its size is known."""
    size = {gpu.uuid: gpu.memory_bytes for gpu in node.capacity.gpus} if node is not None else {}
    return sum(
        1.0
        if grant.sharing is Sharing.WHOLE or not size.get(grant.uuid)
        else min(grant.memory_bytes / size[grant.uuid], 1.0)
        for grant in each.gpus
    )


def _price(each: Holding, gpus: float, node: Node, hours: float) -> float:
    prices = NodeSettings(
        price_per_hour=node.price_per_hour, gpu_price_per_hour=node.gpu_price_per_hour
    )
    if each.gpus:
        return hours * gpus * prices.gpu_price_per_hour
    return prices.cost(hours * HOUR_S, gpus=0, cpu_frac=min(each.cpus / node.capacity.cpus, 1.0))


_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_SUMS = COLUMNS[3:]


def month_of(text: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Begin and end, in UTC, of the month written as 2026-11; of the present one for None.

    Raises:
        InvalidInput: It is no month.
    """
    text = now.astimezone(UTC).strftime("%Y-%m") if text is None else text
    found = _MONTH.fullmatch(text)
    if found is None or not 1970 <= int(found[1]) < 9999:
        raise InvalidInput("month", text, "give a month such as 2026-11")
    year, month = int(found[1]), int(found[2])
    after = (year, month + 1) if month < 12 else (year + 1, 1)
    return datetime(year, month, 1, tzinfo=UTC), datetime(*after, 1, tzinfo=UTC)


def usage_document(
    site: Site, *, team: str | None, user: str | None, month: str | None
) -> dict[str, Any]:
    """Rows of each team and user, and their sum.

    Raises:
        InvalidInput: *month* is none.
    """
    now = site.ledger.now()
    since, end = month_of(month, now)
    until = min(end, max(now, since))
    held = site.ledger.holdings.between(since, until, team=team, user=user)
    held = [_with_use_so_far(site, each) for each in held]
    found = usage_of(held, site.ledger.holdings.nodes(), since, until)
    rows = [_row(each) for each in found]
    total = {"runs": sum(row["runs"] for row in rows)}
    total |= {name: round(sum(row[name] for row in rows), 3) for name in _SUMS}
    return {"since": since.isoformat(), "until": until.isoformat(), "rows": rows, "total": total}


def _with_use_so_far(site: Site, each: Holding) -> Holding:
    """*each*, of a program that runs with how busy its GPUs have been, where the minutes tell."""
    goes_on = each.program is not None and each.program[1] is None
    if each.program is None or not goes_on or each.measured is not None or not each.gpus:
        return each
    gpus = [gpu.uuid for gpu in each.gpus]
    since = each.program[0]
    busy_frac = site.ledger.telemetry.busy_alone_frac(each.node, each.run_id, gpus, since)
    return replace(each, measured=Measurement(gpu_utilisation_frac=busy_frac))


def _row(each: Usage) -> dict[str, Any]:
    sums = {name: round(getattr(each, name), 3) for name in _SUMS}
    return {"team": each.team, "user": each.user, "runs": len(each.runs), **sums}

"""What teams and users held of the site in a month, as a group leader reads it."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from headway.errors import InvalidInput
from headway.model.run import Measurement
from headway.model.usage import Holding
from headway.site import Site
from headway.views.usage import Usage, usage_of
from headway.views.usage_table import COLUMNS

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

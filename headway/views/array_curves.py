"""One metric of an array's members over time, as small pictures beside each other show it."""

from typing import Any

from headway.ledger.arrays import kept_array
from headway.ledger.records import ArrayRecord
from headway.site import Site

MOST_MEMBERS = 48
"""So many pictures are looked at beside each other; `headway results` has all members."""
_MOST_POINTS = 60
_USUAL = "loss"


def curves_document(site: Site, array: ArrayRecord, metric: str) -> dict[str, Any]:
    """The curves of *metric* of the first members that have it, and which other metrics there are.

    Args:
        site: Where.
        array: Whose members.
        metric: Its name; empty for the loss, else the first that there is.
    """
    runs, known = site.ledger.arrays.members(array.array_id), kept_array(array)
    latest = site.ledger.progress.latest_of([run.run_id for run in runs])
    names = sorted({name for point in latest.values() for name in point.metrics})
    shown = metric or (_USUAL if _USUAL in names else next(iter(names), ""))
    have = [run for run in runs if run.run_id in latest and shown in latest[run.run_id].metrics]
    members = []
    for run in have[:MOST_MEMBERS]:
        points = site.ledger.progress.thinned(run.run_id, run.attempt, _MOST_POINTS)
        drawn = [[each.t_s, each.metrics[shown]] for each in points if shown in each.metrics]
        members.append(
            {
                "index": run.array_index,
                "run_id": run.run_id,
                "parameters": known.parameters(run.array_index or 1),
                "points": drawn,
            }
        )
    left_out = len(have) - len(members)
    return {"metric": shown, "metrics": names, "members": members, "left_out": left_out}

"""Runs that follow others: what their jobs name, and how that one stands."""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from headway.ledger.tables import RunRow
from headway.model.run import RunState, When
from headway.policy.after import Followed, Following


def after_columns(job: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a run whose *job* may name another one."""
    after = job.get("after")
    if not after:
        return {}
    return {"after_run_id": after["run"], "after_when": When(after["when"])}


def following(
    session: Session, *which: ColumnElement[bool] | bool
) -> Iterator[tuple[str, Following]]:
    """Of the runs for which the conditions *which* hold those that follow others, by id."""
    other = aliased(RunRow)
    query = (
        select(RunRow, other)
        .join(other, col(other.run_id) == col(RunRow.after_run_id), isouter=True)
        .where(*which, col(RunRow.after_run_id).is_not(None))
    )
    for run, found in session.exec(query):
        followed = None
        if found is not None:
            ended = found.state is RunState.ENDED
            exit_ = found.exit() if ended else None
            followed = Followed(found.run_id, found.name, found.team, exit_)
        when = run.after_when or When.OK
        yield run.run_id, Following(run.after_run_id or "", when, run.team, followed)

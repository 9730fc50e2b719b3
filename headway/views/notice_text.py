"""What a notice says: words of the site about a run, and none that a program wrote."""

import re
from typing import NamedTuple

from headway.ledger.records import RunRecord
from headway.model.notice import NoticeKind
from headway.model.run import ExitKind
from headway.units import format_duration

_HOW = {
    ExitKind.OK: "ended well",
    ExitKind.CANCELLED: "was cancelled",
    ExitKind.TIMED_OUT: "was stopped at its time limit",
    ExitKind.OUT_OF_MEMORY: "was killed for memory",
}
_FAILED = "failed"
_MARKUP = re.compile(r"[^\w .:,()+/-]")
"""A run may be called ``<!channel>`` or a link: to Slack and mail these are more than words."""


class Text(NamedTuple):
    """A message for people."""

    subject: str
    body: str


def array_text(name: str) -> Text:
    """What is told when all members of the array called *name* have ended."""
    name = _plain(name)
    return Text(f"headway: array {name} has ended", f"headway show {name}")


def run_text(kind: NoticeKind, run: RunRecord) -> Text:
    """What is told of *run* when it has started or ended."""
    name = _plain(run.name)
    if kind is NoticeKind.STARTED:
        waited_s = (run.started_at - run.submitted_at).total_seconds() if run.started_at else 0.0
        subject = f"{name} has started after {format_duration(waited_s)}"
    else:
        subject = f"{name} {_how(run)}"
    lines = [
        f"run {run.run_id}",
        f"owner {_plain(run.owner or 'not known')}, team {_plain(run.team)}",
        f"attempt {run.attempt}" + (f" on node {_plain(run.node)}" if run.node else ""),
        f"headway show {run.run_id[:8]}",
    ]
    return Text(f"headway: {subject}", "\n".join(lines))


def _how(run: RunRecord) -> str:
    end = run.exit
    if end is None:
        return "has ended"
    how = _HOW.get(end.kind, _FAILED)
    if how is _FAILED and end.code is not None:
        how = f"{how} with exit status {end.code}"
    if run.started_at is None or run.ended_at is None:
        return how
    lasted_s = max((run.ended_at - run.started_at).total_seconds(), 0.0)
    return f"{how} after {format_duration(lasted_s)}"


def _plain(text: str) -> str:
    """*text* with nothing in it that a chat or a mail program would act on."""
    return _MARKUP.sub("·", text)[:120]

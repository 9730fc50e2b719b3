"""Which folders of code a site lets go of: those that nobody has used for long."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from headway.model.kept_code import KeptCode
from headway.units import DAY_S, GIB

KEEP_S = 30 * DAY_S
"""So long after its last use code stays, where its team's `keep_days` says nothing."""
TEAM_BYTES = 2 * GIB
"""What a team's code takes at most in the ledger: content, rows and lists of files."""
ROW_BYTES = 1024
"""What a row counts beside its content."""
MANIFEST_WEIGHT = 16
"""A list of files counts so often: it is read whole, again and again."""
_JUST_SENT_S = 3600.0
"""Whoever has just sent it is about to submit a job with it."""
_FILL_FRAC = 0.8


def to_let_go(
    codes: Sequence[KeptCode], now: datetime, *, keep_s: float | None, held_bytes: int
) -> list[KeptCode]:
    """Those of one team's *codes* that go; never one that a run needs or that was just sent.

    Args:
        codes: Kept ones.
        now: On the clock of their use.
        keep_s: How long after its last use one stays; `KEEP_S` where None.
        held_bytes: What the team's code takes now. Where that comes near to `TEAM_BYTES`, those
            that were unused longest go, too.
    """
    gone: list[KeptCode] = []
    for code in sorted(codes, key=lambda each: (each.used_at, each.code_id)):
        unused_s = (now - code.used_at) / timedelta(seconds=1)
        if code.is_needed or unused_s < _JUST_SENT_S:
            continue
        too_much = held_bytes > TEAM_BYTES * _FILL_FRAC
        if too_much or unused_s > (KEEP_S if keep_s is None else keep_s):
            gone.append(code)
            held_bytes -= code.size_bytes + MANIFEST_WEIGHT * code.manifest_bytes
    return gone

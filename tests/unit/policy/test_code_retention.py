"""Which code a site lets go of."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from headway.model.kept_code import KeptCode
from headway.policy.code_retention import KEEP_S, TEAM_BYTES, to_let_go
from headway.units import DAY_S, GIB

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def code(code_id: str, unused_s: float, size_bytes: int = 1000) -> KeptCode:
    used_at = NOW - timedelta(seconds=unused_s)
    return KeptCode("vision", code_id, "", "", 1, size_bytes, used_at, is_kept=True)


def gone(*codes: KeptCode, keep_s: float | None = None, held_bytes: int = 0) -> list[str]:
    found = to_let_go(codes, NOW, keep_s=keep_s, held_bytes=held_bytes)
    return [each.code_id for each in found]


def test_what_nobody_used_for_long_goes() -> None:
    assert gone(code("new", KEEP_S - 1), code("old", KEEP_S + 1)) == ["old"]
    assert gone(code("new", DAY_S - 1), code("old", DAY_S + 1), keep_s=DAY_S) == ["old"]


def test_what_a_run_needs_stays_and_so_does_what_was_just_sent() -> None:
    needed = replace(code("needed", 10 * KEEP_S, GIB), is_needed=True)
    just = code("just", 60.0, GIB)
    assert gone(needed, just, keep_s=1.0, held_bytes=TEAM_BYTES) == []


def test_where_it_is_much_the_one_unused_longest_goes_first() -> None:
    codes = [code(str(days), days * DAY_S, GIB // 2) for days in (1, 2, 3)]
    assert gone(*codes, held_bytes=TEAM_BYTES) == ["3"]

"""Sizes, durations and costs for people: the only place that knows 1024 and 3600.

Inside headway bytes are `int` and seconds are `float`. People write and read
`12GiB` and `4h`; everything that crosses that border goes through here.
"""

import math
import re
from decimal import Decimal

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86_400.0

_SIZE_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 1000,
    "m": MIB, "mib": MIB, "mb": 1000**2,
    "g": GIB, "gib": GIB, "gb": 1000**3,
    "t": TIB, "tib": TIB, "tb": 1000**4,
}  # fmt: skip
_DURATION_UNITS = {
    "ms": 0.001,
    "s": 1.0, "sec": 1.0,
    "m": MINUTE_S, "min": MINUTE_S,
    "h": HOUR_S,
    "d": DAY_S,
    "w": 7 * DAY_S,
}  # fmt: skip
# ASCII digits only: int() and \d would also take digits of other scripts.
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)\s?([A-Za-z]{0,3})")
_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s?(ms|sec|min|[smhdw])")

MAX_BYTES = 2**63 - 1
"""The largest size a ledger column (signed 64 bit) can hold."""


def parse_size(text: str) -> int:
    """Bytes meant by *text*, such as ``12GiB``, ``512M`` or ``1.5 TiB``.

    ``K``, ``M``, ``G`` and ``T`` are binary, as `docker run --memory` reads
    them; ``KB``, ``MB``, ``GB`` and ``TB`` are decimal.

    Raises:
        ValueError: *text* is no size, or is above 2⁶³ - 1 bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError(f"{text[:40]!r} is no size; write a number and a unit, such as 12GiB")
    size = round(Decimal(match[1]) * _SIZE_UNITS[match[2].lower()])
    if size > MAX_BYTES:
        raise ValueError(f"{text[:40]!r} is more than {format_size(MAX_BYTES)}")
    return size


def format_size(size_bytes: float) -> str:
    """*size_bytes* for people: ``30.0 GiB``, ``512 MiB``, ``-2.5 GiB``, ``17 B``."""
    magnitude = abs(size_bytes)
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if magnitude >= unit:
            digits = 1 if unit >= GIB or magnitude < 10 * unit else 0
            return f"{size_bytes / unit:.{digits}f} {name}"
    return f"{size_bytes:.0f} B"


def parse_duration(text: str) -> float:
    """Seconds meant by *text*, such as ``4h``, ``90s``, ``1h30m`` or ``500ms``.

    Raises:
        ValueError: *text* is no duration.
    """
    compact = text.strip()
    position, total_s = 0, 0.0
    while position < len(compact):
        match = _DURATION_PART.match(compact, position)
        if match is None:
            break
        total_s += float(match[1]) * _DURATION_UNITS[match[2]]
        position = match.end()
    if not compact or position != len(compact):
        raise ValueError(f"{text[:40]!r} is no duration; write a number and a unit, such as 4h")
    return total_s


def format_duration(duration_s: float) -> str:
    """*duration_s* for people: ``0.4 s``, ``37 s``, ``4 min 10 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if math.isnan(duration_s):
        return "unknown"
    if math.isinf(duration_s):
        return "for ever" if duration_s > 0 else "-for ever"
    sign, left_s = ("-", -duration_s) if duration_s < 0 else ("", duration_s)
    if left_s < 9.95:
        return f"{sign}{left_s:.1f} s"
    whole_s = round(left_s)
    if whole_s < MINUTE_S:
        return f"{sign}{whole_s} s"
    for big, big_name, small, small_name in (
        (DAY_S, "d", HOUR_S, "h"),
        (HOUR_S, "h", MINUTE_S, "min"),
        (MINUTE_S, "min", 1.0, "s"),
    ):
        if whole_s >= big:
            major, rest = divmod(whole_s, big)
            minor = int(rest // small)
            return f"{sign}{int(major)} {big_name}" + (f" {minor} {small_name}" if minor else "")
    raise AssertionError(duration_s)  # pragma: no cover - every duration matched above


CURRENCY = "site's currency"
"""The unit of costs: headway knows prices, not the currency that the operator gave them in."""
COST = f"cost ({CURRENCY})"


def format_cost(cost: float | None) -> str:
    """*cost* for people, with `CURRENCY` said beside it: ``12.50``, ``0.0042``; ``–`` for None."""
    if not cost:
        return "–" if cost is None else "no price set"
    if cost < 0.0001:
        return "under 0.0001"
    return f"{cost:.2f}" if cost >= 0.1 else f"{cost:.4f}"

"""How often somebody may ask: a bucket that fills steadily and is emptied by requests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second in the long run, and so many at once."""

    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was left at a moment of the monotonic clock."""

    left: float
    at_s: float


def take(bucket: Bucket | None, now_s: float, rate: Rate) -> tuple[Bucket, float]:
    """One more request at *now_s*.

    Args:
        bucket: As it was left by the request before; None before the first.
        now_s: By the monotonic clock.
        rate: What is allowed.

    Returns:
        The bucket afterwards, and how long to wait: 0.0 where the request may pass.
    """
    filled = float(rate.burst)
    if bucket is not None:
        passed_s = max(now_s - bucket.at_s, 0.0)
        filled = min(bucket.left + passed_s * rate.per_s, filled)
    if filled >= 1.0:
        return Bucket(filled - 1.0, now_s), 0.0
    return Bucket(filled, now_s), (1.0 - filled) / rate.per_s

"""What is news of a run that waits: enough to say it again, or to write it into its log."""

from dataclasses import dataclass, replace

from headway.model.lease import Resource, Wait
from headway.units import MINUTE_S

_SAY_AGAIN_S = 30.0
"""Nothing but another scarce resource is said again sooner."""
_SMALL_NEWS_S = 300.0
"""Numbers that have moved a little are not said again sooner."""
_LOG_AGAIN_S = 300.0
"""The same for lines of the log, which stay."""
_MOVED_FRAC = 0.25
_MOVED_FAR_FRAC = 0.5
"""A start that has moved by these parts of the wait that is left has moved, and moved far."""


@dataclass(frozen=True, slots=True)
class Said:
    """What was last said of a run that waits."""

    resource: Resource
    sentence: str
    """The reason with place and expected start."""
    expected_s: float | None
    """The expected start; None when it could not be said."""
    at_s: float
    logged_s: float
    """When a line of its log last said why it waits …"""
    logged_expected_s: float | None
    """… and which start that named."""


def said_anew(
    before: Said | None,
    wait: Wait,
    sentence: str,
    expected_s: float | None,
    now_s: float,
) -> Said | None:
    """What is to be said now; None when that is no news.

    It goes into the log, too, when its `logged_s` is *now_s*.
    """
    said = Said(wait.resource, sentence, expected_s, now_s, now_s, expected_s)
    if before is None or before.resource is not wait.resource:
        return said
    since_s = now_s - before.at_s
    if before.sentence == sentence or since_s < _SAY_AGAIN_S:
        return None
    moved = _moved(before.expected_s, expected_s, now_s, _MOVED_FRAC)
    if not moved and since_s < _SMALL_NEWS_S:
        return None
    far = _moved(before.logged_expected_s, expected_s, now_s, _MOVED_FAR_FRAC)
    if far and now_s - before.logged_s >= _LOG_AGAIN_S:
        return said
    return replace(said, logged_s=before.logged_s, logged_expected_s=before.logged_expected_s)


def _moved(before_s: float | None, after_s: float | None, now_s: float, share: float) -> bool:
    """Has an expected start moved by more than a minute and *share* of the wait that was left?"""
    if before_s is None or after_s is None:
        return (before_s is None) != (after_s is None)
    return abs(after_s - before_s) > max(MINUTE_S, share * max(before_s - now_s, 0.0))

"""How far a run is and how long it still takes, in words that say no more than is known."""

from headway.model.attempt_record import ProgressSnapshot
from headway.model.progress import ProgressPoint
from headway.model.run import Span
from headway.units import format_duration

_NARROW = 1.5
"""An interval whose ends differ by no more than so many times is told by its middle alone."""
BY_OTHERS = "as long as runs like it lasted"
GOES_ON = "and it goes on; how long is not known"


def left_text(left: Span, cost: float | None = None, *, is_range: bool = False) -> str:
    """How long it still takes; also what that costs, where the site has prices.

    Args:
        left: Seconds, with the ends of their 80 % interval.
        cost: Of the middle.
        is_range: Both ends are told, however near they are.
    """
    if left.high_s <= _NARROW * left.low_s and not is_range:
        text = format_duration(left.median_s)
    elif left.low_s < 1.0:
        text = f"at most {format_duration(left.high_s)}"
    else:
        text = f"{format_duration(left.low_s)} to {format_duration(left.high_s)}"
    return f"{text} left" + (f" for {cost:.2f}" if cost else "")


def place_text(at: ProgressPoint | ProgressSnapshot) -> str:
    """Where a run is, such as ``at iteration 1,000 of 5,000``; empty where it says no place."""
    unit, done = ("epoch", at.epoch) if at.iteration is None else ("iteration", at.iteration)
    if done is None:
        return ""
    return f"at {unit} {done:,.10g}" + (f" of {at.total:,}" if at.total else "")


def unknown_text(per_s: float | None) -> str:
    """What is said of a run that tells no total, *per_s* units a second where that is known."""
    return (f"{per_s:.2g}/s; " if per_s else "") + "how many there will be is not known"


def progress_text(far: ProgressSnapshot | None, left: Span | None, cost: float | None) -> str:
    """How far a run is, in one line; empty where nothing is known.

    Args:
        far: What its log and its files say.
        left: How long it still takes: by these, or by how long runs like it lasted.
        cost: Of the time that is left.
    """
    if far is not None and far.done_frac is not None:
        done = f"{far.done_frac:.0%}"
        if left is None:
            return done if far.done_frac < 1.0 else f"{done}, {GOES_ON}"
        return f"{done}, {left_text(left, cost)}"
    place = "" if far is None else place_text(far)
    if far is not None and place:
        place = f"{place}, {unknown_text(far.per_s)}"
    if left is None:
        return place
    by_others = f"{left_text(left, cost, is_range=True)}, {BY_OTHERS}"
    return f"{place}; {by_others}" if place else by_others

"""How often an engine is asked: often enough for people, never so often that others notice."""

EVERY_S = 5.0
"""For a cluster that answers at once."""
SHARE = 0.05
"""Of the scheduler's time, at most, that questions may take."""
LONGEST_S = 300.0


def pause_s(took_s: float, failures: int) -> float:
    """Seconds until the next question, by how long the last one took and how many failed in a row.

    A slow answer is asked for less often, in proportion; one that fails half as often each time.
    """
    patient_s = max(EVERY_S, took_s / SHARE)
    return min(patient_s * 2.0 ** min(failures, 10), LONGEST_S)

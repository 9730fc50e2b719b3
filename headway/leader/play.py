"""The queue of a pool, played forward: by when its runs start, and why one of them waits."""

from collections.abc import Mapping
from typing import NamedTuple

from headway.estimate.starts import PLAYED
from headway.ledger.codec import to_json
from headway.model.start_forecast import PlayedStarts
from headway.scheduler.planning import read_pool
from headway.scheduler.playing import play
from headway.scheduler.why import why
from headway.site import Site
from headway.views.queue_document import why_text


class Explained(NamedTuple):
    """Of a queue that was played."""

    turns: Mapping[str, int]
    """By run that waits: when it was explained last, the higher the later; 0 for never."""
    run_id: str = ""
    """The run that was explained now; empty where none waits any more."""
    text: str = ""
    """Why it waits, for its page."""


def play_queue(site: Site, pool: str, turns: Mapping[str, int]) -> Explained:
    """Play the queue of *pool* forward, keep what comes of it, and explain one run.

    It computes for seconds where the queue is long.

    Args:
        site: Of this process.
        pool: Whose queue.
        turns: What came of the last time; who was never explained has its turn first.
    """
    now = read_pool(site, pool)
    entries = now.waiting.entries
    if not entries:
        site.ledger.settings.keep(PLAYED.format(pool), to_json(PlayedStarts()))
        return Explained({})
    site.ledger.settings.keep(PLAYED.format(pool), to_json(play(now)))
    known = {run_id: turns.get(run_id, 0) for run_id in entries}
    turn = min(known, key=lambda run_id: (known[run_id], entries[run_id].run.submitted_s))
    known[turn] = max(known.values()) + 1
    record = entries[turn].record
    found = why(site, record)
    return Explained(known) if found is None else Explained(known, turn, why_text(record, found))

"""What was said of the runs that wait, and what of a plan is news of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice

from headway.ledger.pools import PoolSnapshot
from headway.ledger.runs import Reason
from headway.model.lease import Resource, Wait
from headway.policy.news import Said, said_anew
from headway.policy.plan import Plan, Stay
from headway.scheduler.waiting import Waiting

_REASONS_A_PASS = 1000
"""Of the runs that no plan reaches; the others follow in later passes."""


def is_behind(ahead: int) -> Wait:
    """Why a run waits that is not planned for."""
    said = f"at least {ahead} runs are ahead of it" if ahead else "it has not been planned for yet"
    return Wait(Resource.TURN, said)


class Announced:
    """What was last said of each run that waits."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._said: dict[str, Said] = {}

    def forget(self, run_id: str) -> None:
        """What was said of the run holds no more."""
        self._said.pop(run_id, None)

    def news(
        self,
        made: Plan,
        seen: PoolSnapshot,
        waiting: Waiting,
        held_back: Mapping[str, Wait],
    ) -> tuple[list[Reason], dict[str, str], frozenset[str]]:
        """What is to be said now of the runs that *made* does not start.

        Args:
            made: The plan.
            seen: What it was made from.
            waiting: The runs that wait.
            held_back: Those that were left out of it, with the reason.

        Returns:
            Reasons for the ledger; by run, the sentence for its state; and the
            runs whose news is worth a line of their logs.
        """
        stays = [entry for entry in made.entries if isinstance(entry, Stay)]
        # Those that start with this plan are no longer ahead of anybody.
        stays = [replace(stay, position=at) for at, stay in enumerate(stays, start=1)]
        now_s = seen.at.timestamp()
        found = {
            stay.run_id: (stay.wait, stay.expected_at, stay.sentence())
            for stay in stays
            if self._is_news(stay.run_id, stay.wait, stay.sentence(), stay.expected_at, now_s)
        }
        planned = {entry.run_id for entry in (*made.entries, *made.behind)}
        others = (
            (run_id, held_back.get(run_id) or is_behind(len(made.entries)))
            for run_id in sorted(waiting.entries.keys() - planned)
            # The others were told that they are behind, or more.
            if run_id in held_back or run_id not in self._said
        )
        behind = chain(
            ((stay.run_id, stay.wait, stay.expected_at, stay.sentence()) for stay in made.behind),
            ((run_id, wait, None, wait.reason) for run_id, wait in others),
        )
        unplanned = (
            (run_id, (wait, expected_at, sentence))
            for run_id, wait, expected_at, sentence in behind
            if self._is_news(run_id, wait, sentence, expected_at, now_s)
        )
        found |= dict(islice(unplanned, _REASONS_A_PASS))
        reasons = [
            Reason(run_id, wait.resource, wait.reason, expected_at)
            for run_id, (wait, expected_at, _) in found.items()
        ]
        sentences = {run_id: sentence for run_id, (_, _, sentence) in found.items()}
        logged = (run_id for run_id in found if self._said[run_id].logged_s == now_s)
        return reasons, sentences, frozenset(logged)

    def _is_news(
        self, run_id: str, wait: Wait, sentence: str, expected: datetime | None, now_s: float
    ) -> bool:
        expected_s = None if expected is None else expected.timestamp()
        found = said_anew(self._said.get(run_id), wait, sentence, expected_s, now_s)
        if found is not None:
            self._said[run_id] = found
        return found is not None

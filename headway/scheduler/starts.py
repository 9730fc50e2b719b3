"""What is said of when waiting runs start: kept at their submission and each hour, to be scored."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from headway.estimate.starts import StartCalibration
from headway.ledger import Ledger
from headway.ledger.pools import PoolSnapshot
from headway.model.start_forecast import StartForecast
from headway.policy.plan import Plan, Stay
from headway.scheduler.waiting import Waiting

_AGAIN = timedelta(hours=1)


class _Said(NamedTuple):
    first: StartForecast
    last: StartForecast


class SaidStarts:
    """What was said of the runs that wait now."""

    def __init__(self, ledger: Ledger) -> None:
        """As *ledger* has it."""
        self._ledger = ledger
        self._said: dict[str, _Said] = {}

    def over(self, run_ids: set[str]) -> None:
        """These runs wait no more."""
        if known := run_ids & self._said.keys():
            for run_id in known:
                del self._said[run_id]
            self._ledger.starts.settle()

    def keep(
        self, made: Plan, seen: PoolSnapshot, waiting: Waiting, learnt: StartCalibration
    ) -> Plan:
        """Keep what *made* says anew; gives it with the word that a start has receded."""
        stays = [each for each in made.entries if isinstance(each, Stay)]
        stays = [each for each in (*stays, *made.behind) if each.planned is not None]
        unknown = [each.run_id for each in stays if each.run_id not in self._said]
        for run_id, rows in self._ledger.starts.of_waiting(unknown).items():
            self._said[run_id] = _Said(rows[0], rows[-1])
        if new := list(self._new(stays, seen, waiting, learnt)):
            self._ledger.starts.keep(new)
        for said in new:
            known = self._said.get(said.run_id)
            self._said[said.run_id] = _Said(known.first if known else said, said)
        entries = (self._honest(e) if isinstance(e, Stay) else e for e in made.entries)
        behind = tuple(self._honest(each) for each in made.behind)
        return replace(made, entries=tuple(entries), behind=behind)

    def _new(
        self,
        stays: list[Stay],
        seen: PoolSnapshot,
        waiting: Waiting,
        learnt: StartCalibration,
    ) -> Iterator[StartForecast]:
        for stay in stays:
            known, entry = self._said.get(stay.run_id), waiting.entries.get(stay.run_id)
            again = known is not None and seen.at - known.last.said_at < _AGAIN
            if again or entry is None or stay.planned is None or stay.planned_at is None:
                continue
            yield learnt.forecast(
                stay.run_id,
                stay.planned_at,
                stay.planned,
                gpus=entry.run.gpus * entry.run.nodes,
                ahead=stay.position - 1,
                first=known is None,
            )

    def _honest(self, stay: Stay) -> Stay:
        known = self._said.get(stay.run_id)
        if known is None or stay.expected_at is None or stay.expected_at <= known.first.latest_at:
            return stay
        return replace(stay, first_said_latest_at=known.first.latest_at)

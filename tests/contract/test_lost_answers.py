"""A share of `benchmarks/faults/lost_answers.py`: whoever asks again doubles nothing."""

import random

from headway.ledger import Ledger
from tests.support.ledger_faults import commits_reported_failed, prepare
from tests.support.lost_answers import carry_out, doubled

JOBS = 20


def test_what_was_committed_but_reported_failed_is_written_once(ledger_url: str) -> None:
    ledger, chance = Ledger.open(ledger_url), random.Random(11)
    prepare(ledger)
    with commits_reported_failed(0.25, seed=11) as lost:
        wanted = [carry_out(ledger, f"job-{number}", chance) for number in range(JOBS)]
    assert lost[0] > JOBS
    assert [amiss for each in wanted for amiss in doubled(ledger, each)] == []
    ledger.close()

"""The real ledger does what the model of the lease protocol says, step by step."""

from collections.abc import Iterator

import pytest

from headway.ledger import Ledger
from tests.protocol.replay import Replay, expected
from tests.protocol.values import Rules
from tests.protocol.walk import walk

WAYS = 40
SIZES = (Rules(nodes=2, runs=2), Rules(nodes=2, runs=2, told_to_prefect=False))


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(ledger_url)
    yield opened
    opened.close()


def test_the_ledger_follows_the_model(ledger: Ledger) -> None:
    asked = 0
    for seed in range(WAYS):
        rules = SIZES[seed % 2]
        replay = Replay(ledger, rules)
        for move in walk(rules, seed, 60):
            if replay.carry_out(move):
                asked += 1
                wanted = [expected(row) for row in move.after.rows]
                assert replay.kept() == wanted, f"way {seed}: {move}"
    assert asked > 5 * WAYS

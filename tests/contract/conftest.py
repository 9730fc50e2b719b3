"""An empty ledger for each test."""

from collections.abc import Iterator

import pytest

from headway.ledger import Ledger


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(ledger_url)
    yield opened
    opened.close()

"""An empty ledger for each test; a Slurm of two nodes for those of a file."""

from collections.abc import Iterator

import pytest

from headway.ledger import Ledger
from tests.support.slurm import Slurm, two_nodes


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger.open(ledger_url)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    yield from two_nodes(tmp_path_factory.mktemp("slurm"))

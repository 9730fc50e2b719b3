"""The staged index of the ledger and its fakes, and both readers, keep their ports' promises."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.ledger import Ledger
from headway.staging.folders import StagedIndex
from headway.staging.reader import Reader, UserReader
from tests.conftest import NOBODY
from tests.integration.staging_process import FileIndex
from tests.ports.staging import MemoryIndex, OpenReader
from tests.ports.staging_contract import (
    ReaderContract,
    StagedIndexContract,
)


class TestMemoryIndex(StagedIndexContract):
    @pytest.fixture
    def index(self) -> StagedIndex:
        return MemoryIndex()


class TestFileIndex(StagedIndexContract):
    @pytest.fixture
    def index(self, tmp_path: Path) -> StagedIndex:
        return FileIndex(tmp_path / "index")


class TestLedgersIndex(StagedIndexContract):
    @pytest.fixture
    def index(self, ledger_url: str) -> Iterator[StagedIndex]:
        ledger = Ledger.open(ledger_url)
        yield ledger.staged
        ledger.close()


class TestOpenReader(ReaderContract):
    @pytest.fixture
    def reader(self) -> Reader:
        return OpenReader()


class TestUserReader(ReaderContract):
    @pytest.fixture
    def reader(self) -> Reader:
        return UserReader(NOBODY if os.geteuid() == 0 else None)

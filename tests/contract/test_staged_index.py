"""The fakes of the staged index, and both readers, keep their ports' promises."""

import os
from pathlib import Path

import pytest

from headway.staging.index import StagedIndex
from headway.staging.reader import Reader, UserReader
from headway.testing.staging import MemoryIndex, OpenReader
from headway.testing.staging_contract import ReaderContract, StagedIndexContract
from tests.conftest import NOBODY
from tests.integration.staging_process import FileIndex


class TestMemoryIndex(StagedIndexContract):
    @pytest.fixture
    def index(self) -> StagedIndex:
        return MemoryIndex()


class TestFileIndex(StagedIndexContract):
    @pytest.fixture
    def index(self, tmp_path: Path) -> StagedIndex:
        return FileIndex(tmp_path / "index")


class TestOpenReader(ReaderContract):
    @pytest.fixture
    def reader(self) -> Reader:
        return OpenReader()


class TestUserReader(ReaderContract):
    @pytest.fixture
    def reader(self) -> Reader:
        return UserReader(NOBODY if os.geteuid() == 0 else None)

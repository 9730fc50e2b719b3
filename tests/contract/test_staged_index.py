"""The fakes of the staged index keep the port's promises."""

from pathlib import Path

import pytest

from headway.staging.index import StagedIndex
from headway.testing.staging import MemoryIndex
from headway.testing.staging_contract import StagedIndexContract
from tests.integration.staging_process import FileIndex


class TestMemoryIndex(StagedIndexContract):
    @pytest.fixture
    def index(self) -> StagedIndex:
        return MemoryIndex()


class TestFileIndex(StagedIndexContract):
    @pytest.fixture
    def index(self, tmp_path: Path) -> StagedIndex:
        return FileIndex(tmp_path / "index")

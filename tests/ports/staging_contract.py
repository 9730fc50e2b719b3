"""What every implementation of the ports `StagedIndex` and `Reader` keeps.

A test module derives from `StagedIndexContract` and gives an `index` fixture:
an empty index that knows the nodes ``n`` and ``m`` and the runs ``r1``, ``r2``;
from `ReaderContract` with a `reader` that may read below ``tmp_path``.
"""

from pathlib import Path

import pytest

from headway.staging.errors import SourceChanged, SourceMissing
from headway.staging.folders import StagedIndex
from headway.staging.reader import Reader


class StagedIndexContract:
    """Of the port `StagedIndex`."""

    def test_what_is_recorded_is_listed(self, index: StagedIndex) -> None:
        """On its own node only."""
        index.record("n", "k", "/data/set", 5, "a" * 64)
        (found,) = index.list("n")
        assert (found.key, found.uri, found.size_bytes) == ("k", "/data/set", 5)
        assert (found.sha256, found.run_ids) == ("a" * 64, ())
        assert index.list("m") == []

    def test_a_used_set_is_not_removed(self, index: StagedIndex) -> None:
        """Until its last run lets go of it."""
        index.record("n", "k", "u", 5, "a" * 64)
        for run_id in ("r1", "r1", "r2"):
            index.acquire("n", "k", run_id)
        assert sorted(index.list("n")[0].run_ids) == ["r1", "r2"]
        assert index.remove("n", "k") is False
        index.release("m", "r1")
        index.release("n", "r1")
        index.release("n", "r1")
        assert index.remove("n", "k") is False
        index.release("n", "r2")
        assert index.list("n")[0].run_ids == ()
        assert index.remove("n", "k") is True
        assert index.list("n") == []
        assert index.remove("n", "k") is True

    def test_recording_again_keeps_the_runs(self, index: StagedIndex) -> None:
        """A damaged copy that was fetched anew still belongs to those who use it."""
        index.record("n", "k", "u", 5, "a" * 64)
        index.acquire("n", "k", "r1")
        index.record("n", "k", "u", 6, "b" * 64)
        (found,) = index.list("n")
        assert (found.size_bytes, found.sha256, found.run_ids) == (6, "b" * 64, ("r1",))

    def test_the_least_recently_used_comes_first(self, index: StagedIndex) -> None:
        """Acquiring is using; letting go is not."""
        for key in ("a", "b", "c"):
            index.record("n", key, "u", 1, "a" * 64)
        for key in ("b", "c", "a"):
            index.acquire("n", key, "r1")
        index.release("n", "r1")
        assert [each.key for each in index.list("n")] == ["b", "c", "a"]


class _GaveUpError(Exception):
    pass


class ReaderContract:
    """Of the port `Reader`."""

    def test_a_directory_is_read_file_by_file(self, reader: Reader, tmp_path: Path) -> None:
        """In the order of the names' bytes, each with its size."""
        (tmp_path / "set" / "b").mkdir(parents=True)
        (tmp_path / "set" / "b" / "x").write_bytes(b"0" * 5_000_000)
        (tmp_path / "set" / "a").write_bytes(b"one")
        with reader.reading(str(tmp_path / "set"), lambda: None) as reading:
            source = reading.inspect()
            assert source.is_directory
            found = [(each.name, each.size_bytes) for each in source.files]
            assert found == [("a", 3), ("b/x", 5_000_000)]
            assert b"".join(reading.pieces(source.files[1])) == b"0" * 5_000_000
            assert b"".join(reading.pieces(source.files[0])) == b"one"
            for each in source.files:
                reading.probe(each)
            assert b"".join(reading.pieces(source.files[0])) == b"one"
            assert reading.inspect().identity == source.identity

    def test_what_is_not_there_is_missing(self, reader: Reader, tmp_path: Path) -> None:
        """With the address as it was given."""
        uri = str(tmp_path / "none")
        with reader.reading(uri, lambda: None) as reading, pytest.raises(SourceMissing) as missing:
            reading.inspect()
        assert missing.value.uri == uri

    def test_another_file_in_its_place_is_a_change(self, reader: Reader, tmp_path: Path) -> None:
        """Looked at and opened are the same file, or nothing is read."""
        path = tmp_path / "set.csv"
        path.write_text("one")
        with reader.reading(str(path), lambda: None) as reading:
            (file,) = reading.inspect().files
            (tmp_path / "other").write_text("two")
            (tmp_path / "other").replace(path)
            with pytest.raises(SourceChanged):
                list(reading.pieces(file))
        path.write_text("one")
        with reader.reading(str(path), lambda: None) as reading:
            (file,) = reading.inspect().files
            (tmp_path / "other").write_text("two")
            (tmp_path / "other").replace(path)
            with pytest.raises(SourceChanged):
                reading.probe(file)

    def test_whoever_waits_may_give_up(self, reader: Reader, tmp_path: Path) -> None:
        """The check is asked before anything is read."""
        (tmp_path / "set.csv").write_text("one")

        def check() -> None:
            raise _GaveUpError

        with (
            pytest.raises(_GaveUpError),
            reader.reading(str(tmp_path / "set.csv"), check) as reading,
        ):
            reading.inspect()

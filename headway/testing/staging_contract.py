"""What every implementation of the port `StagedIndex` keeps.

A test module derives from `StagedIndexContract` and gives an `index` fixture:
an empty index that knows the nodes ``n`` and ``m`` and the runs ``r1``, ``r2``.
"""

from headway.staging.index import StagedIndex


class StagedIndexContract:
    """Of the port `StagedIndex`."""

    def test_what_is_recorded_is_listed(self, index: StagedIndex) -> None:
        """On its own node only."""
        index.record("n", "k", "/data/set", 5, "a" * 64)
        (found,) = index.list("n")
        assert (found.key, found.uri, found.size_bytes) == ("k", "/data/set", 5)
        assert (found.sha256, found.run_ids) == ("a" * 64, ())
        assert index.list("m") == []

    def test_a_used_set_is_neither_evictable_nor_removed(self, index: StagedIndex) -> None:
        """Until its last run lets go of it."""
        index.record("n", "k", "u", 5, "a" * 64)
        for run_id in ("r1", "r1", "r2"):
            index.acquire("n", "k", run_id)
        assert sorted(index.list("n")[0].run_ids) == ["r1", "r2"]
        assert index.evictable("n") == []
        assert index.remove("n", "k") is False
        index.release("m", "r1")
        index.release("n", "r1")
        index.release("n", "r1")
        assert index.remove("n", "k") is False
        index.release("n", "r2")
        assert [each.key for each in index.evictable("n")] == ["k"]
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
        assert [each.key for each in index.evictable("n")] == ["b", "c", "a"]

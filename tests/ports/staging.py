"""An index of staged data sets in memory, and a reader within this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headway.model.staged import StagedSet
from headway.staging.reader import Check, Reading
from headway.staging.rules import SourceRules
from headway.staging.source import CHUNK_BYTES, Source, SourceFile, inspect, reading


class MemoryIndex:
    """Port `StagedIndex` for one process; safe between its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: dict[tuple[str, str], StagedSet] = {}
        """By node and key, least recently used first."""

    def record(self, node: str, key: str, uri: str, size_bytes: int, sha256: str) -> None:
        """The set lies on *node* now."""
        with self._lock:
            known = self._sets.get((node, key))
            run_ids = known.run_ids if known else ()
            self._sets[node, key] = StagedSet(key, uri, size_bytes, sha256, run_ids)

    def acquire(self, node: str, key: str, run_id: str) -> None:
        """*run_id* uses the set."""
        with self._lock:
            known = self._sets.pop((node, key))
            run_ids = (*(each for each in known.run_ids if each != run_id), run_id)
            self._sets[node, key] = replace(known, run_ids=run_ids)

    def release(self, node: str, run_id: str) -> None:
        """*run_id* uses nothing on *node* any more."""
        with self._lock:
            for (where, key), known in self._sets.items():
                if where == node:
                    run_ids = tuple(each for each in known.run_ids if each != run_id)
                    self._sets[where, key] = replace(known, run_ids=run_ids)

    def remove(self, node: str, key: str) -> bool:
        """Forget the set unless a run uses it."""
        with self._lock:
            known = self._sets.get((node, key))
            if known is not None and known.run_ids:
                return False
            self._sets.pop((node, key), None)
            return True

    # Last, since from here on `list` no longer names the type.
    def list(self, node: str) -> "list[StagedSet]":
        """Every set on *node*, least recently used first."""
        with self._lock:
            return [known for (where, _), known in self._sets.items() if where == node]


class OpenReader:
    """Port `Reader` within this process: as its own user, of any storage that fsspec knows."""

    user = None

    @contextmanager
    def reading(self, uri: str, check: Check) -> Iterator[Reading]:
        """Read *uri* here."""
        check()
        yield _Open(uri)


class _Open:
    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._source: Source | None = None

    def inspect(self) -> Source:
        self._source = inspect(self._uri, SourceRules())
        return self._source

    def pieces(self, file: SourceFile) -> Iterator[bytes]:
        assert self._source is not None
        with reading(self._uri), self._source.open(file, SourceRules()) as opened:
            while piece := opened.read(CHUNK_BYTES):
                yield piece

    def probe(self, file: SourceFile) -> None:
        assert self._source is not None
        self._source.probe(file, SourceRules())

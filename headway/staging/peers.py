"""Files of a data set from the caches of other nodes of the site, in place of a source far away.

The source alone says which files are wanted. A node is asked for a file only where it has the
very same version of it, of the same user; what it sends counts once its SHA-256 is the one that
the ledger vouches for: that of the set is there, and the list of its files that the node gives
has to have it. Whatever goes wrong costs the time it took, and the source is read.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from headway.clock import Clock
from headway.model.address import local_path
from headway.model.staged import HeldSet
from headway.staging.errors import PeerFailed
from headway.staging.manifest import digest
from headway.staging.partial import Write
from headway.staging.source import SourceFile
from headway.units import MIB

MOST_PARTS = 16
"""Parts of data sets that were divided among more nodes are not looked for."""
LEAST_BYTES_S = 4 * MIB
"""A node that gives less is left for the source. A hundredth of what a disk gives."""
WINDOW_S = 5.0
"""So long a node is waited for before it is judged."""
MOST_LEFT = 3
"""After so many nodes that failed, the rest of a copy comes from the source."""
_FILE_BYTES = LEAST_BYTES_S // 20
"""A file counts as so much more: to ask for it takes a while, of the source as well."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


Listing = Sequence[tuple[str, int, str]]
"""Name, bytes and SHA-256 of each file of a set, in the order of the names' bytes."""


class Peers(Protocol):
    """The other nodes of the site. The fake is `headway.testing.staging.MemoryPeers`."""

    def held(self, keys: Collection[str]) -> Sequence[HeldSet]:
        """Who has a set of one of *keys* and may be asked for it, by the ledger."""

    def listing(self, held: HeldSet) -> Listing:
        """The files of the set by the node's own word, as it came. Raises `PeerFailed`."""

    def pieces(self, held: HeldSet, name: str) -> Iterator[bytes]:
        """The bytes of a file of the set as they come. Raises `PeerFailed`."""

    def close(self) -> None:
        """End what connects to them."""


def is_far(uri: str) -> bool:
    """Whether another node may have *uri* nearer: it is no path of this node.

    A path means something else on each node, or is a mount that serves all of them alike.
    """
    return local_path(uri) is None


def to_ask(held: Iterable[HeldSet], own_key: str, here: str) -> list[HeldSet]:
    """Of *held*, which sets are asked for files, and in which order.

    First the ones of *own_key*, which have all that is wanted. Of equals each node asks others
    first, so that those who begin together do not all wait for one. What two nodes have of one
    key must be the same: where it is not, the source is changing unseen, and nobody is asked.
    """
    by_key = defaultdict(list)
    for each in held:
        by_key[each.key].append(each)
    agreed = [group for group in by_key.values() if len({each.sha256 for each in group}) == 1]
    chosen = (each for group in agreed for each in group if each.node != here)

    def place(each: HeldSet) -> tuple[bool, bytes]:
        turn = hashlib.sha256(f"{here}\n{each.node}\n{each.key}".encode()).digest()
        return each.key != own_key, turn

    return sorted(chosen, key=place)


def checked(
    listing: Listing, held: HeldSet, *, is_directory: bool
) -> Mapping[str, tuple[int, str]]:
    """Bytes and SHA-256 of each file by name, once *listing* is the one that the ledger knows.

    Raises:
        PeerFailed: It is another one.
    """
    told = [(name, sha256) for name, _, sha256 in listing]
    # Anything but a hash could make a line of one list look like two of another, and of a file
    # that is a set by itself nothing but the first hash is compared.
    sound = bool(told) if is_directory else len(told) == 1
    sound = sound and all(_SHA256.fullmatch(sha256) for _, sha256 in told)
    try:
        right = sound and digest(told, is_directory=is_directory) == held.sha256
    except ValueError:
        right = False  # a name that no file system has
    if not right:
        raise PeerFailed(held.node, "its list of files is not that of the set in the ledger")
    return {name: (size_bytes, sha256) for name, size_bytes, sha256 in listing}


class Pace:
    """Tells a node that is too slow from one that is not, by the time it is waited for.

    What this node takes to write does not count.
    """

    def __init__(self, clock: Clock) -> None:
        """Measure on *clock*."""
        self._clock = clock
        self._waited_s = 0.0
        self._came_bytes = 0

    def timed(self, pieces: Iterator[bytes], node: str) -> Iterator[bytes]:
        """*pieces* of one file as they come. Raises `PeerFailed` when they come too slowly."""
        self._came_bytes += _FILE_BYTES
        while True:
            from_s = self._clock.monotonic_s()
            piece = next(pieces, None)
            self._waited_s += self._clock.monotonic_s() - from_s
            if piece is None:
                return
            self._came_bytes += len(piece)
            if self._waited_s >= WINDOW_S:
                bytes_s = self._came_bytes / self._waited_s
                self._waited_s, self._came_bytes = 0.0, 0
                if bytes_s < LEAST_BYTES_S:
                    cause = f"it gave {bytes_s / MIB:.2f} MiB/s, less than {LEAST_BYTES_S // MIB}"
                    raise PeerFailed(node, cause)
            yield piece


class NearCopies:
    """Port `Nearer`: files of one data set from other nodes, for one fetch.

    Attributes:
        came_bytes: What came from each node and was right.
        left: Why nodes were not asked any more.
    """

    def __init__(
        self, peers: Peers, asked: Sequence[HeldSet], clock: Clock, *, is_directory: bool
    ) -> None:
        """Ask *peers* for files of *asked*, in this order."""
        self._peers = peers
        self._asked = list(asked)
        self._is_directory = is_directory
        self._lists: dict[HeldSet, Mapping[str, tuple[int, str]]] = {}
        self._paces = {each.node: Pace(clock) for each in asked}
        self.came_bytes: dict[str, int] = {}
        self.left: list[PeerFailed] = []

    def copy(self, file: SourceFile, write: Write) -> str | None:
        """Have *file* written from the first node that gives what the ledger vouches for."""
        for held in list(self._asked):
            if held not in self._asked:
                continue  # its node was left over another set
            try:
                size_bytes, sha256 = self._listed(held).get(file.name, (None, ""))
                if size_bytes is None or size_bytes != file.size_bytes:
                    continue
                if write(self._pieces(held, file.name, size_bytes)) != sha256:
                    raise PeerFailed(held.node, f"it sent other bytes as {file.name}")
            except PeerFailed as failed:
                self._leave(failed)
            else:
                self.came_bytes[held.node] = self.came_bytes.get(held.node, 0) + size_bytes
                return sha256
        return None

    def _listed(self, held: HeldSet) -> Mapping[str, tuple[int, str]]:
        if held not in self._lists:
            found = self._peers.listing(held)
            self._lists[held] = checked(found, held, is_directory=self._is_directory)
        return self._lists[held]

    def _pieces(self, held: HeldSet, name: str, size_bytes: int) -> Iterator[bytes]:
        came_bytes = 0
        for piece in self._paces[held.node].timed(self._peers.pieces(held, name), held.node):
            came_bytes += len(piece)
            if came_bytes > size_bytes:
                raise PeerFailed(held.node, f"it sent more than {size_bytes} B as {name}")
            yield piece

    def _leave(self, failed: PeerFailed) -> None:
        self.left.append(failed)
        last = len(self.left) >= MOST_LEFT
        self._asked = [each for each in self._asked if each.node != failed.node and not last]

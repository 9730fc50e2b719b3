"""Who uses which staged data set: the port that the ledger implements.

The fake is `headway.testing.staging.MemoryIndex`.
"""

from typing import Protocol

from headway.model.staged import StagedSet


class StagedIndex(Protocol):
    """Staged data sets of every node, and the runs that use them.

    The cache calls `record`, `acquire` and `remove` for a key only while it
    holds that key's lock on the node, so the index needs no lock of its own
    beyond one transaction a call.
    """

    def record(self, node: str, key: str, uri: str, size_bytes: int, sha256: str) -> None:
        """The set lies on *node* now. Recorded before: updated; its runs stay."""

    def acquire(self, node: str, key: str, run_id: str) -> None:
        """*run_id* uses the recorded set, which becomes the most recently used. Idempotent."""

    def release(self, node: str, run_id: str) -> None:
        """*run_id* uses nothing on *node* any more. Idempotent."""

    def remove(self, node: str, key: str) -> bool:
        """Forget the set unless a run uses it; False if one does. Unknown: True."""

    def list(self, node: str) -> list[StagedSet]:
        """Every set recorded on *node*, least recently used first."""

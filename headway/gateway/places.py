"""Where what a run left is read: in the site's store once it is there, before that on its node."""

from starlette.responses import Response

from headway.errors import OutputMissing
from headway.gateway.node_files import NodeFiles
from headway.gateway.standings import Standing
from headway.gateway.store_files import StoreFiles
from headway.model.run_file import LogPiece, StoredRun
from headway.node.file_answers import FileRequest
from headway.node.storing import store_of
from headway.site import Site


class Places:
    """All places of one site."""

    def __init__(self, site: Site) -> None:
        """Of *site*."""
        self._nodes = NodeFiles(site)
        store = store_of(site.settings)
        self._store = None if store is None else StoreFiles(store)

    async def answer(self, standing: Standing, asked: FileRequest) -> Response:
        """The answer to a question about outputs.

        Raises:
            OutputMissing: None of its attempts has begun.
            NodeSilent: The node that has them does not answer.
            StoreFailed: The store does not.
        """
        stored = self._stored(standing)
        if stored is not None and self._store is not None:
            return await self._store.answer(stored, asked)
        newest = standing.newest_started
        node = None if newest is None else standing.place(newest)
        if node is None:
            raise OutputMissing(standing.run_id, "outputs", "none of its attempts has begun")
        return await self._nodes.answer(node, asked)

    async def log(
        self, standing: Standing, attempt: int, offset: int, *, wait_s: float, whole: bool
    ) -> LogPiece | None:
        """What the attempt's log has from *offset* on, see `FileAnswers.log`; None without any.

        Raises:
            NodeSilent: The node that has it does not answer.
            OutputMissing: It was pruned; only with *whole*.
            StoreFailed: The store does not answer.
        """
        stored = self._stored(standing)
        if stored is not None and self._store is not None:
            # Attempts on other nodes are not in it.
            piece = await self._store.log(stored, attempt, offset)
            if piece is not None:
                return piece
        node = standing.place(attempt)
        if node is None:
            return None
        run_id = standing.run_id
        piece = await self._nodes.log(node, run_id, attempt, offset, wait_s=wait_s, whole=whole)
        if piece is None and whole:
            why = f"on node {node.node.name}, where it ran, it is not there: pruned, perhaps"
            raise OutputMissing(run_id, f"log of attempt {attempt}", why)
        return piece

    def _stored(self, standing: Standing) -> StoredRun | None:
        stored = standing.stored
        return stored if stored is not None and stored.key and not stored.removed_at else None

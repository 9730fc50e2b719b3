"""Where what a run left is read: in the site's store once it is there, before that on its node."""

from starlette.responses import Response

from headway.errors import OutputMissing
from headway.gateway.node_files import NodeFiles
from headway.gateway.standings import Standing
from headway.gateway.store_files import StoreFiles
from headway.model.run_file import LogPiece
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

    async def answer(self, standing: Standing, attempt: int | None, asked: FileRequest) -> Response:
        """The answer to a question about the outputs of *attempt*, or of the last that began.

        Raises:
            OutputMissing: It has not begun.
            NodeSilent: The node that has them does not answer.
            StoreFailed: The store does not.
        """
        number = attempt or standing.newest_started
        stored = None if number is None else standing.stored_with(number)
        if stored is not None and self._store is not None:
            return await self._store.answer(stored, asked)
        node = None if number is None else standing.place(number)
        if node is None:
            which = f"its attempt {attempt}" if attempt else "none of its attempts"
            why = f"{which} has {'not ' if attempt else ''}begun"
            raise OutputMissing(standing.run_id, "outputs", why)
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
        stored = standing.stored_with(attempt)
        if stored is not None and self._store is not None:
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

"""Asks the file servers of the site's other nodes for data sets that their caches have."""

import json
import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from os import fsencode
from urllib.parse import quote

import httpx

from headway.ledger.records import NodeRecord
from headway.model.run_file import signed
from headway.model.staged import HeldSet
from headway.pinning import only
from headway.site import Site
from headway.staging.errors import PeerFailed
from headway.staging.peers import Listing

SETS = "/sets/"
_CONNECT_S = 3.0
_SILENT_S = 5.0
_LIST_S = 60.0
_MOST_LIST_BYTES = 256 << 20


class NodePeers:
    """Port `Peers`. A request is signed with what opens a node's data sets alone."""

    def __init__(self, site: Site) -> None:
        """For the node of *site*."""
        self._site = site
        self._open: dict[str, tuple[NodeRecord, httpx.Client]] = {}

    def held(self, keys: Collection[str]) -> Sequence[HeldSet]:
        """As in the port."""
        return self._site.ledger.staged.held(keys, besides=self._site.settings.node)

    def listing(self, held: HeldSet) -> Listing:
        """As in the port."""
        text, clock = bytearray(), self._site.clock
        end_s = clock.monotonic_s() + _LIST_S
        with self._asked(held, f"{SETS}{held.key}") as answer:
            for piece in answer.iter_raw():
                text += piece
                if len(text) > _MOST_LIST_BYTES or clock.monotonic_s() > end_s:
                    raise PeerFailed(held.node, "its list of files has no end")
        try:
            return [
                (str(name), int(size_bytes), str(sha256))
                for name, size_bytes, sha256 in json.loads(text)["files"]
            ]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise PeerFailed(held.node, "its list of files is none") from error

    def pieces(self, held: HeldSet, name: str) -> Iterator[bytes]:
        """As in the port."""
        with self._asked(held, f"{SETS}{held.key}/{quote(fsencode(name))}") as answer:
            yield from answer.iter_raw()

    def close(self) -> None:
        """As in the port."""
        for _, client in self._open.values():
            client.close()
        self._open.clear()

    @contextmanager
    def _asked(self, held: HeldSet, target: str) -> Iterator[httpx.Response]:
        try:
            node, client = self._client(held.node)
            now_s = self._site.clock.now().timestamp()
            headers = signed(node.sets_key, held.node, "GET", target, now_s)
            # The signature is of the path to the letter, so nothing may write it another way.
            url = httpx.URL(node.files_url).copy_with(raw_path=target.encode())
            with client.stream(
                "GET", url, headers={**headers, "Accept-Encoding": "identity"}
            ) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise PeerFailed(held.node, f"it answers with HTTP {answer.status_code}")
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ssl.SSLError) as error:
            raise PeerFailed(held.node, str(error) or type(error).__name__) from error

    def _client(self, name: str) -> tuple[NodeRecord, httpx.Client]:
        if name not in self._open:
            node = self._site.ledger.nodes.get(name)
            if node is None or not node.files_url:
                raise PeerFailed(name, "its worker serves no files")
            client = httpx.Client(
                verify=only(node.files_certificate) if node.files_certificate else True,
                timeout=httpx.Timeout(_SILENT_S, connect=_CONNECT_S),
                trust_env=False,
            )
            self._open[name] = node, client
        return self._open[name]

"""Bodies of requests: small enough, and JSON as its standard has it."""

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.errors import InvalidInput
from headway.gateway.refusals import refusal
from headway.model.strict_json import read_strict
from headway.model.yaml_document import MAX_TEXT_BYTES
from headway.node.shares import LOOP, WHOSE, in_thread
from headway.units import KIB, format_size

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_OPEN_BYTES = 4 * KIB
_BYTE_S = 150e-9
"""What a byte of JSON takes at most to be read: measured, a list of numbers."""


class StrictBodies:
    """Refuses bodies that are too large or no strict JSON, before anybody else reads them."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        forms: Collection[str] = (),
        raw: Collection[str] = (),
        opened: Collection[str] = (),
    ) -> None:
        """In front of *app*.

        Args:
            app: What is asked then.
            forms: Paths to which a browser sends what is no JSON.
            raw: Paths whose routes read bytes themselves, and bound them.
            opened: Paths that are for everybody, who may send little.
        """
        self._app = app
        self._forms = frozenset(forms)
        self._raw = frozenset(raw)
        self._opened = frozenset(opened)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a bad body; pass on everything else."""
        if scope["type"] != "http" or scope["path"] in self._raw:
            await self._app(scope, receive, send)
            return
        most_bytes = _OPEN_BYTES if scope["path"] in self._opened else MAX_TEXT_BYTES
        body = await _read(receive, most_bytes)
        if body is None:
            return
        try:
            if len(body) > most_bytes:
                most = format_size(most_bytes)
                raise InvalidInput("body", f"more than {most}", f"give at most {most}")
            may_be_empty = scope["method"] not in _WITH_BODY or scope["path"] in self._forms
            if not may_be_empty or (body and scope["path"] not in self._forms):
                await LOOP.pay(WHOSE.get(), len(body) * _BYTE_S)
                await in_thread(read_strict, body)
        except InvalidInput as error:
            await refusal(error)(scope, receive, send)
            return
        whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def again() -> Message:
            nonlocal whole
            message, whole = whole, None
            return message if message is not None else await receive()

        await self._app(scope, again, send)


async def _read(receive: Receive, most_bytes: int) -> bytes | None:
    """The body, or enough of it to be refused; None where the client has gone."""
    body, more = bytearray(), True
    while more and len(body) <= most_bytes:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)

"""What of a request and its answer passes between a browser and the program of a session.

The program and its pages are strangers to the gateway. They get nothing by which the gateway
knows the user, and change nothing that the browser keeps of the gateway, whose host they share.
"""

import re
from collections.abc import Collection, Iterable

Headers = list[tuple[bytes, bytes]]

OWN_PREFIX = "headway"
"""How the names of the gateway's own cookies begin."""
_OURS_IN = re.compile(rf'[\s,"]{OWN_PREFIX}[^=\s]*\s*=', re.IGNORECASE)
"""One of them behind another cookie: Python takes a comma or a space for its end, too."""
_OF_ONE_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
_NOT_THE_PROGRAMS = _OF_ONE_HOP | {b"authorization", b"cookie", b"expect", b"forwarded"}
_OF_EVERY_REQUEST = frozenset({b"host", b"content-length"})
"""Whatever a header Connection says of them: a body without its length is another request."""
_OF_THE_HANDSHAKE = b"sec-websocket-"
_NOT_THE_BROWSERS = _OF_ONE_HOP | {
    b"alt-svc", b"clear-site-data", b"nel", b"origin-agent-cluster", b"public-key-pins",
    b"report-to", b"service-worker-allowed", b"strict-transport-security", b"www-authenticate",
}  # fmt: skip
"""Beside those of one hop what changes more than this page: they speak for all of the host, whose
other port the gateway's own pages are on, or for paths of other sessions."""
_COOKIE_PARTS = frozenset({"expires", "max-age", "samesite", "secure", "httponly"})


def for_program(headers: Iterable[tuple[bytes, bytes]], secret: str, scheme: str) -> Headers:
    """The headers of a request as the program gets them.

    Args:
        headers: As the browser sent them, with names in lower case.
        secret: What shows the program that it is the gateway that asks.
        scheme: By which the browser asks the gateway.
    """
    known = list(headers)
    dropped = _NOT_THE_PROGRAMS | (_named_in_connection(known) - _OF_EVERY_REQUEST)
    kept = [
        (name, value)
        for name, value in known
        if name not in dropped and not name.startswith((b"x-forwarded-", _OF_THE_HANDSHAKE))
    ]
    cookies = b"; ".join(value for name, value in known if name == b"cookie").decode("latin-1")
    pairs = map(str.strip, cookies.split(";"))
    own = "; ".join(each for each in pairs if each and not (_ours(each) or _OURS_IN.search(each)))
    if own:
        kept.append((b"cookie", own.encode("latin-1")))
    host = next((value for name, value in known if name == b"host"), b"")
    return [
        *kept,
        (b"authorization", f"Bearer {secret}".encode()),
        (b"x-forwarded-proto", scheme.encode()),
        (b"x-forwarded-host", host),
        (b"connection", b"close"),
    ]


def for_browser(headers: Iterable[tuple[bytes, bytes]], path: str) -> Headers:
    """The headers of an answer as the browser gets them; cookies hold below *path* alone."""
    known = [(name.lower(), value) for name, value in headers]
    dropped = _NOT_THE_BROWSERS | _named_in_connection(known)
    kept: Headers = []
    for name, value in known:
        if name == b"set-cookie":
            cookie = _bound(value.decode("latin-1"), path)
            kept += [(name, cookie.encode("latin-1"))] if cookie else []
        elif name not in dropped:
            kept.append((name, value))
    return kept


def _bound(cookie: str, path: str) -> str:
    """*cookie* for *path* of this very host; empty where it would be the gateway's."""
    pair, *parts = (part.strip() for part in cookie.split(";"))
    if "=" not in pair or _ours(pair) or not pair.partition("=")[0].strip():
        return ""  # a browser sends a cookie without a name back as if its value were one
    if pair.lower().startswith(("__host-", "__secure-", "__http-", "__host-http-")):
        return ""
    kept = [part for part in parts if part.partition("=")[0].strip().lower() in _COOKIE_PARTS]
    return "; ".join((pair, *kept, f"Path={path}"))


def _ours(pair: str) -> bool:
    return pair.strip(' "=\t').lower().startswith(OWN_PREFIX)


def _named_in_connection(headers: Collection[tuple[bytes, bytes]]) -> set[bytes]:
    """Headers that the header Connection declares to be of one hop."""
    values = b",".join(value for name, value in headers if name == b"connection")
    return {each.strip().lower() for each in values.split(b",") if each.strip()}

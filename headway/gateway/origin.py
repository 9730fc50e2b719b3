"""Which web pages may ask: only the gateway's own, whatever cookie the browser sends along."""

from collections.abc import Mapping

_READS = frozenset({"GET", "HEAD"})
_OWN = frozenset({"same-origin", "none"})


def foreign_page(method: str, headers: Mapping[str, str], *, by_cookie: bool) -> str:
    """Why a request comes from a page of another origin; empty when it does not.

    Args:
        method: Of the request, such as ``POST``.
        headers: Of the request, by lower-case names.
        by_cookie: Whether a cookie says who asks. A browser sends it whatever page asked, so a
            request that changes something then has to name its page.
    """
    reads = method in _READS
    fetched = headers.get("sec-fetch-site", "none")
    if fetched not in _OWN and not (reads and headers.get("sec-fetch-mode") == "navigate"):
        return f"a page of another origin ({fetched}) asks"
    origin = headers.get("origin")
    if origin is None:
        return "a browser that does not say which page asks" if by_cookie and not reads else ""
    host = headers.get("host", "")
    if origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower()}:
        return ""
    return f"the page {origin} asks"

"""What the gateway alone raises."""

from headway.errors import HeadwayError


class TokenRefused(HeadwayError):
    """The gateway was shown no token, or one that lets nobody in."""

    http_status = 401
    line = (
        "no valid token: none was shown, or it is unknown, has expired or was revoked. Show one as "
        "`Authorization: Bearer …`; an operator makes one with `headway user add`"
    )


class NotAllowed(HeadwayError):
    """Who asks is known, or need not be, and may not do this."""

    http_status = 403
    why: str
    line = "not allowed: {why:plain400}"


class TooManyRequests(HeadwayError):
    """The same token, or the same address without one, asks too often."""

    http_status = 429
    wait_s: float
    line = "too many requests: nothing was done; try again in {wait_s:duration}"


class NodeSilent(HeadwayError):
    """Logs and outputs lie on *node*, which does not hand them out now."""

    http_status = 503
    node: str
    cause: str
    line = (
        "node {node} does not hand out its files ({cause}). What runs have left there stays there, "
        "and cannot be read until its worker is back: see `headway nodes`, and state/worker.log in "
        "its HEADWAY_HOME"
    )


class OutputMissing(HeadwayError):
    """Of a run there is no *what*, or none any more."""

    http_status = 404
    run_id: str
    what: str
    why: str
    line = "run {run_id} has no {what}: {why}"

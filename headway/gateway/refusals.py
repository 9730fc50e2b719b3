"""How an error becomes an answer: one line, and the status that belongs to it."""

import math

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from headway.errors import (
    HeadwayError,
    InvalidInput,
    LedgerUnreachable,
    NodeSilent,
    NotAllowed,
    OutputMissing,
    RunUnknown,
    SiteUnreachable,
    TokenRefused,
    TooManyRequests,
)

_STATUSES: tuple[tuple[type[HeadwayError], int], ...] = (
    (TokenRefused, 401),
    (NotAllowed, 403),
    (RunUnknown, 404),
    (OutputMissing, 404),
    (InvalidInput, 422),
    (TooManyRequests, 429),
    (LedgerUnreachable, 503),
    (SiteUnreachable, 503),
    (NodeSilent, 503),
)


def refusal(error: HeadwayError) -> JSONResponse:
    """The answer for *error*."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    headers = {}
    if isinstance(error, TokenRefused):
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(math.ceil(error.wait_s))
    return JSONResponse({"detail": str(error)}, status_code=status, headers=headers)


def refused(_request: Request, error: Exception) -> JSONResponse:
    """The answer where a route raised one of headway's own errors."""
    known = error if isinstance(error, HeadwayError) else HeadwayError("an error of the gateway")
    return refusal(known)


def invalid(_request: Request, error: Exception) -> JSONResponse:
    """One line for what FastAPI's own checks refuse."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    field = ".".join(str(part) for part in first.get("loc", ("request",)))
    text = str(first.get("msg", error))
    return refusal(InvalidInput(field, first.get("input"), text[:1].lower() + text[1:]))

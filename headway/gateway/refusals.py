"""How an error becomes an answer: one line, and the status that belongs to it."""

import math
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from headway.errors import EndUntold, HeadwayError, InvalidInput, RunUnknown, shown
from headway.gateway.errors import TokenRefused, TooManyRequests


def refusal(error: HeadwayError) -> JSONResponse:
    """The answer for *error*."""
    headers = {}
    if isinstance(error, TokenRefused):
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(math.ceil(error.wait_s))
    content = {"detail": str(error), **_values(error)}
    return JSONResponse(content, status_code=error.http_status, headers=headers)


def _values(error: HeadwayError) -> dict[str, Any]:
    """What a client needs to make the same error of the answer."""
    match error:
        case InvalidInput():
            field, value = _plain(error.field), _plain(error.value)
            return {"field": field, "value": value, "allowed": error.allowed + error.also}
        case RunUnknown():
            return {"run": _plain(error.run)}
        case EndUntold():
            return {"untold": _plain(error.run)}
        case _:
            return {}


def _plain(value: object) -> object:
    """*value* as JSON can have it, which a message shows as it would show *value*."""
    match value:
        case None | bool():
            return value
        case int() | float() if -_LARGEST < value < _LARGEST:  # neither infinite nor "nan"
            return value
        case str():
            return shown(value)[1:-1]
        case _:
            return shown(value)


_LARGEST = 2**63


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

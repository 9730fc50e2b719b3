"""JSON as its standard has it: what Python's own functions let through besides is refused."""

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

from headway.errors import InvalidInput
from headway.model.yaml_document import MAX_DEPTH

_LARGEST = 2**63
_MOST_DIGITS = 20
"""Python would not even read a number of more than 4300."""


def read_strict(text: bytes) -> Any:
    """The value in *text*, the body of a request: JSON in UTF-8.

    Raises:
        InvalidInput: It is not JSON, or has NaN, an infinity, a number beyond 64 bits, half of
            a surrogate pair, a key twice in one object, or too many levels.
    """
    try:
        value = json.loads(
            text.decode(),
            parse_float=_number,
            parse_int=_whole,
            parse_constant=_constant,
            object_pairs_hook=_members,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        _refuse("more", f"nest at most {MAX_DEPTH} levels deep")
    except UnicodeDecodeError as error:
        _refuse(text[error.start : error.start + 1], "write UTF-8")
    except UnicodeEncodeError as error:
        _refuse(error.object[error.start], "give text; it has half of a surrogate pair")
    except json.JSONDecodeError as error:
        allowed = f"write JSON ({error.msg[:1].lower()}{error.msg[1:]}: line {error.lineno})"
        _refuse(error.doc[error.pos : error.pos + 20], allowed)
    return value


def write_strict(value: object) -> bytes:
    """*value* as JSON that `read_strict` reads.

    Raises:
        InvalidInput: As there: Prefect's server would store it, and then fail to send it.
    """
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        _refuse(error.object[error.start], "give text; it has half of a surrogate pair")
    read_strict(text)
    return text


def _refuse(value: object, allowed: str) -> NoReturn:
    raise InvalidInput("body", value, allowed) from None


def _number(given: str) -> float:
    value = float(given)
    return value if math.isfinite(value) else _refuse(given, "give finite numbers")


def _whole(given: str) -> int:
    if len(given) > _MOST_DIGITS or not -_LARGEST <= int(given) < _LARGEST:
        _refuse(given, "give whole numbers between -2^63 and 2^63 - 1")
    return int(given)


def _constant(given: str) -> NoReturn:
    _refuse(given, "give finite numbers; JSON has no NaN and no infinities")


def _members(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            _refuse(key, "give each key once")
        found[key] = value
    return found

"""JSON as its standard has it: what Python's own reader lets through besides is refused."""

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

from headway.errors import InvalidInput
from headway.model.yaml_document import MAX_DEPTH

_LARGEST = 2**63
_MOST_DIGITS = 20


def read_strict(text: bytes, what: str) -> Any:
    """The value in *text*.

    Args:
        text: JSON in UTF-8.
        what: Its name in messages.

    Raises:
        InvalidInput: It is not JSON, or has NaN, an infinity, a number beyond 64 bits, half of
            a surrogate pair, a key twice in one object, or too many levels.
    """
    try:
        value = json.loads(
            text.decode("utf-8"),
            parse_float=_number,
            parse_int=_whole,
            parse_constant=_constant,
            object_pairs_hook=_members,
        )
        _refuse_surrogates(value)
    except _Wrong as wrong:
        raise InvalidInput(what, wrong.value, wrong.allowed) from None
    except RecursionError:
        raise InvalidInput(what, "more", f"nest at most {MAX_DEPTH} levels deep") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(what, text[error.start : error.start + 1], "write UTF-8") from None
    except json.JSONDecodeError as error:
        near = text.decode()[error.pos : error.pos + 20]
        allowed = f"write JSON ({error.msg[:1].lower()}{error.msg[1:]}: line {error.lineno})"
        raise InvalidInput(what, near, allowed) from None
    return value


class _Wrong(Exception):
    def __init__(self, value: str, allowed: str) -> None:
        self.value = value
        self.allowed = allowed
        super().__init__(value, allowed)


def _number(given: str) -> float:
    value = float(given)
    if not math.isfinite(value):
        raise _Wrong(given, "give finite numbers")
    return value


def _whole(given: str) -> int:
    # Python would not even read one of more than 4300 digits.
    if len(given) > _MOST_DIGITS or not -_LARGEST <= int(given) < _LARGEST:
        raise _Wrong(given, "give whole numbers between -2^63 and 2^63 - 1")
    return int(given)


def _constant(given: str) -> NoReturn:
    raise _Wrong(given, "give finite numbers; JSON has no NaN and no infinities")


def _members(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Wrong(key, "give each key once")
        found[key] = value
    return found


def _refuse_surrogates(value: object) -> None:
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            waiting += [*found, *found.values()]
        elif isinstance(found, list):
            waiting += found
        elif isinstance(found, str):
            try:
                found.encode()
            except UnicodeEncodeError:
                raise _Wrong(found, "give text; it has half of a surrogate pair") from None

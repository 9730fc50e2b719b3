"""How values become the plain data of a JSON document."""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any


def fields(value: object, *names: str) -> dict[str, Any]:
    """The attributes *names* of *value*, as JSON has them."""
    return {name: _plain(getattr(value, name)) for name in names}


def shaped(shape: type, value: object, **given: object) -> dict[str, Any]:
    """A document with the keys of *shape*, a TypedDict: as *given*, else attributes of *value*."""
    return fields(value, *(key for key in shape.__annotations__ if key not in given)) | given


def iso_time(moment: datetime | None) -> str | None:
    """*moment* in ISO 8601."""
    return None if moment is None else moment.isoformat()


def _plain(value: object) -> object:
    match value:
        case datetime():
            return iso_time(value)
        case Enum():
            return value.value
        case Mapping():
            return dict(value)
        case _:
            return value

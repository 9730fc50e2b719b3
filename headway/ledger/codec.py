"""How frozen values become the JSON of a column, and the fields of a value come from a row."""

import logging
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlmodel import SQLModel

log = logging.getLogger(__name__)

T = TypeVar("T")


def to_json(value: object) -> Any:
    """A frozen value as plain data."""
    kind: Any = type(value)
    return adapter(kind).dump_python(value, mode="json")


def from_json(kind: type[T], document: Any) -> T:
    """The value of *kind* that `to_json` wrote."""
    value: T = adapter(kind).validate_python(document)  # type: ignore[arg-type]  # is hashable
    return value


def kept(kind: type[T], document: Any) -> T | None:
    """The value of *kind* that was kept; one that cannot be read is as none, and is logged."""
    try:
        return None if document is None else from_json(kind, document)
    except ValidationError:
        log.warning("a %s in the ledger cannot be read: %r", kind.__name__, document)
        return None


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's reader and writer of *kind*, made once."""
    return TypeAdapter(kind)


def record(kind: type[T], row: SQLModel, **others: Any) -> T:
    """The value of *kind*, a dataclass: *others*, and the row's column for every other field."""
    columns = {name: getattr(row, name) for name in _names(kind) if name not in others}  # type: ignore[arg-type]  # is hashable
    return kind(**columns, **others)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))

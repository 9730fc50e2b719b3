"""The kinds of values a job is made of: each reads what a person wrote, or says what to write.

A kind is put into `Annotated`. It takes the place of pydantic's own checks, so
that every refusal is one sentence of ours and a union never shows its members.
"""

import difflib
import enum
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from headway.model.document import Path
from headway.model.number_range import NumberRange
from headway.units import GIB, MIB, TIB, format_duration, format_size, parse_duration, parse_size


class Refused(ValueError):
    """A value is not allowed.

    Attributes:
        allowed: What to give instead, as the end of a sentence ("give …").
        path: Where the value lies below the one that was read.
        hidden: It may be a secret: it must not be shown.
    """

    def __init__(self, allowed: str, *path: str | int, hidden: bool = False) -> None:
        self.allowed = allowed
        self.path: Path = path
        self.hidden = hidden
        super().__init__(allowed, path)

    def __str__(self) -> str:
        """What pydantic shows to those who build a job in Python."""
        return f"{'.'.join(map(str, self.path))}: {self.allowed}" if self.path else self.allowed


@dataclass(frozen=True, eq=False)
class FieldKind:
    """How one kind of value is read, written, and described to the run form."""

    read: Callable[[object], Any]
    """Raises `Refused`."""
    schema: Mapping[str, Any]
    """JSON schema of what may be written."""
    write: Callable[[Any], Any] | None = None
    """The value as `read` takes it again; None where it is plain data already."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        """Let `read` do all the validation."""
        write = self.write
        written = write and core_schema.plain_serializer_function_ser_schema(write)
        return core_schema.no_info_plain_validator_function(self.read, serialization=written)

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> JsonSchemaValue:
        """Describe what may be written."""
        return dict(self.schema)


@contextmanager
def below(*path: str | int, hidden: bool = False) -> Iterator[None]:
    """Say of a value that is refused in the block that it lies below *path*."""
    try:
        yield
    except Refused as refused:
        hidden = hidden or refused.hidden
        raise Refused(refused.allowed, *path, *refused.path, hidden=hidden) from None


# --- numbers ---


def whole(low: int, high: int) -> FieldKind:
    """An integer from *low* to *high*; neither ``true`` nor ``3.0`` is one."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Refused(f"give a whole number between {_count(low)} and {_count(high)}")
        return value

    return FieldKind(read, {"type": "integer", "minimum": low, "maximum": high})


def whole_or_range(low: int, high: int, *, least: int = 1) -> FieldKind:
    """An integer from *low* to *high*, or a range of such, ``2-8``, that begins at *least*."""
    allowed = f"give a whole number between {low} and {high}, or a range of them such as 2-8"
    one = whole(low, high)

    def read(value: object) -> int | NumberRange:
        if not isinstance(value, str):
            try:
                number: int = one.read(value)
            except Refused:
                raise Refused(allowed) from None
            return number
        try:
            found = NumberRange.read(value) if "-" in value else None
        except ValueError:
            found = None
        if found is None or found.last > high or found.first < low:
            raise Refused(allowed)
        if found.first < least:
            raise Refused(
                f"let the range begin at {least} or more, such as {least}-{max(found.last, 2)}"
            )
        return found.first if found.first == found.last else found

    schema = {
        "anyOf": [
            {"type": "integer", "minimum": low, "maximum": high, "title": "Number"},
            {"type": "string", "pattern": "^[0-9]+-[0-9]+$", "title": "Range"},
        ]
    }
    return FieldKind(read, schema, lambda value: value if isinstance(value, int) else str(value))


def number(low: float, high: float) -> FieldKind:
    """A finite number from *low* to *high*."""

    def read(value: object) -> float:
        wrong_type = isinstance(value, bool) or not isinstance(value, int | float)
        # The comparison is also false for NaN.
        if wrong_type or not low <= value <= high:  # type: ignore[operator]
            raise Refused(f"give a number between {low:g} and {high:g}")
        return float(value)  # type: ignore[arg-type]

    return FieldKind(read, {"type": "number", "minimum": low, "maximum": high})


def _count(value: int) -> str:
    return f"{value:,}" if value >= 10**6 else str(value)


def yes_no() -> FieldKind:
    """A boolean; 1 and "yes" are none."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise Refused("give true or false")
        return value

    return FieldKind(read, {"type": "boolean"})


# --- sizes and durations ---

_SIZE_PATTERN = r"^[0-9.]+ ?[KMGTkmgt]?([iI]?[bB])?$"
_DURATION_PATTERN = r"^([0-9.]+ ?(ms|s|sec|min|m|h|d|w) ?)+$"


def size(low: int, high: int, *, word: str = "") -> FieldKind:
    """Bytes, written with a unit such as ``2GiB``, or the one *word*.

    An int is bytes, for those who build a job in Python. A bare number below
    1 MiB is refused all the same: whoever writes 8 means 8 GiB, not 8 bytes.
    """
    allowed = (
        f"give a size with its unit between {format_size(low)} and {format_size(high)}, "
        f"such as 2GiB{f', or {word}' if word else ''}"
    )

    def read(value: object) -> int | str:
        if word and value == word:
            return word
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Refused(allowed)
        try:
            size_bytes = value if isinstance(value, int) else parse_size(value)
        except ValueError:
            raise Refused(allowed) from None
        bare = isinstance(value, int) or value.strip().isdecimal()
        if not low <= size_bytes <= high or (bare and 0 < size_bytes < MIB):
            raise Refused(allowed)
        return size_bytes

    pattern = _SIZE_PATTERN if not word else f"^{word}$|{_SIZE_PATTERN}"
    return FieldKind(read, {"type": "string", "pattern": pattern}, write_size)


def write_size(size_bytes: int | str) -> str:
    """*size_bytes* as it may be written in a job again, without loss; a word stays itself."""
    if isinstance(size_bytes, str):
        return size_bytes
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return f"{size_bytes}B"


def duration(low_s: float, high_s: float, *, example: str = "4h") -> FieldKind:
    """Seconds, to the millisecond, written with a unit such as ``4h``; never a bare number."""
    allowed = (
        f"give a duration with its unit between {format_duration(low_s)} and "
        f"{format_duration(high_s)}, such as {example}"
    )

    def read(value: object) -> float:
        try:
            seconds = parse_duration(value) if isinstance(value, str) else 0.0
        except ValueError:
            raise Refused(allowed) from None
        if not low_s <= seconds <= high_s:
            raise Refused(allowed)
        return round(seconds, 3)

    return FieldKind(read, {"type": "string", "pattern": _DURATION_PATTERN}, write_duration)


def write_duration(duration_s: float) -> str:
    """*duration_s* as it may be written in a job again, to the millisecond."""
    return f"{duration_s:.3f}".rstrip("0").rstrip(".") + "s"


# --- text ---


def checked_text(value: object, *, limit: int, keep: str = "") -> str:
    """*value* if it is text of at most *limit* characters that shows what it is.

    Raises:
        Refused: It is no text, too long, or has characters that are invisible,
            reorder what is around them, or cannot be encoded; *keep* are allowed.
    """
    if not isinstance(value, str):
        raise Refused("give text; put it in quotes")
    if len(value) > limit:
        raise Refused(f"give at most {_count(limit)} characters; it has {_count(len(value))}")
    for character in value:
        if not character.isprintable() and character not in keep:
            raise Refused(
                f"give text without control or invisible characters; it has U+{ord(character):04X}"
            )
    return value


def pattern(regex: str, allowed: str, *, limit: int) -> FieldKind:
    """Text of at most *limit* characters that *regex* matches from end to end."""
    compiled = re.compile(regex)

    def read(value: object) -> str:
        text = value if isinstance(value, str) else None
        if text is None or len(text) > limit or compiled.fullmatch(text) is None:
            raise Refused(allowed)
        return text

    return FieldKind(read, {"type": "string", "pattern": f"^{regex}$", "maxLength": limit})


def choice(*values: str, kind: Callable[[str], Any] = str) -> FieldKind:
    """One of *values*; made a *kind*, such as an enum."""

    def read(value: object) -> Any:
        if isinstance(value, str) and value in values:
            return kind(value)
        near = difflib.get_close_matches(value, values, 1) if isinstance(value, str) else []
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Refused(f"give one of {', '.join(values)}{hint}")

    return FieldKind(read, {"type": "string", "enum": list(values)}, _plain)


def _plain(value: str) -> str:
    return value.value if isinstance(value, enum.Enum) else value


# --- several ---


def each(item: FieldKind, *, example: str, low: int, high: int) -> FieldKind:
    """A list of *low* to *high* items of one kind."""
    amount = f"{low} to {high} items" if low else f"at most {high} items"

    def read(value: object) -> list[Any]:
        if not isinstance(value, list | tuple) or not low <= len(value) <= high:
            raise Refused(f"give a list of {amount}, such as {example}")
        items = []
        for position, entry in enumerate(value):
            with below(position):
                items.append(item.read(entry))
        return items

    schema = {"type": "array", "items": dict(item.schema), "maxItems": high}
    return FieldKind(read, schema | ({"minItems": low} if low else {}))

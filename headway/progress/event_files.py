"""Binary files in which programs keep their metrics: TensorBoard's events, and W&B's offline runs.

Both are records of Protocol Buffers, of which a few fields are read here.

TensorBoard: `TFRecord <https://www.tensorflow.org/tutorials/load_data/tfrecord>`_ frames (length as
``uint64``, its checksum, data, its checksum) around ``tensorflow/core/util/event.proto`` and
``tensorflow/core/framework/summary.proto``. W&B: a header of 7 bytes, then LevelDB's `log format
<https://github.com/google/leveldb/blob/main/doc/log_format.md>`_ around ``wandb_internal.proto``.
Checksums are not compared: what cannot be read ends the reading, and a false number is no worse
than one that the program has written itself.
"""

import json
import struct
from collections.abc import Iterator, Sequence

from headway.progress.records import PIECE_BYTES, Record
from headway.progress.report import finite_number
from headway.progress.seen import count, finite

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2
"""TensorFlow's types of numbers."""
_HEADER, _FOOTER = 12, 4
_MOST_BYTES = 1 << 40
_MAGIC = b":W&B"
_BLOCK, _HEAD, _FILE_HEAD = 32_768, 7, 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class EventReader:
    """An event file of TensorBoard's: ``events.out.tfevents.…``."""

    def __init__(self, prefix: str = "") -> None:
        """With *prefix* before its names: ``validation/``."""
        self._prefix = prefix

    def read(self, data: bytes) -> tuple[Sequence[Record], int]:
        """As `RecordReader`. What is beyond a piece is passed over: images, or a graph."""
        found: list[Record] = []
        at = 0
        while at + _HEADER <= len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            if not 0 < length < _MOST_BYTES:
                raise ValueError("no record of an event file")
            end = at + _HEADER + length + _FOOTER
            if end > len(data) and length < PIECE_BYTES - _HEADER - _FOOTER:
                break  # the rest of it comes
            if end <= len(data):
                found += self._event(data[at + _HEADER : end - _FOOTER])
            at = end
        return found, at

    def _event(self, data: bytes) -> Iterator[Record]:
        wall_s, step, summary = None, 0, b""
        for number, value in fields_of(data):
            if number == 1 and isinstance(value, bytes) and len(value) == 8:
                (wall_s,) = struct.unpack("<d", value)
            elif number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                summary = value
        values = (v for n, v in fields_of(summary) if n == 1 and isinstance(v, bytes))
        scalars = ((self._prefix + tag, number) for tag, number in map(_scalar, values))
        if metrics := finite(scalars):
            yield Record(metrics, count(step), wall_s=finite_number(wall_s))


def _scalar(value: bytes) -> tuple[str, float | None]:
    """Tag and number of a ``Summary.Value``; None where it is no scalar."""
    said = dict(fields_of(value))
    tag, simple, tensor = said.get(1), said.get(2), said.get(8)
    name = tag.decode(errors="replace") if isinstance(tag, bytes) else ""
    if isinstance(simple, bytes):
        return name, _float(simple)
    if not isinstance(tensor, bytes):
        return name, None
    held = dict(fields_of(tensor))  # dtype, tensor_content, float_val, double_val
    content = held.get(4) or (held.get(5) if held.get(1) == _FLOAT else held.get(6))
    known = held.get(1) in (_FLOAT, _DOUBLE) and isinstance(content, bytes)
    return name, _float(content) if known and isinstance(content, bytes) else None


def _float(data: bytes) -> float | None:
    form = {4: "<f", 8: "<d"}.get(len(data))
    return None if form is None else float(struct.unpack(form, data)[0])


class WandbReader:
    """What W&B writes of a run without a connection: ``wandb/offline-run-…/run-….wandb``."""

    def __init__(self) -> None:
        self._offset = 0
        self._part = b""

    def read(self, data: bytes) -> tuple[Sequence[Record], int]:
        """As `RecordReader`."""
        if self._offset == 0 and not data.startswith(_MAGIC):
            raise ValueError("no file of W&B")
        found: list[Record] = []
        at = 0 if self._offset else _FILE_HEAD
        while True:
            left = _BLOCK - (self._offset + at) % _BLOCK
            if left < _HEAD:
                at += left  # the end of a block is left empty
            end = at + _HEAD
            if end <= len(data):
                _, length, kind = struct.unpack_from("<IHB", data, at)
                end += length
            if end > len(data):
                self._offset += at
                return found, at
            if kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
                raise ValueError("no record of a log")
            self._part = b"" if kind in (_FULL, _FIRST) else self._part[:PIECE_BYTES]
            self._part += data[at + _HEAD : end]
            if kind in (_FULL, _LAST):
                found += _history(self._part)
            at = end


def _history(data: bytes) -> Iterator[Record]:
    """What a record of W&B's says of a step, where it is one."""
    for number, value in fields_of(data[:PIECE_BYTES]):
        if number == 2 and isinstance(value, bytes):
            said = dict(_items(value))
            step, wall_s = said.pop("_step", None), finite_number(said.pop("_timestamp", None))
            shown = ((name, each) for name, each in said.items() if not name.startswith("_"))
            yield Record(finite(shown), count(step), wall_s=wall_s)


def _items(history: bytes) -> Iterator[tuple[str, object]]:
    for number, item in fields_of(history):
        if number != 1 or not isinstance(item, bytes):
            continue
        parts, value = [], b""
        for key, held in fields_of(item):
            if key in (1, 2) and isinstance(held, bytes):  # its name, or the parts of it
                parts.append(held.decode(errors="replace"))
            elif key == 16 and isinstance(held, bytes):
                value = held
        try:
            number_of = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(number_of, int | float) and not isinstance(number_of, bool):
            yield ".".join(filter(None, parts)), number_of


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of the fields of a message. Raises `ValueError` where it is none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(data, at)
        else:
            size = {_EIGHT: 8, _FOUR: 4}.get(kind)
            if kind == _BYTES:
                size, at = _varint(data, at)
            if size is None or at + size > len(data):
                raise ValueError("no message")
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for position in range(at, min(at + 10, len(data))):
        value |= (data[position] & 0x7F) << 7 * (position - at)
        if data[position] < 0x80:
            return value, position + 1
    raise ValueError("a number without an end")

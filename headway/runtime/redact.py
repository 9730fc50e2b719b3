"""Redacts secrets in logs: each byte of one becomes a star, so that offsets stay what they are.

Covered are the value itself, each line of one that has several, and its forms in URLs, JSON and
base64, also where base64 has something before it. A program that turns a secret into anything
else (another encoding, one character a line) is not stopped by this.
"""

import base64
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, quote_plus

from headway.runtime.logfile import first_data
from headway.trees import opened

LEAST_CHARACTERS = 4
"""A shorter value would hide half of a log, and may be guessed from what is left."""
_LEAST_ENCODED = 8
MOST_CHARACTERS = 1 << 16
_CHUNK_BYTES = 1 << 20


class Redactor:
    """Redacts some secrets in one stream that comes in pieces.

    Args:
        values: The secrets. Without any, everything passes as it is.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        self._forms = _forms_of(values)
        self._held = b""
        self._clean = b""

    @property
    def longest(self) -> int:
        """Bytes of the longest form of a secret; 0 without any."""
        return max(map(len, self._forms), default=0)

    def feed(self, data: bytes) -> bytes:
        """What may be passed on; the beginning of what may be a secret is held back."""
        return self._take(data, whole=False) if self._forms else data

    def rest(self) -> bytes:
        """What was held back, when nothing more comes for now."""
        return self._take(b"", whole=True)

    def _take(self, data: bytes, *, whole: bool) -> bytes:
        text, clean = self._held + data, bytearray(self._clean + data)
        for start, end in _found(self._forms, text):
            clean[start:end] = b"*" * (end - start)
        until = len(text) if whole else len(text) - _may_go_on(self._forms, text)
        self._held, self._clean = text[until:], bytes(clean[until:])
        return bytes(clean[:until])


class FileRedactor:
    """Redacts secrets in a log file, in place, while its program goes on appending.

    Args:
        path: The file.
        values: The secrets.
    """

    def __init__(self, path: Path, values: Iterable[bytes]) -> None:
        self._path = path
        self._forms = _forms_of(values)
        self._done = 0

    def redact(self) -> None:
        """Redact what has come since the last call, and until this one.

        A file that is not there is fine.

        Raises:
            OSError: The file cannot be written.
        """
        if not self._forms:
            return
        fd = opened(self._path, os.O_RDWR)
        if fd is None:
            return
        try:
            end = os.fstat(fd).st_size  # one that grows faster than it is read has no end
            while self._redact_some(fd) and self._done < end:
                pass
        finally:
            os.close(fd)

    def _redact_some(self, fd: int) -> bool:
        """Whether there may be more to do."""
        size = os.fstat(fd).st_size
        if self._done >= size:
            return False
        # The oldest part may have been given up: it reads as zeros, for very long.
        self._done = first_data(fd, self._done, size)
        text = os.pread(fd, _CHUNK_BYTES, self._done)
        for start, end in _found(self._forms, text):
            os.pwrite(fd, b"*" * (end - start), self._done + start)
        self._done += len(text) - _may_go_on(self._forms, text)
        return len(text) == _CHUNK_BYTES


def _found(forms: Sequence[bytes], text: bytes) -> Iterator[tuple[int, int]]:
    """Where one of *forms* occurs in *text*: from, to."""
    for form in forms:
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = text.find(form, at + 1)


def _may_go_on(forms: Sequence[bytes], text: bytes) -> int:
    """Length of the longest end of *text* that is the beginning of one of *forms*."""
    longest = 0
    for form in forms:
        at = text.find(form[:1], max(len(text) - len(form) + 1, 0))
        while at >= 0:
            if form.startswith(text[at:]):
                longest = max(longest, len(text) - at)
                break
            at = text.find(form[:1], at + 1)
    return longest


def _forms_of(values: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(sorted({form for value in values for form in _forms(value)}))


def _forms(value: bytes) -> Iterator[bytes]:
    """The forms in which *value* may occur in a log."""
    text = value.decode(errors="surrogateescape")
    stripped = text.strip()
    lines = [line.strip() for line in stripped.splitlines()]
    for plain in {text, stripped} if len(lines) == 1 else set(lines):
        encoded = plain.encode(errors="surrogateescape")
        if len(plain) >= LEAST_CHARACTERS:
            yield encoded
            yield quote(encoded, safe="").encode()
            yield quote(encoded).encode()  # as in a path: slashes stay
            yield quote_plus(encoded).encode()
    if len(stripped) < LEAST_CHARACTERS:
        return
    yield json.dumps(stripped)[1:-1].encode()
    for whole in {value, stripped.encode(errors="surrogateescape")}:
        yield from _in_base64(whole)


def _in_base64(value: bytes) -> Iterator[bytes]:
    """What of the base64 of a longer text tells *value*, wherever in it *value* begins."""
    for before in range(3):
        text = base64.b64encode(b"\0" * before + value).rstrip(b"=")
        first = -(-before * 8 // 6)
        # What follows the value shares a digit with it; where nothing follows, it ends so.
        for known in (text[first : (before + len(value)) * 8 // 6], text[first:]):
            if len(known) >= _LEAST_ENCODED:
                yield known
                yield known.replace(b"+", b"-").replace(b"/", b"_")

"""Chunks on their way to the gateway: each after its length, many small ones together."""

from collections.abc import Iterable, Iterator

from headway.errors import InvalidInput
from headway.model.code import CODE

_LENGTH_BYTES = 4
MOST_FRAMES_BYTES = 2 * CODE.chunk_bytes
"""Of one request, which the gateway waits for half a minute for: a slow line takes it, too."""
MOST_FRAMES = 1024
"""Of one request: each is a row of the ledger, however small."""


def joined(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """*chunks*, none of them empty, as bodies of requests that the gateway takes."""
    frames: list[bytes] = []
    size = 0
    for chunk in chunks:
        frame = len(chunk).to_bytes(_LENGTH_BYTES) + chunk
        if size + len(frame) > MOST_FRAMES_BYTES or len(frames) == MOST_FRAMES:
            yield b"".join(frames)
            frames, size = [], 0
        frames.append(frame)
        size += len(frame)
    if frames:
        yield b"".join(frames)


def split(body: bytes) -> Iterator[bytes]:
    """The chunks in *body*.

    Raises:
        InvalidInput: It is cut, has too many, or a chunk has a length that none can have.
    """
    start = count = 0
    while start < len(body):
        count += 1
        if count > MOST_FRAMES:
            raise InvalidInput("body", "more chunks", f"give at most {MOST_FRAMES} at once")
        begin = start + _LENGTH_BYTES
        length = int.from_bytes(body[start:begin])
        start = begin + length
        if not 1 <= length <= CODE.chunk_bytes or start > len(body):
            raise InvalidInput("body", f"a chunk of {length} B", "give whole chunks after lengths")
        yield body[begin:start]

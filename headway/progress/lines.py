"""Bytes become lines: any chunks, any encoding, bounded memory."""

import re

MAX_LINE_BYTES = 8192
"""What is longer is cut here: a progress line is never that long."""

# Colours, cursor movement, window titles, and the backspaces Keras draws with.
_ANSI = re.compile(
    r"\x08+|\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)?|[@-Z\\^_])"
)


class LineSplitter:
    r"""Cuts a stream of bytes into text lines at ``\n`` and ``\r``.

    Where the chunks begin and end changes nothing. At most `MAX_LINE_BYTES`
    of an unfinished line are kept; bytes that are no UTF-8 become U+FFFD;
    terminal escapes and backspaces are taken out.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that *data* completes, without their ends; empty ones are left in."""
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        if end < 0:
            self._rest = (self._rest + data[:MAX_LINE_BYTES])[:MAX_LINE_BYTES]
            return []
        block = self._rest + data[:end]
        self._rest = data[end + 1 : end + 1 + MAX_LINE_BYTES]
        if b"\r" in block:
            block = block.replace(b"\r", b"\n")
        return _lines(block)

    def finish(self) -> list[str]:
        """The last line, when the stream ended without a line end."""
        rest, self._rest = self._rest, b""
        return _lines(rest) if rest else []


def _lines(block: bytes) -> list[str]:
    """*block* as cleaned lines of at most `MAX_LINE_BYTES` bytes each."""
    if len(block) > MAX_LINE_BYTES:
        pieces = block.split(b"\n")
        if max(map(len, pieces)) > MAX_LINE_BYTES:
            block = b"\n".join([piece[:MAX_LINE_BYTES] for piece in pieces])
    # No byte of a multi-byte character is "\n", so a block decodes as its lines would.
    text = block.decode("utf-8", "replace")
    if "\x1b" in text or "\x08" in text:
        text = _ANSI.sub("", text)
    return text.split("\n")

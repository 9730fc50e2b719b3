"""Bytes become lines: any chunks, any encoding, bounded memory."""

import re

MAX_LINE_BYTES = 8192
"""What is longer is cut here: a progress line is never that long."""

# Colours, cursor movement, window titles, and the backspaces Keras draws with.
_ANSI = re.compile(
    r"\x08+|\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)?|[@-Z\\^_])"
)

# A bar that is redrawn ends with the beginning of the next one: until then it is whole without.
_BAR = re.compile(rb"%\|[^\[]{0,800}\[[^\]]{1,400}\]\Z")


class LineSplitter:
    r"""Cuts a stream of bytes into text lines at ``\n`` and ``\r``.

    Where the chunks begin and end changes nothing. At most `MAX_LINE_BYTES`
    of an unfinished line are kept, but one that is a bar so far is a line; bytes that are no UTF-8
    become U+FFFD;
    terminal escapes and backspaces are taken out.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that *data* completes, without their ends; empty ones are left in."""
        *whole, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if rest.endswith(b"]") and _BAR.search(rest[-1300:]):
            whole, rest = [*whole, rest], b""
        self._rest = rest[:MAX_LINE_BYTES]
        return [_text(line) for line in whole]

    def cut(self) -> None:
        """Something is missing here: the line that it cuts is dropped."""
        self._rest = b""

    def finish(self) -> list[str]:
        """The last line, when the stream ended without a line end."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    text = line[:MAX_LINE_BYTES].decode("utf-8", "replace")
    return _ANSI.sub("", text) if "\x1b" in text or "\x08" in text else text

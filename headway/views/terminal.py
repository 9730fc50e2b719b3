"""Text from others made safe for a terminal: it can neither steer it nor hide what it says."""

import codecs
import re

_ESCAPED = "unicode_escape"

_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, but also cursor, screen, keyboard
    r"|[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?"  # OSC and the like: title, clipboard, links
    r"|[ -/]*[0-~]"  # all others
    r")|\x9b[0-?]*[ -/]*[@-~]"
)
_UNFINISHED = re.compile(
    r"(?:\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\x07\x1b\n]{0,4096}\x1b?|[ -/]{0,8})?"
    r"|\x9b[0-?]{0,64}[ -/]{0,8})\Z"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# Controls but newline, tab and return; marks that have no width, reorder what is around them,
# or are tags.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def plain(text: str) -> str:
    r"""*text* as one line that shows what it is: ``\x1b`` for an escape, ``\n`` for a newline."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode(_ESCAPED, "backslashreplace").decode("ascii")
        for c in text
    )


class LogText:
    """A log that comes in pieces, as text for a terminal or a file.

    Whatever steers a terminal is left out, and marks that nobody sees; lines, tabs and the
    returns of progress bars stay.

    Args:
        colours: Whether colours stay, too.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        """The text in *data*; what may go on in the next piece is held back."""
        text = self._held + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text, max(len(text) - 4200, 0))
        until = unfinished.start() if unfinished is not None else len(text)
        self._held = text[until:]
        return self._clean(text[:until])

    def rest(self) -> str:
        """What was held back, when nothing more comes; ends a colour that goes on."""
        text = self._clean(self._held + self._decoder.decode(b"", final=True))
        self._held = ""
        return text + ("\x1b[0m" if self._colours else "")

    def _clean(self, text: str) -> str:
        if "\x1b" in text or "\x9b" in text:
            text = _SEQUENCE.sub(self._kept, text)
        if not self._colours:
            return _HIDDEN.sub("", text)
        # Of what is hidden only the colours' own escapes are left.
        parts = _COLOUR.split(text)
        colours = _COLOUR.findall(text)
        clean = [_HIDDEN.sub("", part) for part in parts]
        return "".join(part + colour for part, colour in zip(clean, [*colours, ""], strict=True))

    def _kept(self, sequence: re.Match[str]) -> str:
        return sequence[0] if self._colours and _COLOUR.fullmatch(sequence[0]) else ""


def log_line(line: bytes) -> str:
    """One line of a log as text that steers nothing, without its colours."""
    text = LogText(colours=False)
    return text.feed(line) + text.rest()

"""Names and logs cannot steer a terminal, nor hide what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.views.terminal import LogText, log_line, plain

HOSTILE = {
    "clears the screen": ("\x1b[2Jgone", "gone"),
    "moves the cursor": ("\x1b[10;10Hthere", "there"),
    "sets the title": ("\x1b]0;title\x07text", "text"),
    "writes the clipboard": ("\x1b]52;c;cm0=\x1b\\text", "text"),
    "asks for the keyboard": ("\x1bP$q q\x1b\\text", "text"),
    "links": ("\x1b]8;;http://evil/\x1b\\here\x1b]8;;\x1b\\", "here"),
    "resets": ("\x1bctext", "text"),
    "C1": ("\x9b2Jtext", "text"),
    "reorders": ("user\u202eadmin\u2066", "useradmin"),
    "has no width": ("pass\u200bword\ufeff\u200d", "password"),
    "rings and goes back": ("a\x07\x08\x08b\x00", "ab"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_log_loses_what_steers_and_hides(what: str) -> None:
    raw, left = HOSTILE[what]
    assert log_line(raw.encode()) == left
    for at in range(len(raw.encode()) + 1):  # however it is cut
        text = LogText(colours=True)
        data = raw.encode()
        assert text.feed(data[:at]) + text.feed(data[at:]) + text.rest() == left + "\x1b[0m"


def test_colours_stay_on_a_terminal_only() -> None:
    line = b"\x1b[1;31mred\x1b[0m\r\tand \xc3\xbc\xff\n"
    on = LogText(colours=True)
    assert on.feed(line) == "\x1b[1;31mred\x1b[0m\r\tand ü�\n"
    assert log_line(line) == "red\r\tand ü�\n"


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_nothing_gets_through(pieces: list[bytes]) -> None:
    text = LogText(colours=False)
    found = "".join([*(text.feed(piece) for piece in pieces), text.rest()])
    assert all(c.isprintable() or c in "\n\r\t\xa0" or not c.isascii() for c in found)
    assert "\x1b" not in found
    assert "\x9b" not in found


def test_an_unfinished_sequence_is_not_held_for_ever() -> None:
    text = LogText(colours=False)
    assert text.feed(b"\x1b]" + b"x" * 10_000 + b"\nnext\n").endswith("\nnext\n")
    assert text.feed(b"done\n") == "done\n"


def test_a_name_shows_what_it_is() -> None:
    assert plain("flights-ü") == "flights-ü"
    assert plain("a\x1b[31m\nb\u202e\ud800") == "a\\x1b[31m\\nb\\u202e\\ud800"

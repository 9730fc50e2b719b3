"""The recorded terminal of the README: small, without anything from elsewhere, and up to date."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.unit.test_docs import wrong

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/terminal.svg"
TEXT = re.compile(r"<text[^>]*>(.*?)</text>", re.DOTALL)


def typed() -> list[str]:
    """What was typed in it."""
    texts = [html.unescape(each).replace("\xa0", " ") for each in TEXT.findall(PICTURE.read_text())]
    return [each for each in texts if each.startswith("headway ")]


def test_what_was_typed_can_still_be_typed() -> None:
    calls = [each.partition("|")[0].removeprefix("headway ") for each in typed()]
    assert len(calls) > 6
    assert {call: wrong(call) for call in calls if wrong(call)} == {}


def test_the_page_shows_it_and_it_is_small() -> None:
    assert "](docs/terminal.svg)" in (ROOT / "README.md").read_text()
    assert PICTURE.stat().st_size < 60_000


def test_it_fetches_nothing_and_shows_no_path_of_a_machine() -> None:
    drawn = PICTURE.read_text()
    ET.fromstring(drawn)
    assert "url(http" not in drawn
    assert "@import" not in drawn
    assert not re.search(r"/(?:tmp|home|root|var)/", drawn)

"""What commands print with --json on a live site is what docs/reference/json.md says of it."""

from pathlib import Path

from benchmarks.answers import ANSWERS, asked
from tests.support.site import LiveSite


def test_answers_have_the_shapes_that_are_documented(
    process_site: LiveSite, tmp_path: Path
) -> None:
    """`LiveSite.json` looks at each, here and in every other test."""
    found = asked(process_site, tmp_path)
    assert found.keys() <= ANSWERS.keys()
    assert len(found) > 40

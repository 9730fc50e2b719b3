"""The pages of docs/reference/ are what the code says now."""

import pytest

from benchmarks.reference import FOLDER, all_commands, pages


@pytest.mark.parametrize("name", pages())
def test_a_page_is_current(name: str) -> None:
    written = (FOLDER / name).read_text()
    assert written == pages()[name], "PYTHONPATH=. python benchmarks/reference.py"


def test_no_other_page_is_there() -> None:
    assert {page.name for page in FOLDER.iterdir()} == set(pages())


def test_the_page_of_commands_has_those_of_each_group() -> None:
    assert "\n## headway node gpu reset-ok\n" in all_commands()
    assert "\n## headway why\n" in all_commands()

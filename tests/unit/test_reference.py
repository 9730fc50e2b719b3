"""The pages of docs/reference/ are what the code says now."""

import json
from collections.abc import Iterator

import click
import pytest

from benchmarks.answers import ANSWERS, EXAMPLES, misfits
from benchmarks.reference import FOLDER, all_commands, pages
from headway.cli.main import headway


@pytest.mark.parametrize("name", pages())
def test_a_page_is_current(name: str) -> None:
    written = (FOLDER / name).read_text()
    assert written == pages()[name], "PYTHONPATH=. python benchmarks/reference.py"


def test_no_other_page_is_there() -> None:
    assert {page.name for page in FOLDER.iterdir()} == set(pages())


def test_the_page_of_commands_has_those_of_each_group() -> None:
    assert "\n## headway node gpu reset-ok\n" in all_commands()
    assert "\n## headway why\n" in all_commands()


def with_json(command: click.Command, context: click.Context) -> Iterator[str]:
    """The names of *command* and of those below it that have --json."""
    if any("--json" in each.opts for each in command.params):
        yield context.command_path.removeprefix("headway ")
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        _, found, _ = command.resolve_command(context, [name])
        assert found is not None
        yield from with_json(found, click.Context(found, info_name=name, parent=context))


def test_each_command_with_json_is_told_of() -> None:
    top = click.Context(headway, info_name="headway")
    known = {name.split(" --")[0] for name in ANSWERS if not name.startswith("GET")}
    assert set(with_json(headway, top)) == known


@pytest.mark.parametrize("command", sorted(json.loads(EXAMPLES.read_text())))
def test_an_example_has_the_shape_that_is_told(command: str) -> None:
    """They are real; `LiveSite.json` looks at what the tests' sites print."""
    assert misfits(ANSWERS[command], json.loads(EXAMPLES.read_text())[command]) == []


def test_what_is_not_of_a_shape_is_found() -> None:
    found = misfits(ANSWERS["retry"], {"run_id": "r", "name": None, "attempt": True, "more": 1})
    assert sorted(found) == [
        ".attempt: True is no <class 'int'>", ".more: not told of Retried",
        ".name: None is no <class 'str'>", ".state: missing",
    ]  # fmt: skip

"""What the documents say holds: their links, job files, commands, variables and keys."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from headway.cli.main import headway
from headway.model.job_text import read_job
from headway.policy.settings import PolicySettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCED = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
COMMAND = re.compile(r"(?:^ {4}|`)headway ([^`|#\n]*?)(?=`|\||#|\n|   )", re.MULTILINE)
FIELD = re.compile(r"`([a-z_]+(?:\.[a-z_]+)?): ([^`]+)`")
WORD = re.compile(r"[a-z][a-z-]*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    missing = [to for to in LINK.findall(page.read_text()) if not (page.parent / to).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_is_whole(page):
    """A row after an empty line is shown as text."""
    tables = re.findall(r"(?:^\|.*\|$\n?)+", page.read_text(), re.MULTILINE)
    heads = [table.splitlines()[:2] for table in tables]
    assert [head for head in heads if len(head) < 2 or set(head[1]) - set("|-: ")] == []


def wrong(call: str) -> str:
    """The first word of *call* that names no command, subcommand or option; empty when all do."""
    command: click.Command = headway
    for word in re.findall(r"[^\s\[\]]+", call.partition(" -- ")[0]):
        options = {
            name for param in command.params for name in (*param.opts, *param.secondary_opts)
        }
        if word.startswith("-") and word != "-":
            if word.split("=")[0] not in options | {"-h", "--help", "--version"}:
                return word
        elif isinstance(command, click.Group) and WORD.fullmatch(word):
            if word not in command.commands:
                return word
            _, found, _ = command.resolve_command(click.Context(command), [word])
            assert found is not None
            command = found
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_subcommand_and_option_exists(page):
    calls = COMMAND.findall(page.read_text())
    assert {call: wrong(call) for call in calls if wrong(call)} == {}


def test_what_help_says_of_each_command_is_the_beginning_of_its_own_help():
    for name, named in headway.commands.items():
        command = headway.resolve_command(click.Context(headway), [name])[1]
        assert named.help == command.get_short_help_str(64), name


def commands(
    group: click.Group, *names: str
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    """The words that call each command of *group*, with itself and the context of its group."""
    context = click.Context(group, info_name=" ".join(names) or "headway")
    for name in group.commands:
        _, found, _ = group.resolve_command(context, [name])
        assert found is not None
        words = (*names, name)
        if isinstance(found, click.Group):
            yield from commands(found, *words)
            if not found.invoke_without_command:
                continue
        yield words, found, context


def test_the_help_of_each_command_has_two_examples_that_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("job.yaml", "runs.csv", "runs.parquet", "jobs.csv", "train.log", "train.parquet"):
        (tmp_path / file).touch()
    (tmp_path / "site.backup").touch()
    (tmp_path / "images").mkdir()
    for words, command, context in commands(headway):
        _, _, examples = (command.help or "").partition("\b\nExamples:\n")
        lines = [line for line in examples.splitlines() if line.startswith("  ")]
        assert len(lines) == 2, words
        for line in lines:
            typed = re.split(r"\)?\"? +[<>#] ", re.split(r".*[ (]headway ", line)[1])[0]
            rest = shlex.split(typed.rstrip(')" '))
            called, given = tuple(rest[: len(words)]), rest[len(words) :]
            if isinstance(command, click.Group) and given and given[0] in command.commands:
                continue  # an example of its subcommand
            assert called == words, line
            command.make_context(called[-1], given, parent=context).close()


def test_a_command_that_is_not_there_is_found():
    page = (
        "`headway node evict N`\n    headway runs --all\n    headway traces import f [--json]   x\n"
    )
    assert [wrong(call) for call in COMMAND.findall(page)] == ["evict", "--all", ""]


def test_what_others_write_becomes_fields_and_variables_that_exist():
    """In the tables for people who come from elsewhere the last column is headway's."""
    page = (ROOT / "docs/coming-from.md").read_text()
    cells = [row.split(" | ")[-1] for row in re.findall(r"^\| .* \|$", page, re.MULTILINE)]
    fields = [FIELD.findall(cell) for cell in cells]
    given = [each for found in fields for each in found]
    smallest = {"name": "a", "image": "a", "command": "[a]", "resources": "{gpus: 1}"}
    smallest["workdir"] = "."  # for requirements
    for key, value in given:
        set_ = (f"{key}={value}",) if "." in key else ()
        job = smallest if set_ else smallest | {key: value}
        if key == "python":
            job = {name: it for name, it in job.items() if name != "image"}
        text = "\n".join(f"{name}: {it}" for name, it in job.items())
        read_job(text.encode(), filename="docs/coming-from.md", overrides=set_)
    assert len(given) > 50
    known = (ROOT / "docs/jobs.md").read_text() + "HEADWAY_ARRAY_SEED HEADWAY_VOLUME_MODELS"
    assert {each for each in re.findall(r"HEADWAY_\w+", page) if each not in known} == set()


def test_the_job_files_are_jobs():
    blocks = FENCED.findall((ROOT / "docs/jobs.md").read_text())
    jobs = [read_job(block.encode(), filename="docs/jobs.md").job for block in blocks]
    assert [job.name for job in jobs] == ["flights", "hello", "sweep", "wide"]
    # The first shows every field there is, so that nothing is left undocumented.
    shown = blocks[0]
    for part in (jobs[0], jobs[0].resources, jobs[0].training, jobs[0].dataset):
        for field in type(part).model_fields:
            assert field in shown, field


def test_the_layers_are_those_that_are_held():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (inside,) = (each for each in contracts["contracts"] if each.get("containers"))
    held = [re.sub(r"[()]", "", layer) for layer in inside["layers"]]
    assert " → ".join(held) in " ".join((ROOT / "ARCHITECTURE.md").read_text().split())


def test_each_knob_of_the_line_has_its_sentence():
    page = "".join(
        (ROOT / "docs" / each).read_text() for each in ("policy.md", "reference/blocks.md")
    )
    assert [knob.name for knob in fields(PolicySettings) if f"`{knob.name}`" not in page] == []

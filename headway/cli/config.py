"""`headway config …`: the settings of this machine and its site, and the file that has them."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.cli.inputs import this_site
from headway.cli.output import Columns, Json, as_json, print_json, print_rows, say, silent
from headway.errors import HeadwayError, InvalidInput, LedgerError

if TYPE_CHECKING:
    from headway.settings import Settings
    from headway.site import Site

_SETTINGS: Columns = {
    "setting": "setting",
    "value": lambda row: _text(row["value"]),
    "from": "from",
}
_CHANGES: Columns = {
    "setting": "setting",
    "now": lambda change: _text(change["now"]),
    "then": lambda change: _text(change["then"]),
    "takes effect": "takes_effect",
}


@click.group()
def config() -> None:
    """Show, check and apply the settings of this machine and its site.

    They are in HEADWAY_… variables, in config.yaml of HEADWAY_HOME, and in Prefect's blocks. That
    file has the sections machine (the variables' names without HEADWAY_, in lower case; variables
    win), queue, containers, and nodes, in which each has its name.
    """


@config.command()
@click.option("--changed", is_flag=True, help="Only what differs from the default.")
@as_json
def show(*, changed: bool, machine: bool) -> None:
    """Show each setting, its value and where it came from.

    Variables and the file are read when a process starts, blocks within seconds. What may be a
    secret is not printed.

    Examples:
      headway config show --changed
      headway config show --json
    """
    rows = settings_rows(this_site(), changed=changed, tell=lambda why: say(why, err=True))
    if machine:
        print_json(rows)
    else:
        print_rows(_SETTINGS, rows)


@config.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@as_json
def check(file: Path | None, machine: bool) -> None:
    """Check FILE, or config.yaml of HEADWAY_HOME, and say what it would change; change nothing.

    Each error is told with its line; the exit status is then 2.

    Examples:
      headway config check
      headway config check new.yaml --json
    """
    from headway.settings import config_here

    path = config_here() if file is None else file
    changes: list[Json] = []
    errors, unknown = _check(path, changes)
    if machine:
        said = {"errors": errors, "changes": changes, "not_known": unknown}
        print_json({"file": str(path), **said})
    else:
        for line in (*errors, *unknown):
            say(line, err=True)
        if not errors:
            _tell(changes, f"{path} is right")
    sys.exit(2 if errors else 0)


def _check(path: Path, changes: list[Json]) -> tuple[list[str], list[str]]:
    """What is wrong with *path*, and what is not known; *changes* gets what it changes."""
    from headway.admin.config_file import block_changes, errors_of, machine_changes
    from headway.settings import read_config

    try:
        if (document := read_config(path)) is None:
            raise InvalidInput("file", str(path), "it is not there")
        if errors := errors_of(document):
            return [*map(str, errors)], []
        site = this_site()
        changes += map(asdict, machine_changes(site.settings, document))
        changes += map(asdict, block_changes(site, document))
    except InvalidInput as error:
        return [str(error)], []
    except HeadwayError as error:
        return [], [f"what the blocks say is not known: {error}"]
    return [], []


@config.command("apply")
@as_json
def apply_(*, machine: bool) -> None:
    """Write what config.yaml of HEADWAY_HOME changes to the blocks, which holds within seconds.

    Nothing is written unless all of it is right. What the file does not name stays as it is. What
    only a start of this machine's processes changes is said. `headway up` applies the file, too.

    Examples:
      headway config apply
      headway config apply --json
    """
    from headway.admin.config_file import apply_config

    done = [asdict(change) for change in apply_config(this_site(), silent)]
    if machine:
        print_json(done)
    else:
        _tell(done, "nothing differs from what is in force")


def _tell(changes: list[Json], nothing: str) -> None:
    if changes:
        print_rows(_CHANGES, changes)
    else:
        say(nothing)


def settings_rows(
    site: "Site", *, changed: bool, tell: Callable[[str], None] = silent
) -> list[Json]:
    """Each setting with value and origin, without secrets; with *changed* no defaults.

    *tell* is told why nothing is known of the blocks, where the ledger cannot be asked.
    """
    rows = [*_of_machine(site.settings)]
    try:
        rows += _blocks(site)
    except LedgerError as error:
        tell(f"what the blocks say is not known: {error}")
    return [row for row in rows if row["changed"] or not changed]


def _of_machine(settings: "Settings") -> Iterator[Json]:
    for name in type(settings).model_fields:
        variable, given = f"HEADWAY_{name.upper()}", name in settings.model_fields_set
        came = "environment" if variable in os.environ else "config.yaml" if given else "default"
        yield _row(variable, getattr(settings, name), came, changed=given)


def _blocks(site: "Site") -> Iterator[Json]:
    """What the site's blocks say, as the ledger has it from them."""
    from pydantic import TypeAdapter, ValidationError

    from headway.admin.config_file import SITE_SECTIONS, node_section

    nodes = [node_section(each.node.name) for each in site.ledger.nodes.all()]
    sections = {each.kept_as: each for each in (*SITE_SECTIONS, *nodes)}
    for kept_as, document in sorted(site.ledger.settings.of(tuple(sections)).items()):
        section = sections[kept_as]
        usual = section.kind()
        try:
            held = TypeAdapter(section.kind).validate_python(document)
        except ValidationError:  # of another version: shown as it is
            held = None
        for key, value in document.items():
            if hasattr(usual, key):
                changed = held is None or getattr(held, key) != getattr(usual, key)
                name = f"{section.slug}/{section.name} {key}"
                yield _row(name, value, "block", changed=changed)


def _row(setting: str, value: object, came: str, *, changed: bool) -> Json:
    from headway.admin.config_file import shown

    value = shown(setting.rpartition(" ")[2], value)
    return {"setting": setting, "value": value, "from": came, "changed": changed}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

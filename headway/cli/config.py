"""`headway config show`: the settings of this machine and its site, and where each came from."""

import json
from collections.abc import Iterator
from typing import Any

import click
from pydantic import SecretStr, TypeAdapter, ValidationError

from headway.cli.inputs import this_site
from headway.cli.output import Columns, Json, as_json, print_json, print_rows
from headway.model.container_policy import ContainerPolicy
from headway.model.job_rules import may_be_secret
from headway.model.node_settings import NodeSettings
from headway.policy.settings import LINE, PolicySettings
from headway.settings import Settings
from headway.site import POLICY, Site

_HIDDEN = "(hidden)"
_COLUMNS: Columns = {"setting": "setting", "value": "shown", "from": "from"}


@click.group()
def config() -> None:
    """Show the settings of this machine and its site."""


@config.command()
@click.option("--changed", is_flag=True, help="Only what differs from the default.")
@as_json
def show(*, changed: bool, machine: bool) -> None:
    """Show each setting, its value and where it came from.

    Variables are read when a process starts, blocks within seconds. What may be a secret is not
    printed.

    Examples:
      headway config show --changed
      headway config show --json
    """
    rows = settings_rows(this_site(), changed=changed)
    if machine:
        print_json(rows)
    else:
        print_rows(_COLUMNS, [row | {"shown": _text(row["value"])} for row in rows])


def settings_rows(site: Site, *, changed: bool) -> list[Json]:
    """Each setting with value and origin, without secrets; with *changed* no defaults."""
    rows = [*_variables(site.settings), *_blocks(site)]
    return [row for row in rows if row["changed"] or not changed]


def _variables(settings: Settings) -> Iterator[Json]:
    for name in Settings.model_fields:
        given = name in settings.model_fields_set
        came = "environment" if given else "default"
        yield _row(f"HEADWAY_{name.upper()}", getattr(settings, name), came, changed=given)


def _blocks(site: Site) -> Iterator[Json]:
    """What the site's blocks say, as the ledger has it from them."""
    kinds: dict[str, tuple[str, Any]] = {
        LINE: ("headway-line/site", PolicySettings),
        POLICY: ("headway-container-policy/site", ContainerPolicy),
    }
    for each in site.ledger.nodes.all():
        kinds[f"node/{each.node.name}"] = f"headway-node/{each.node.name}", NodeSettings
    for kept_as, document in sorted(site.ledger.settings.of(tuple(kinds)).items()):
        block, kind = kinds[kept_as]
        usual = kind()
        try:
            held = TypeAdapter(kind).validate_python(document)
        except ValidationError:  # of another version: shown as it is
            held = None
        for key, value in document.items():
            if hasattr(usual, key):
                changed = held is None or getattr(held, key) != getattr(usual, key)
                yield _row(f"{block} {key}", value, "block", changed=changed)


def _row(setting: str, value: object, came: str, *, changed: bool) -> Json:
    key = setting.rpartition(" ")[2]
    plain = value if value is None or isinstance(value, bool | int | float) else _plain(value)
    hidden = isinstance(value, SecretStr) or may_be_secret(key, _text(plain))
    value = _HIDDEN if hidden else plain
    return {"setting": setting, "value": value, "from": came, "changed": changed}


def _plain(value: object) -> Any:
    return json.loads(json.dumps(list(value) if isinstance(value, tuple) else value, default=str))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)

"""The operator's configuration file: checked, compared with what is in force, and applied.

Its section `machine` is read by each process as it starts (`headway.settings`). The others are
written to the blocks that they are about, where only what the file names is changed.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, SecretStr, ValidationError

from headway.admin.told import differing, noted
from headway.errors import InvalidInput
from headway.home import CONFIG
from headway.ledger.audit_log import Act
from headway.model.access import changes
from headway.model.container_policy import ContainerPolicy
from headway.model.document import Document, Path, Word, dotted
from headway.model.document_errors import as_one, errors_in, placed
from headway.model.job_rules import may_be_secret
from headway.model.node_settings import NodeSettings
from headway.policy.settings import LINE, PolicySettings
from headway.prefect.auth import site_auth
from headway.prefect.client import PrefectServer
from headway.settings import Settings, Written, read_config
from headway.site import POLICY, Site
from headway.this_node import checked_setting, keep, os_user

_UNKNOWN = "(not known)"
_HIDDEN = "(hidden)"
_SOON = "within seconds"
_AGAIN = "at the next `headway up`, or start by systemd; runs go on"


def _node_name(name: str) -> str:
    if not re.fullmatch("[a-z0-9-]+", name):
        raise ValueError("a block's name has lower-case letters, digits and dashes alone")
    return name


class ConfigFile(BaseModel):
    """The whole of it."""

    machine: Written = Field(default_factory=Written)
    queue: PolicySettings = PolicySettings()
    containers: ContainerPolicy = ContainerPolicy()
    nodes: Mapping[Annotated[str, AfterValidator(_node_name)], NodeSettings] = {}


@dataclass(frozen=True, slots=True)
class BlockSection:
    """A part of the file, and the block that it is about."""

    at: Path
    kept_as: str
    """Name under which the ledger keeps what the block says."""
    slug: str
    name: str
    kind: Any


SITE_SECTIONS = (
    BlockSection(("containers",), POLICY, "headway-container-policy", "site", ContainerPolicy),
    BlockSection(("queue",), LINE, "headway-line", "site", PolicySettings),
)


def node_section(name: str) -> BlockSection:
    """That of node *name*."""
    return BlockSection(("nodes", name), f"node/{name}", "headway-node", name, NodeSettings)


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that the file gives another value than is in force; without secrets."""

    setting: str
    """Its place in the file, such as ``queue.window``."""
    now: Any
    """Plain data; None where it is not set."""
    then: Any
    takes_effect: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.setting}: {json.dumps(self.now)} → {json.dumps(self.then)}"


def errors_of(document: Document) -> list[InvalidInput]:
    """All that is wrong with the file by itself, in the order of its lines."""
    values = document.values or {}
    if isinstance(values, dict):  # a section without any key is no error
        values = {key: value for key, value in values.items() if value is not None}
    errors = errors_in(Document(values, document.places), (), ConfigFile)
    return sorted(errors, key=lambda error: int(error.where.rpartition(":")[2]))


def _sections(document: Document) -> list[BlockSection]:
    """Those that *document* has, the containers' first: uids of teams are noted by it."""
    sections = (*SITE_SECTIONS, *map(node_section, document.group("nodes")))
    return [each for each in sections if document.group(*each.at)]


def machine_changes(settings: Settings, document: Document) -> list[Change]:
    """What the section `machine` gives another value than this machine's processes go by.

    Of what only they still have the value is not known, unless it is the default's; of what systemd
    has started, nothing is.
    """
    section = document.group("machine")
    wanted, usual, found = Written(**section), Written(), []
    told = noted(settings)
    other, no_default = (
        differing(settings.model_copy(update={it: getattr(each, it) for it in section}), told)
        for each in (wanted, usual)
    )
    for name in section:
        now, then = getattr(settings, name), getattr(wanted, name)
        variable = f"HEADWAY_{name.upper()}"
        when = f"never while {variable} is set" if variable in os.environ else _AGAIN
        if now != then or variable in other:
            if now == then:  # as the file says by now; what runs was told another
                now = _UNKNOWN if variable in no_default else getattr(usual, name)
            now = shown(name, now)
            found.append(Change(f"machine.{name}", now, shown(name, then), when))
    return found


def block_changes(site: Site, document: Document) -> list[Change]:
    """What the file, right by itself, gives another value than the ledger has from the blocks.

    Raises:
        InvalidInput: It allows more than it may here; all that is wrong.
        LedgerError: The ledger cannot be asked.
    """
    held = site.ledger.settings.of([each.kept_as for each in _sections(document)])
    nodes = {each.node.name for each in site.ledger.nodes.all()}
    return [
        change
        for plan in _plans(site, document, lambda section: held.get(section.kept_as, {}))
        for change in plan.changes(nodes)
    ]


def apply_config(site: Site, say: Callable[[str], None]) -> list[Change]:
    """Write what the home's file gives another value to the blocks and into the ledger.

    Nothing is written unless all of it is right. What a block says and the file does not name
    stays. What takes effect at a start is among the changes, and is left to that.

    Raises:
        InvalidInput: It is wrong, or allows more than it may here; all that is wrong.
    """
    settings = site.settings
    document = checked_config(settings)
    done, sections = list[Change](), _sections(document)
    if sections and settings.is_guest:
        say(f"{CONFIG}: {dotted(sections[0].at)} is for the site's own machine, and not used here")
    elif sections:
        with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
            nodes = {each.node.name for each in site.ledger.nodes.all()}
            said = {it: server.block(it.slug, it.name) or {"data": {}} for it in sections}
            for plan in _plans(site, document, lambda it: said[it]["data"]):
                done += plan.changes(nodes)
                plan.carry_out(site, server)
    for change in done:
        say(f"{CONFIG}: {change}, {change.takes_effect}")
    return [*machine_changes(settings, document), *done]


def checked_config(settings: Settings) -> Document:
    """The home's file; an empty document where there is none.

    Raises:
        InvalidInput: It is wrong by itself; all that is wrong.
    """
    document = read_config(settings.home / CONFIG) or Document({})
    if errors := errors_of(document):
        raise as_one(errors)
    return document


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to become of one block."""

    section: BlockSection
    before: dict[str, Any]
    """What it says."""
    changed: dict[str, Any]
    """What it is to say of the keys that become other ones."""

    @property
    def after(self) -> dict[str, Any]:
        return self.before | self.changed

    def changes(self, nodes: set[str]) -> Iterator[Change]:
        """Each value that becomes another; *nodes* are those of the site."""
        section, usual = self.section, self.section.kind()
        joins = section.kind is NodeSettings and section.name not in nodes
        when = f"once node {section.name} joins" if joins else _SOON
        for key, then in self.changed.items():
            now = self.before[key] if key in self.before else shown(key, getattr(usual, key))
            for path, old, new in _leaves((*section.at, key), now, then):
                name = str(path[-1])
                yield Change(dotted(path), shown(name, old), shown(name, new), when)

    def carry_out(self, site: Site, server: PrefectServer) -> None:
        """Write it to block and ledger, with who does it; nothing where nothing changes."""
        section, who = self.section, os_user()
        if not self.changed:
            return
        server.set_block(section.slug, section.name, self.changed)
        if not keep(site, section.kept_as, self.after, who):  # the scheduler was faster
            told = changes(self.before, self.after)
            site.ledger.audit_log.write(Act(who, "setting.change", section.kept_as, told))


def _plans(
    site: Site, document: Document, said: Callable[[BlockSection], dict[str, Any]]
) -> list[_Plan]:
    """What is to become of each block of which *said* tells what it says. Raises `InvalidInput`."""
    plans, errors = [], []
    for section in _sections(document):
        before = said(section)
        after: dict[str, Any] = _merged(before, document.group(*section.at))
        changed = {k: it for k, it in after.items() if k not in before or before[k] != it}
        plans.append(_Plan(section, before, changed))
        try:
            checked_setting(site, section.kept_as, after)
        except ValueError as error:
            errors.append(_refused(error, document, section.at))
    if errors:
        raise as_one(errors)
    return plans


def _refused(error: ValueError, document: Document, at: Path) -> InvalidInput:
    cause = error.__cause__
    if isinstance(cause, InvalidInput):
        return placed(cause, document, (*at, *cause.field.split(".")))
    said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return placed(InvalidInput("", Word("what it becomes with its block"), said), document, at)


def _merged(before: Any, given: Any) -> Any:
    """*before* with what *given* names, at any depth."""
    if not (isinstance(before, dict) and isinstance(given, dict)):
        return given
    return before | {key: _merged(before.get(key), value) for key, value in given.items()}


def _leaves(path: Path, now: Any, then: Any) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(then, dict) and then:
        for key, value in then.items():
            yield from _leaves((*path, key), now.get(key) if isinstance(now, dict) else None, value)
    elif now != then:
        yield path, now, then


def shown(key: str, value: Any) -> Any:
    """*value* of a setting as plain data; nothing of what may be a secret."""
    if value is None or isinstance(value, bool | int | float):
        return value
    plain = json.loads(json.dumps(list(value) if isinstance(value, tuple) else value, default=str))
    text = plain if isinstance(plain, str) else json.dumps(plain)
    return _HIDDEN if isinstance(value, SecretStr) or may_be_secret(key, text) else plain

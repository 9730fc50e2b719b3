"""`headway doctor`: what is wrong with the site, and with `--invariants` with what it keeps."""

import platform
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headway.cli.config import settings_rows
from headway.cli.inputs import open_server, this_site
from headway.cli.output import Json, as_json, print_json, print_table, say
from headway.errors import InvalidInput
from headway.model.inspection import Finding

if TYPE_CHECKING:
    from headway.admin import invariants as keeping
    from headway.site import Site


@click.command()
@click.option(
    "--invariants",
    is_flag=True,
    help="Compare leases, runs, containers, flow processes and states in Prefect.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what a bug report needs to this new file, without secrets.",
)
@as_json
def doctor(*, invariants: bool, report: Path | None, machine: bool) -> None:
    """Check what a site needs on this machine.

    The exit status is 1 when something is wrong. With --invariants: whether the ledger, this node
    and Prefect agree; 0 when everything was looked at and nothing is broken. Changes of the last
    minute may still be under way.

    With --report: a tar.gz of versions, findings, changed settings, nodes, runs, the queue and the
    ends of the logs. Known secrets and what looks like one are taken out; names of users, runs,
    machines and paths stay: look at it before you send it.

    Examples:
      headway doctor
      headway doctor --report report.tar.gz
    """
    if report is not None:
        _report(report, machine=machine)
        return
    sys.exit((_compare if invariants else _look)(machine=machine))


def _look(*, machine: bool) -> int:
    from headway.admin import doctor as checks

    site = this_site()
    with open_server(site) as server:
        findings = [each._asdict() for each in checks.examine(site, server)]
    if machine:
        print_json(findings)
    else:
        marked = [["ok" if each["ok"] else "!!", each["what"], each["found"]] for each in findings]
        print_table(["", "what", "found"], marked)
    wrong = [each for each in findings if not each["ok"]]
    if wrong and not machine:  # what is looked at first is what the others rest on
        say(f"Do first: {wrong[0]['what']}: {wrong[0]['found']}; then run `headway doctor` again")
    return int(bool(wrong))


def _report(file: Path, *, machine: bool) -> None:
    from headway.admin import doctor as checks
    from headway.admin import invariants as keeping
    from headway.admin.bug_report import write_report
    from headway.views.top import document as site_document

    site = this_site()
    if file.exists():
        raise InvalidInput("--report", str(file), "it is there already; name a new file")
    with open_server(site) as server:
        parts = {
            "about": lambda: _about(site),
            "doctor": lambda: [each._asdict() for each in checks.examine(site, server)],
            "invariants": lambda: _document(keeping.examine(site, server)),
            "settings": lambda: settings_rows(site, changed=True),
            "site": lambda: site_document(site),
        }
        held = write_report(site.settings, parts, file)
    if machine:
        print_json({"file": str(file), "holds": held})
    else:
        say(f"{file}, which only you can read, holds {', '.join(held)}")
        say("names of users, runs, machines and paths are in it: look at it before you send it")


def _about(site: "Site") -> Json:
    from headway.ledger import Ledger

    return {
        "headway": version("headway"),
        "prefect": version("prefect"),
        "python": sys.version,
        "system": platform.platform(),
        "schema": Ledger.schema(site.settings.database_url),
        "at": site.clock.now(),
    }


def _compare(*, machine: bool) -> int:
    from headway.admin import invariants as keeping

    site = this_site()
    with open_server(site) as server:
        found = keeping.examine(site, server)
    if machine:
        print_json(_document(found))
    else:
        _print(found)
    return int(bool(found.broken or found.unknown))


def _document(found: "keeping.Examination") -> Json:
    return {
        "broken": _listed(found.broken),
        "under_way": _listed(each for each in found.findings if each.under_way),
        "unknown": found.unknown,
        "elsewhere": found.elsewhere,
    }


def _listed(findings: Iterable[Finding]) -> list[Json]:
    from headway.views.fields import fields

    return [fields(each, "kind", "subject", "what", "since", "mends") for each in findings]


def _print(found: "keeping.Examination") -> None:
    rows = [["!!", each.what, each.mends] for each in found.broken]
    rows += [["under way", each.what, each.mends] for each in found.findings if each.under_way]
    rows += [["unknown", each, ""] for each in found.unknown]
    if rows:
        print_table(["", "what", "mended by"], rows)
    if not found.broken and not found.unknown:
        say("all that was compared agrees")
    if found.broken and not found.worker_lives:
        say("the worker of this node does not run, so nothing is repaired: run `headway up`")
    if found.elsewhere:
        say(f"not looked at: containers and disks of {', '.join(found.elsewhere)}; ask there")

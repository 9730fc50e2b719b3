"""`headway doctor`: what is wrong with the site, and with `--invariants` with what it keeps."""

import sys
from collections.abc import Iterable

import click

from headway.admin import doctor as checks
from headway.admin import invariants as keeping
from headway.cli.inputs import open_server, this_site
from headway.cli.output import Json, as_json, print_json, print_table, say
from headway.model.inspection import Finding
from headway.views.fields import fields


@click.command()
@click.option(
    "--invariants",
    is_flag=True,
    help="Compare leases, runs, containers, flow processes and states in Prefect.",
)
@as_json
def doctor(*, invariants: bool, machine: bool) -> None:
    """Check what a site needs on this machine.

    The exit status is 1 when something is wrong. With --invariants: whether the ledger, this node
    and Prefect agree; 0 when everything was looked at and nothing is broken. Changes of the last
    minute may still be under way.

    Examples:
      headway doctor
      headway doctor --invariants --json
    """
    sys.exit((_compare if invariants else _look)(machine=machine))


def _look(*, machine: bool) -> int:
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


def _compare(*, machine: bool) -> int:
    site = this_site()
    with open_server(site) as server:
        found = keeping.examine(site, server)
    if machine:
        print_json(_document(found))
    else:
        _print(found)
    return int(bool(found.broken or found.unknown))


def _document(found: keeping.Examination) -> Json:
    return {
        "broken": _listed(found.broken),
        "under_way": _listed(each for each in found.findings if each.under_way),
        "unknown": found.unknown,
        "elsewhere": found.elsewhere,
    }


def _listed(findings: Iterable[Finding]) -> list[Json]:
    return [fields(each, "kind", "subject", "what", "since", "mends") for each in findings]


def _print(found: keeping.Examination) -> None:
    rows = [["!!", each.what, each.mends] for each in found.broken]
    rows += [["under way", each.what, each.mends] for each in found.findings if each.under_way]
    rows += [["unknown", each, ""] for each in found.unknown]
    if rows:
        print_table(["", "what", "mended by"], rows)
    if not found.broken and not found.unknown:
        say("what was compared agrees: nothing is broken")
    if found.broken and not found.worker_lives:
        say("the worker of this node does not run, so its janitor mends nothing: run `headway up`")
    if found.elsewhere:
        say(f"not looked at: containers and disks of {', '.join(found.elsewhere)}; ask there")

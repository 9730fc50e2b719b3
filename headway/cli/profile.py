"""The command that shows a run's profile."""

import click

from headway.cli.completion import RUN
from headway.cli.inputs import this_site
from headway.cli.output import as_json, print_json, print_table, say


@click.command()
@click.argument("run", type=RUN)
@click.option(
    "--window",
    default="60s",
    show_default=True,
    help="How far to look back at a run that is running.",
)
@as_json
def profile(run: str, window: str, machine: bool) -> None:
    """Kernels and copies of a run against what its links carry.

    A run with `profile: true` was recorded by Nsight Systems where its image
    or the node has it. Of a run that is running, NVML's counters are shown.
    """
    from headway.errors import InvalidInput
    from headway.profile.text import profile_view, rows, summary
    from headway.run.profiling import profile_of
    from headway.units import parse_duration

    try:
        window_s = parse_duration(window)
    except ValueError:
        raise InvalidInput(
            "window", window, "give a duration with its unit, such as 5min"
        ) from None
    site = this_site()
    found = profile_of(site, site.ledger.runs.find(run), window_s)
    if machine:
        print_json(profile_view(found))
        return
    say(summary(found))
    table = rows(found)
    if table:
        print_table(list(table[0]), [list(row.values()) for row in table])
    for note in found.notes:
        say(note)
    if found.report:
        say(f"open {found.report} with nsys-ui for more")


COMMANDS = (profile,)

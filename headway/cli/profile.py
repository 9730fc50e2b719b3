"""The command that shows a run's profile."""

import click

from headway.cli.completion import RUN
from headway.cli.inputs import DURATION, this_site
from headway.cli.output import as_json, print_json, print_table, say


@click.command()
@click.argument("run", type=RUN)
@click.option(
    "--window",
    "window_s",
    type=DURATION,
    default="60s",
    show_default=True,
    help="How far to look back at a run that is running.",
)
@as_json
def profile(run: str, window_s: float, machine: bool) -> None:
    """Show how a run used its GPUs: kernels, copies, links.

    A run with `profile: true` was recorded by Nsight Systems where its image or the node has it.
    For a run that is running, NVML's counters are shown.

    Examples:
      headway profile flights
      headway profile flights --window 5min
    """
    from headway.profile.text import profile_view, rows, summary
    from headway.run.profiling import profile_of

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

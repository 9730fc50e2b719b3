"""The command that tells an assistant how to use headway."""

from importlib import resources

import click


@click.command()
@click.option("--submit", "may_submit", is_flag=True, help="Also how to hand in and end runs.")
def skill(*, may_submit: bool) -> None:
    """Print a SKILL.md, by which an assistant uses headway with your rights.

    Without --submit it only reads. What holds is the token: `headway user add` makes one with
    the scope watch alone.
    """
    pages = resources.files("headway.cli")
    page = (pages / "skill.md").read_text(encoding="utf-8")
    submit = (pages / "skill_submit.md").read_text(encoding="utf-8") if may_submit else ""
    click.echo(page.replace("{{submit}}\n", f"{submit}\n"), nl=False)

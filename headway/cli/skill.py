"""The command that tells an assistant how to use headway."""

from importlib import resources

import click


@click.command()
@click.option("--submit", "may_submit", is_flag=True, help="Also how to submit and end runs.")
def skill(*, may_submit: bool) -> None:
    """Print a SKILL.md that teaches an assistant to use headway.

    Without --submit it only reads. The token decides what is really allowed: `headway user add`
    makes one with the scope watch alone.

    Examples:
      headway skill > SKILL.md
      headway skill --submit > SKILL.md
    """
    pages = resources.files("headway.cli")
    page = (pages / "skill.md").read_text(encoding="utf-8")
    submit = (pages / "skill_submit.md").read_text(encoding="utf-8") if may_submit else ""
    click.echo(page.replace("{{submit}}\n", f"{submit}\n"), nl=False)

"""What `headway replay --from-ledger` says: the site's past, and what would have been otherwise."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.cli.inputs import this_site
from headway.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from headway.policy.settings import TeamSettings


def say_past(
    last: str,
    more_gpus: int,
    weights: "Mapping[str, TeamSettings]",
    picture: Path | None,
    *,
    machine: bool,
) -> None:
    """Replay the last *last* of this node's pool, and print what each change would have saved."""
    from headway.views.past_document import past_view

    found = past_view(
        this_site(),
        _seconds(last),
        more_gpus=more_gpus,
        weights=dict(weights),
        report=lambda name: click.echo(f"replaying: {name}", err=True),
    )
    if picture is not None:
        from headway.views.charts import draw_past

        picture.write_bytes(draw_past(found["options"]))
    if machine:
        print_json(found)
        return
    _say(found)


def _say(found: dict[str, Any]) -> None:
    from headway.units import format_duration
    from headway.views.past_document import saved_text

    was, ours = found["happened"], found["replayed"]
    say(
        f"{found['runs']} runs in {format_duration(found['span_s'])}: they waited "
        f"{format_duration(was['mean_wait_s'])} in the mean, replayed "
        f"{format_duration(ours['mean_wait_s'])}; {found['near_frac']:.0%} start within ten "
        f"minutes of when they did, half of all within {format_duration(found['median_apart_s'])}"
    )
    if found["left_out"]:
        say(f"{found['left_out']} more are left out: no node that is there now could hold them")
    say("")
    print_table(
        ["with", "mean wait", "longest", "GPUs used", "saves", "cost", "saved for the cost"],
        [
            [
                one["name"],
                format_duration(one["mean_wait_s"]),
                format_duration(one["max_wait_s"]),
                f"{one['utilisation_frac']:.0%}",
                f"{one['saved_h']:+.1f} h",
                "–" if one["cost"] is None else f"{one['cost']:.2f}",
                saved_text(one) if one["saved_h"] > 0 else "–",
            ]
            for one in found["options"]
        ],
    )


def _seconds(text: str) -> float:
    from headway.errors import InvalidInput
    from headway.units import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise InvalidInput("--last", text, "give a time such as 30d or 12h") from error
    if not seconds > 0:
        raise InvalidInput("--last", text, "give more than nothing")
    return seconds

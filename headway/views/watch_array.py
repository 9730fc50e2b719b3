"""Looking at an array from outside: how its members come to their end."""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headway.clock import Clock
from headway.errors import GatewayRefused, SiteUnreachable, may_come_back
from headway.model.run import ExitKind
from headway.views.array_table import array_counts, end_text
from headway.views.terminal import plain
from headway.views.watch import outcome

_POLL_S = 1.0
_AWAY_S = 2.0
_LINE_EVERY_S = 10.0
"""Where no bar can be drawn, how often a line says how far the array is."""
_REASONS = 5
"""So many ways in which members failed are told."""
_NO_FAILURES = frozenset({ExitKind.OK, ExitKind.CANCELLED})
_OVER = frozenset({"Completed", "Failed", "Cancelled"})


class Gateway(Protocol):
    """What is asked about an array that is watched; `headway.client.Client` is one."""

    def array(self, array: str, *, members: bool = True) -> dict[str, Any]:
        """How it stands; with *members* each of those that have become runs."""


def watch_array(gateway: Gateway, array_id: str, clock: Clock, *, machine: bool) -> int:
    """Follow an array until its last member has ended: counts, a bar and the expected end.

    Returns:
        The command's exit status: 0 where all members ended well.
    """
    from rich.console import Console  # noqa: PLC0415 - only for people who watch
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    console = Console(stderr=machine)
    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    next_line_s = clock.monotonic_s()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("waiting", total=None)
        while True:
            try:
                view = gateway.array(array_id, members=False)
            except (SiteUnreachable, GatewayRefused) as error:
                if not may_come_back(error):
                    raise
                bar.update(task, description=plain(str(error))[:60])
                clock.sleep(_AWAY_S)
                continue
            if view["state"] in _OVER:
                break
            ended = view["ended_well"] + view["failed"] + view["cancelled"]
            said = f"{array_counts(view)}{end_text(view)}"
            bar.update(task, completed=ended, total=view["size"], description=said)
            if not (machine or console.is_terminal) and clock.monotonic_s() >= next_line_s:
                next_line_s = clock.monotonic_s() + _LINE_EVERY_S
                console.print(said, soft_wrap=True, highlight=False)
            clock.sleep(_POLL_S)
    if machine:
        sys.stdout.write(json.dumps(gateway.array(array_id), indent=2) + "\n")
    else:
        console.print(f"{view['state']}: {array_counts(view)}", soft_wrap=True, highlight=False)
        if view["failed"]:
            for line in _failures(gateway.array(array_id)["members"]):
                console.print(line, soft_wrap=True, highlight=False, markup=False)
    return outcome(view["state"])


def _failures(members: Sequence[Mapping[str, Any]]) -> list[str]:
    """How members failed: each way once, the most frequent first, with one that ended so."""
    of_reason = Counter[str]()
    one: dict[str, str] = {}
    for member in members:
        if member["exit"] and member["exit"]["kind"] not in _NO_FAILURES:
            reason = plain(member["exit"]["message"])
            of_reason[reason] += 1
            one.setdefault(reason, member["name"])
    return [
        f"{count} × {reason} (headway show {one[reason]})"
        for reason, count in of_reason.most_common(_REASONS)
    ]

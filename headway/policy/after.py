"""Chains: whether a run may start after the one that it follows, or never will."""

from typing import NamedTuple

from headway.errors import shown
from headway.model.lease import Resource, Wait
from headway.model.run import Exit, ExitKind, When


class Followed(NamedTuple):
    """A run that another one follows."""

    run_id: str
    name: str
    team: str
    exit: Exit | None
    """How it ended; None while it waits or runs, also for another attempt."""


class Following(NamedTuple):
    """A run that follows another one."""

    after: str
    """The id that its job names."""
    when: When
    team: str
    """Its own team: only runs of the same team are followed."""
    found: Followed | None
    """The run that it follows; None where there is none."""

    def says(self) -> Wait | Exit | None:
        """Why it may not start yet, or how it ends since it never may; None where it may start."""
        found, so = self.found, _SO[self.when]
        if found is None or found.team != self.team:
            why = f"team {self.team} has no run {shown(self.after, 63)} that it could follow"
            return Exit(ExitKind.REFUSED, None, f"{why}; nothing was started")
        called = f"run {found.name} ({found.run_id[:8]})"
        if found.exit is None:
            return Wait(Resource.TURN, f"waits for {called} to end{so}")
        well = found.exit.kind is ExitKind.OK
        if self.when is When.ANY or (self.when is When.OK) == well:
            return None
        how = found.exit.kind.value
        why = f"it was to follow {called} if that ended{so}, which ended as {how}"
        return Exit(ExitKind.CANCELLED, None, f"{why}; nothing was started")


_SO = {When.OK: " well", When.ANY: "", When.FAILED: " otherwise than well"}

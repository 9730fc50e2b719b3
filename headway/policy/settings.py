"""The settings of the queue, as one frozen value that an operator edits."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field

from headway.errors import InvalidInput
from headway.model.engine import ENGINES
from headway.model.job_types import MIN_MEMORY_BYTES
from headway.model.notice import TRACKER
from headway.units import DAY_S, parse_size

LINE = "line"
"""Name under which the ledger keeps these settings."""


class OnSilentFailure(enum.StrEnum):
    """What becomes of a run that fails silently."""

    WARN = "warn"
    """It is said on the run; the run goes on."""
    STOP = "stop"
    """It is said, and the run is ended when it goes on so for the grace time."""


class OnStranger(enum.StrEnum):
    """What becomes of a GPU that a program uses which is no run's."""

    TOLERATE = "tolerate"
    """What it leaves free is given to runs."""
    WARN = "warn"
    """The same, and an alert says whose it is."""
    DRAIN = "drain"
    """The GPU takes no new run until it is gone."""


LEAST_SILENT_S = 10.0
"""Telemetry reaches the ledger every ten seconds."""
MOST_SILENT_S = 1800.0
"""Telemetry has a point a second for an hour, and a check takes in twice the time."""

MOST_RUNS = 10**9
"""More than any line has: such a number is a slip of the hand."""
MOST_S = 3650 * DAY_S
"""Ten years: many of them are still a date."""


def _size(value: object) -> object:
    """*value* in bytes where it is written as a size."""
    return parse_size(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Share:
    """The share and the quotas of a team, or of a user in it; None is no limit."""

    # A quota whose name is misspelt must not be no quota.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    weight: float = 1.0
    """Its part of what is shared, beside the others' weights; above 0."""
    max_gpus: int | None = None
    """GPUs its running runs may hold together."""
    max_host_memory_bytes: Annotated[
        int | None,
        BeforeValidator(_size),
        Field(validation_alias=AliasChoices("max_host_memory", "max_host_memory_bytes")),
    ] = None
    """Host memory its running runs may hold together; an operator writes it as 200GiB."""
    max_running: int | None = None
    """Runs it may have running at once."""
    max_waiting: int = 10_000
    """Runs, and members of arrays, that it may have waiting; the next is refused."""
    keep_days: float | None = None
    """Days after its end that what a run of it left stays on its node, where that has no shorter
    time, and in the site's store."""
    notify: tuple[str, ...] = ()
    """Notification blocks: of a team those that its jobs may name, of a user those by which it is
    told where its job names none."""

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise InvalidInput("weight", self.weight, "give a number above 0")
        if self.keep_days is not None and not 0 < self.keep_days <= 36_500:
            raise InvalidInput("keep_days", self.keep_days, "give a number above 0, up to 36500")

    def check_quotas(self, where: str) -> None:
        """Raise `InvalidInput` for a quota that lets nothing run: it would wait for ever.

        Asked when quotas are set. One that was set before this was asked still holds: its runs
        are refused.

        Args:
            where: Whose it is, such as ``teams.vision``.
        """
        for name, least in (
            ("max_gpus", 0),
            ("max_host_memory_bytes", MIN_MEMORY_BYTES),
            ("max_running", 1),
            ("max_waiting", 1),
        ):
            quota = getattr(self, name)
            if quota is not None and quota < least:
                raise InvalidInput(
                    f"{where}.{name}",
                    quota,
                    f"give at least {least}, or leave it out for no limit; with this no run of "
                    "theirs could ever start",
                )


_NameThere = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$")]
_LoginThere = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})$")]

EVERY_OTHER = "*"
"""Stands for each user of a team who is not listed by name."""


@dataclass(frozen=True, slots=True)
class OnEngine:
    """As whom a team's jobs go to a cluster's scheduler; empty: as the job's user goes there."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    account: _NameThere = ""
    qos: _NameThere = ""
    logins: Mapping[str, _LoginThere] = field(default_factory=dict)
    """By user, ``*`` for each of the others: whose account of the cluster's machines their jobs
    have where the site's services are root's; ``*`` for the one of the user's own name."""

    def login(self, user: str) -> str:
        """The account of *user*; empty where nobody has said."""
        found = self.logins.get(user) or self.logins.get(EVERY_OTHER, "")
        return user if found == EVERY_OTHER else found


@dataclass(frozen=True, slots=True)
class TeamSettings(Share):
    """One team's share and quotas, and those of its users."""

    max_waiting: int = 30_000
    engines: Mapping[str, OnEngine] = field(default_factory=dict)
    """By engine, such as slurm: as whom its jobs go there."""
    tracker: str = ""
    """Block by which the ends of its runs are written to its MLflow; empty for none."""
    users: Mapping[str, Share] = field(default_factory=dict)
    """By name; ``*`` for each of the others. A weight counts beside those of the team's others."""

    def user(self, name: str) -> Share:
        """What holds for one user; where nothing is said weight 1 and a quota of waiting runs."""
        return self.users.get(name) or self.users.get(EVERY_OTHER) or _DEFAULT_USER

    def check_quotas(self, where: str) -> None:
        """As for a share, those of its users as well; and whether it names engines."""
        Share.check_quotas(self, where)
        for engine in self.engines:
            if engine not in ENGINES:
                allowed = f"give one of {', '.join(sorted(ENGINES))}"
                raise InvalidInput(f"{where}.engines", engine, allowed)
        if self.tracker and not self.tracker.startswith(f"{TRACKER}/"):
            allowed = f"give a block such as {TRACKER}/vision"
            raise InvalidInput(f"{where}.tracker", self.tracker, allowed)
        for name, share in self.users.items():
            share.check_quotas(f"{where}.users.{name}")
            for block in share.notify:
                if block not in self.notify:
                    allowed = f"give one of the team's notify, which is {list(self.notify)}"
                    raise InvalidInput(f"{where}.users.{name}.notify", block, allowed)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """How the queue is ordered, how many runs a decision considers and what it promises."""

    window: int = 64
    """Runs from the front of the queue that one decision considers; bounds its cost."""
    reservations: int = 2
    """Runs that cannot start and are promised their earliest start in one decision."""
    promise_factor: float = 1.5
    """A run is promised to start by when a first-come queue would have done its work, times this.
    Smaller: large runs start sooner, and the mean wait is longer."""
    utilisation_limit: float = 1.0
    """Largest sum of utilisations of runs that share a GPU."""
    overrun_frac: float = 0.25
    """A run that outlives its prediction is expected to need this part of its time again."""
    share_past_runs: bool = False
    """Whether what one team's runs took and needed is said of other teams' jobs."""
    unknown_runtime_s: float = DAY_S
    """Taken for the runtime of a run of which nothing is known."""
    on_silent_failure: OnSilentFailure = OnSilentFailure.WARN
    """For a GPU that is held and not used, memory over the grant and a GPU that was lost."""
    silent_after_s: float = 300.0
    """Seconds that a GPU must have been seen before its use is judged; 10 to 1800."""
    silent_grace_s: float = 900.0
    """Seconds from the warning until `stop` ends the run."""
    on_stranger: OnStranger = OnStranger.WARN
    """For a GPU that a program uses which is no run's."""
    session_idle_s: float = 1800.0
    """Seconds without a connection or a GPU in use after which a session ends that does not say."""
    teams: Mapping[str, TeamSettings] = field(default_factory=dict)
    """By name; a team that is not listed has weight 1 and no quota."""

    def __post_init__(self) -> None:
        for name in ("window", "reservations"):
            if not 1 <= getattr(self, name) <= MOST_RUNS:
                raise InvalidInput(name, getattr(self, name), f"give 1 to {MOST_RUNS}")
        for name, most in (
            ("utilisation_limit", MOST_RUNS),
            ("overrun_frac", MOST_RUNS),
            ("unknown_runtime_s", MOST_S),
            ("promise_factor", MOST_RUNS),
            ("session_idle_s", MOST_S),
        ):
            if not 0 < getattr(self, name) <= most:
                allowed = f"give a number above 0 and at most {most:g}"
                raise InvalidInput(name, getattr(self, name), allowed)
        if not LEAST_SILENT_S <= self.silent_after_s <= MOST_SILENT_S:
            raise InvalidInput(
                "silent_after_s",
                self.silent_after_s,
                f"give {LEAST_SILENT_S:g} to {MOST_SILENT_S:g}",
            )
        if not self.silent_grace_s >= 0:
            allowed = "give a number of at least 0"
            raise InvalidInput("silent_grace_s", self.silent_grace_s, allowed)

    def team(self, name: str) -> TeamSettings:
        """The settings of team *name*; the default where it is not listed."""
        return self.teams.get(name, _DEFAULT_TEAM)


_DEFAULT_TEAM, _DEFAULT_USER = TeamSettings(), Share()

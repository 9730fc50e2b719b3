"""What each team has used of the site's GPUs lately, from the leases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headway.ledger.pools import TeamGpuUse
from headway.model.lease import GpuGrant, Lease, Sharing
from headway.policy.order import decayed, interval_usage
from headway.policy.settings import PolicySettings

_HALF_LIVES = 6.0
"""What is older weighs less than two in a hundred, and is not read."""
_OVERLAP = timedelta(minutes=1)
"""So much is read twice, so that a release that was committed late is not missed."""


@dataclass(slots=True)
class TeamUsage:
    """Decayed GPU-seconds of each team, from leases that have ended; each is counted once."""

    at: datetime | None = None
    used: dict[str, float] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)
    """Leases of the newest reading: no later one goes back further."""

    def since(self, now: datetime, settings: PolicySettings) -> datetime:
        """From when on released leases are to be read; a little is read twice, to miss none."""
        if self.at is None:
            return now - timedelta(seconds=_HALF_LIVES * settings.fair_share_half_life_s)
        return self.at - _OVERLAP

    def catch_up(self, uses: Sequence[TeamGpuUse], now: datetime, settings: PolicySettings) -> None:
        """Let time pass until *now*, and count *uses* in."""
        half_life_s = settings.fair_share_half_life_s
        if self.at is not None:
            age_s = max((now - self.at).total_seconds(), 0.0)
            self.used = {team: decayed(s, age_s, half_life_s) for team, s in self.used.items()}
        self.at = now
        # The GPUs of one lease are several rows: all of them are in this reading, or none.
        read = {use.lease_id for use in uses}
        fresh = read - self.counted
        for use in uses:
            if use.lease_id in fresh:
                seconds = interval_usage(
                    use.share,
                    use.from_at.timestamp(),
                    use.until_at.timestamp(),
                    now.timestamp(),
                    half_life_s,
                )
                self.used[use.team] = self.used.get(use.team, 0.0) + seconds
        self.counted = read

    def with_live(
        self,
        leases: Sequence[Lease],
        teams: Mapping[str, str],
        now: datetime,
        settings: PolicySettings,
    ) -> dict[str, float]:
        """What has ended, and what runs as if it ended now."""
        found = dict(self.used)
        for lease in leases:
            team = teams.get(lease.run_id, "")
            seconds = interval_usage(
                sum(_share(grant) for grant in lease.gpus),
                lease.granted_at.timestamp(),
                now.timestamp(),
                now.timestamp(),
                settings.fair_share_half_life_s,
            )
            found[team] = found.get(team, 0.0) + seconds
        return found


def _share(grant: GpuGrant) -> float:
    return 1.0 if grant.sharing is Sharing.WHOLE else grant.utilisation_frac

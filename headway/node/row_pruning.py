"""Rows of runs whose files went by the settings of `headway prune`: which ones go, too."""

from headway.policy.retention import ended_before, seconds
from headway.site import Site

_LOOKED_AT = 10_000


def old_rows(site: Site) -> list[str]:
    """Runs that this node answers for and of which only what usage needs is kept from now on.

    Not of those whose folder lies here still: it may be wanted in the store, or in use.
    """
    teams = site.policy_settings.teams.items()
    before, of_teams = ended_before(
        site.ledger.now(),
        keep_s=seconds(site.node_settings.keep_days),
        of_teams={team: seconds(each.keep_days) for team, each in teams},
    )
    due = site.ledger.old_runs.due(
        site.settings.node, site.settings.pool, before, of_teams, _LOOKED_AT
    )
    return [run_id for run_id in due if not (site.settings.runs_dir / run_id).exists()]

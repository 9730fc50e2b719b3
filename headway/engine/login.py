"""Whose account of a cluster's machines a member's jobs have, where the site's services are root's.

An operator says so, in the block *headway-line/site*; no job file does, and no member.
"""

import os
import pwd
from dataclasses import dataclass

from headway.model.lease import Refuse
from headway.policy.settings import OnEngine, PolicySettings

_BY_LOGIN = "slurm"
_LEAST_UID, _NOBODY = 1000, 65534
"""Accounts below are the system's own (`UID_MIN` of login.defs); that one is nobody's."""
_OF_CLUSTER = frozenset({"slurm", "munge"})
"""The cluster's own services, whose accounts Debian and others put above."""


@dataclass(frozen=True, slots=True)
class Login:
    """An account of the submit host, which the cluster's machines know by the same number."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def ids(self) -> tuple[int, int]:
        """Whom its files belong to."""
        return self.uid, self.gid


def is_by_login(engine: str) -> bool:
    """Whether jobs go to *engine* from here as their members' own accounts."""
    return engine == _BY_LOGIN and os.geteuid() == 0


def login_of(settings: PolicySettings, engine: str, team: str, owner: str) -> Login | Refuse | None:
    """Whose account the jobs of *owner* have there, or why they can have none.

    None: that of this process, where it is no root's, or where the engine knows no accounts.
    """
    if not is_by_login(engine):
        return None
    name = settings.team(team).engines.get(engine, OnEngine()).login(owner)
    where = f"teams.{team}.engines.{engine}.logins of the block headway-line/site"
    if not name:
        allowed = f"ask an operator of the site to name their login of the cluster in {where}"
        return Refuse("owner", owner, f"{allowed}: nothing is submitted as root")
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return Refuse("owner", owner, f"{where} says {name}, which this submit host does not know")
    is_services = not _OF_CLUSTER.isdisjoint({name, found.pw_name})
    if found.pw_uid < _LEAST_UID or found.pw_uid == _NOBODY or is_services:
        why = f"says {name} (uid {found.pw_uid}), an account of the system: give an ordinary one"
        return Refuse("owner", owner, f"{where} {why}")
    return Login(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)

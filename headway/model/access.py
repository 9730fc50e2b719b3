"""Who comes in at the gateway, and what an access token lets them do."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from headway.errors import InvalidInput, shown
from headway.model.job_types import OWNER
from headway.units import DAY_S

TOKEN_PREFIX = "hwt_"  # noqa: S105 - it marks a token, and is none
"""How an access token begins, so that scanners for leaked secrets find it."""
TOKEN_BYTES = 32
MAX_LIFETIME_S = 5 * 365 * DAY_S
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{43}}")
_NAMES = {"user": OWNER, "team": r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"}
"""What a job's owner and its team may be called."""


class Scope(StrEnum):
    """What a token may be used for. `OPERATE` includes the others, for every team."""

    NODE = "node"
    """Reading what members have put for the runs that are on a node: its own token's."""
    WATCH = "watch"
    SUBMIT = "submit"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request comes from, by its token."""

    user: str
    team: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether the token has *scope*."""
        return scope in self.scopes or Scope.OPERATE in self.scopes

    def sees(self, team: str) -> bool:
        """Whether runs of *team* are shown to it."""
        return Scope.OPERATE in self.scopes or team == self.team


@dataclass(frozen=True, slots=True)
class AccessToken:
    """What the ledger keeps of a token; the token itself is kept nowhere."""

    token_id: int
    user: str
    team: str
    scopes: frozenset[Scope]
    made_at: datetime
    expires_at: datetime
    revoked_at: datetime | None

    @property
    def caller(self) -> Caller:
        """Whom it stands for."""
        return Caller(self.user, self.team, self.scopes)

    def is_valid(self, now: datetime) -> bool:
        """Whether it lets anybody in at *now*."""
        return self.revoked_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act that changed something, and who did it."""

    at: datetime
    actor: str
    act: str
    """Such as ``user.add``: what kind of thing, and what was done."""
    subject: str
    """Which one: the id or name of a run, a node, a token."""
    details: dict[str, str]


BY_A_BLOCK = "an operator (through a block, which does not say who)"
"""Actor of a change that a worker found in Prefect."""
_SHOWN = 200


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, str]:
    """What differs between two documents of settings, by its name, as one line each."""
    names = sorted(before.keys() | after.keys())
    differing = [name for name in names if before.get(name) != after.get(name)]
    return {name: f"{_brief(before, name)} → {_brief(after, name)}" for name in differing}


def _brief(document: Mapping[str, object], name: str) -> str:
    return shown(str(document[name]), _SHOWN)[1:-1] if name in document else "nothing"


def token_digest(token: str) -> str:
    """What the ledger keeps in the place of *token*: 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


def looks_like_token(text: str) -> bool:
    """Whether *text* has the form of a token; anything else is not even looked up."""
    return _TOKEN.fullmatch(text) is not None


def checked_name(field: str, name: str) -> str:
    """*name*, if a ``user`` or a ``team``, as *field* says, may be called so.

    Raises:
        InvalidInput: It may not.
    """
    if re.fullmatch(_NAMES[field], name) is None:
        allowed = "give 1 to 63 letters, digits, dots, dashes or underscores; the first no dot"
        raise InvalidInput(field, name, f"{allowed} or dash")
    return name


def scopes_from(words: Iterable[str]) -> frozenset[Scope]:
    """The scopes that *words* of the ledger name; a word of a newer version counts as none."""
    return frozenset(Scope(word) for word in words if word in set(Scope))

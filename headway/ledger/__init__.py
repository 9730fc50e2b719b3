"""The ledger: every SQL statement of headway is in this package."""

import enum
from copy import copy
from datetime import datetime
from typing import Self

from headway.errors import LedgerError, LedgerMissing
from headway.ledger.access_tokens import AccessTokens
from headway.ledger.arrays import Arrays
from headway.ledger.attempts import Attempts
from headway.ledger.audit_log import AuditLog
from headway.ledger.calls import Calls
from headway.ledger.code import Code
from headway.ledger.columns import now
from headway.ledger.database import SCHEMA_VERSION, Connections, Database, open_engine, shown
from headway.ledger.engines import Engines
from headway.ledger.errors import LedgerOlder
from headway.ledger.flow_starts import FlowStarts
from headway.ledger.gang_asks import GangAsks
from headway.ledger.inspection import Inspection
from headway.ledger.leaders import Leaders
from headway.ledger.leases import Leases
from headway.ledger.node_logins import NodeLogins, renew
from headway.ledger.nodes import Nodes, SiteSettings
from headway.ledger.notices import Notices
from headway.ledger.old_runs import OldRuns
from headway.ledger.pools import Pools
from headway.ledger.progress_snapshots import ProgressSnapshots
from headway.ledger.renewals import Renewals
from headway.ledger.runs import Runs
from headway.ledger.series import Progress, Traces
from headway.ledger.staged import Staged
from headway.ledger.starts import Starts
from headway.ledger.steps import Steps
from headway.ledger.stored import Stored
from headway.ledger.submissions import Submissions
from headway.ledger.team_uids import TeamUids
from headway.ledger.telemetry import Telemetry
from headway.ledger.turns import Turns
from headway.ledger.uploads import Uploads
from headway.ledger.usage import Holdings
from headway.ledger.warnings import Warnings


class _Tables(enum.Enum):
    """What whoever opens the ledger may do with its tables."""

    KEEP = enum.auto()
    MAKE = enum.auto()
    """Where there are none."""
    CHANGE = enum.auto()
    """Bring older ones to this code, too."""


class Ledger:
    """The site's truth: nodes, runs and their attempts, leases, progress, traces, staged data."""

    def __init__(self, database: Database) -> None:
        """A ledger in *database*."""
        self._database = database
        self.nodes = Nodes(database)
        self.node_logins = NodeLogins(database)
        self.settings = SiteSettings(database)
        self.runs = Runs(database)
        self.steps = Steps(database)
        self.attempts = Attempts(database)
        self.arrays = Arrays(database)
        self.inspection = Inspection(database)
        self.engines = Engines(database)
        self.flow_starts = FlowStarts(database)
        self.leaders = Leaders(database)
        self.leases = Leases(database)
        self.gang_asks = GangAsks(database)
        self.renewals = Renewals(database)
        self.old_runs = OldRuns(database)
        self.calls = Calls(database)
        self.pools = Pools(database)
        self.progress = Progress(database)
        self.traces = Traces(database)
        self.turns = Turns(database)
        self.starts = Starts(database)
        self.staged = Staged(database)
        self.progress_snapshots = ProgressSnapshots(database)
        self.telemetry = Telemetry(database)
        self.warnings = Warnings(database)
        self.notices = Notices(database)
        self.access_tokens = AccessTokens(database)
        self.audit_log = AuditLog(database)
        self.submissions = Submissions(database)
        self.team_uids = TeamUids(database)
        self.stored = Stored(database)
        self.holdings = Holdings(database)
        self.code = Code(database)
        self.uploads = Uploads(database)

    @classmethod
    def open(cls, url: str) -> Self:
        """The ledger at *url*, made where there is none.

        Raises:
            LedgerUnreachable: The database does not answer.
            LedgerNewer: It is newer than this code.
            LedgerOlder: It is older.
        """
        return cls._opened(url, Connections.MANY, _Tables.MAKE)

    @classmethod
    def upgrade(cls, url: str) -> Self:
        """The same, the tables of an older one brought to this code, in one transaction.

        Whoever calls it has a backup.
        """
        return cls._opened(url, Connections.MANY, _Tables.CHANGE)

    @classmethod
    def find(cls, url: str, keep: Connections = Connections.MANY) -> Self:
        """The ledger at *url*: as `open`, but none is made.

        Whoever asks an empty ledger is told that nobody waits and that there
        are no nodes, which may be false.

        Raises:
            LedgerMissing: There is none.
        """
        return cls._opened(url, keep, _Tables.KEEP)

    @staticmethod
    def schema(url: str) -> str | None:
        """The schema of the tables at *url*, which stay as they are; None where there are none.

        Raises:
            LedgerUnreachable: The database does not answer.
        """
        engine = open_engine(url, Connections.ONE)
        try:
            return Database(engine).schema_version()
        finally:
            engine.dispose()

    @classmethod
    def _opened(cls, url: str, keep: Connections, tables: _Tables) -> Self:
        engine = open_engine(url, keep)
        ledger = cls(Database(engine))
        try:
            found = ledger._database.schema_version()
            if found is None and tables is _Tables.KEEP:
                raise LedgerMissing(shown(engine))
            if found is not None and found < SCHEMA_VERSION and tables is not _Tables.CHANGE:
                raise LedgerOlder(found, SCHEMA_VERSION)
            if found != SCHEMA_VERSION:
                ledger._database.migrate(then=renew)
        except LedgerError:
            ledger.close()
            raise
        return ledger

    def listener(self) -> Self:
        """The same, for another thread that waits for calls: of one `Calls` one alone may."""
        own = copy(self)
        own.calls = Calls(self._database)
        return own

    def now(self) -> datetime:
        """The database's time."""
        with self._database.reading() as session:
            return now(session)

    def close(self) -> None:
        """Give the connections back."""
        self.calls.close()
        self._database.engine.dispose()

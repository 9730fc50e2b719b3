"""What the ledger alone raises."""

from headway.errors import LedgerError


class LedgerRefused(LedgerError):
    """The login by which the ledger was opened may not do that: a node's may do little."""

    cause: str
    line = (
        "the login by which the ledger was opened may not do that ({cause}); nothing was changed. "
        "A node's own login may do what its agent does: do it on the site's machine"
    )


class TermOver(LedgerError):
    """A scheduler wrote in a term that is over: another one leads the pool, and plans anew."""

    pool: str
    number: int
    now: int
    line = (
        "term {number} of pool {pool} is over, its scheduler is in term {now} now; nothing was "
        "written, and the leader of that term plans anew"
    )


class SchemaMismatch(LedgerError):
    """The tables are older or newer than this code."""

    found: str
    expected: str
    line = (
        "the ledger's schema is {found}, this headway needs {expected}; run `headway up` with one "
        "version on every node"
    )


class IllegalTransition(LedgerError):
    """A run cannot go from state *found* to state *wanted*: somebody was faster."""

    run_id: str
    found: str
    wanted: str
    line = "run {run_id} is {found} and cannot become {wanted}; nothing was changed"

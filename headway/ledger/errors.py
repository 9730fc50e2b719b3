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


class LedgerNewer(LedgerError):
    """The tables are newer than this code."""

    exit_status = 2
    found: str
    expected: str
    line = (
        "the ledger is at {found}, newer than this headway, which needs {expected}; nothing was "
        "changed. Use the headway that the site's machine has"
    )


class LedgerOlder(LedgerError):
    """The tables are older than this code; an upgrade alone changes them, which keeps a backup."""

    exit_status = 2
    found: str
    expected: str
    line = (
        "the ledger is at {found}, this headway needs {expected}; nothing was changed. Run "
        "`headway upgrade` on the site's machine: it keeps a backup, and runs go on"
    )


class IllegalTransition(LedgerError):
    """A run cannot go from state *found* to state *wanted*: somebody was faster."""

    run_id: str
    found: str
    wanted: str
    line = "run {run_id} is {found} and cannot become {wanted}; nothing was changed"

"""A home of an older version, on SQLite, is brought into the PostgreSQL of its own."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headway.admin.database import takeover
from headway.admin.database.takeover import NotTakenOver, have_database, old_ledger
from headway.clock import SystemClock
from headway.errors import LedgerError
from headway.ledger import Ledger
from headway.ledger.copying import copy_ledger
from headway.model.run import ExitKind, RunState, StepState
from headway.model.trace import Trace
from headway.node.daemon import database_daemon
from headway.settings import Settings
from tests.support.lived_in import ENDED, RUNNING
from tests.support.postgresql import new_database

CLOCK = SystemClock()
OLD = Path(__file__).parents[1] / "data/ledger-sqlite-0035.sql"
"""What `tests.support.lived_in` wrote with commit 7db7af0."""
pytestmark = [
    pytest.mark.postgresql,
    # What the test's own process starts outlives the object that started it, as it is meant to.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
END_ALL = (
    "UPDATE run SET state = 'ended', ended_at = submitted_at, exit_kind = 'cancelled', "
    "exit_message = 'by hand' WHERE state <> 'ended'"
)


def old(file: Path, change: str = "SELECT 1") -> Path:
    """The ledger of an older site as *file*, with a *change* of its rows."""
    with closing(sqlite3.connect(file)) as made, made:
        made.executescript(OLD.read_text())
        made.execute(change)
    return file


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Of a home in which a site was on SQLite, with Prefect's server beside it."""
    settings = Settings(home=tmp_path / "home")
    (settings.home / "prefect").mkdir(parents=True)
    old(old_ledger(settings))
    with closing(sqlite3.connect(settings.home / "prefect/prefect.db")) as server, server:
        server.execute("CREATE TABLE flow_run (state_type TEXT, auto_scheduled BOOLEAN)")
        server.execute("INSERT INTO flow_run VALUES ('COMPLETED', 0), ('SCHEDULED', 1)")
    settings.state_dir.mkdir()
    (settings.state_dir / "registered").write_text("with the old server")
    yield settings
    database_daemon(settings).stop(signal.SIGINT, 30.0)


def change(settings: Settings, statement: str = END_ALL, part: str = "ledger.db") -> None:
    with closing(sqlite3.connect(settings.home / part)) as file, file:
        file.execute(statement)


def test_all_of_a_ledger_comes_along(tmp_path: Path, postgresql: str) -> None:
    file, target = old(tmp_path / "ledger.db"), new_database(postgresql)
    copied = copy_ledger(file, target)
    assert copied.left == {}
    with closing(sqlite3.connect(file)) as source:
        for name, count in copied.rows.items():
            assert source.execute(f"SELECT COUNT(*) FROM {name}").fetchone() == (count,), name
    assert copied.rows["run"] == 5
    with closing(Ledger.find(target)) as ledger:
        ended = ledger.runs.get(ENDED)
        assert (ended.state, ended.name, ended.owner) == (
            RunState.ENDED,
            f"brave-{ENDED}",
            "me",
        )
        assert ended.exit is not None
        assert (ended.exit.kind, ended.exit.message) == (ExitKind.OK, "ended well")
        assert ended.submitted_at.isoformat() == "2026-11-25T22:14:21.718000+00:00"
        assert {step.state for step in ledger.steps.of_run(ENDED)} == {StepState.DONE}
        assert [lease.run_id for lease in ledger.leases.live()] == [RUNNING]
        assert [trace.runtime_s for trace in ledger.traces.all()] == [100.0, 80.0]
        lost = ledger.nodes.all()[0]
        assert [gpu.uuid for gpu in lost.node.capacity.gpus] == ["GPU-0", "GPU-1"]
        more = [Trace("vgg", "v100", 1, 32, runtime_s=1.0)]
        assert ledger.traces.add(more) == 1  # its number is a new one
    with pytest.raises(LedgerError, match="has rows in"):
        copy_ledger(file, target)


def test_what_postgresql_refuses_is_counted_and_the_rest_comes(
    tmp_path: Path, postgresql: str
) -> None:
    bad = f"UPDATE run SET reason = 'a' || char(0) WHERE run_id = '{ENDED}'"
    copied = copy_ledger(old(tmp_path / "ledger.db", bad), new_database(postgresql))
    assert copied.left == {"run": 1}
    assert copied.rows["run"] == 4


def test_what_is_no_ledger_is_said(tmp_path: Path, postgresql: str) -> None:
    (tmp_path / "ledger.db").write_text("PRAGMA")
    with pytest.raises(LedgerError, match="is no ledger"):
        copy_ledger(tmp_path / "ledger.db", new_database(postgresql))


def test_a_site_is_brought_over_when_its_runs_have_ended(settings: Settings) -> None:
    said: list[str] = []
    with pytest.raises(NotTakenOver, match="3 of its runs wait or are under way"):
        have_database(settings, CLOCK, said.append)
    assert settings.known_ledger is None
    assert not (settings.home / "database").exists()
    change(settings)
    assert have_database(settings, CLOCK, said.append)
    assert settings.database_url.startswith("postgresql")
    with closing(Ledger.find(settings.database_url)) as ledger:
        assert ledger.settings.get("line") == {"teams": {"vision": {"weight": 2, "max_gpus": 8}}}
    told = "\n".join(said)
    assert "2 traces, 5 runs" in told
    assert f"kept as {settings.home}/ledger-before-postgresql.db" in told
    assert "make the Secret blocks again" in told
    for left in ("ledger-before-postgresql.db", "prefect/prefect-before-postgresql.db"):
        assert (settings.home / left).exists()
    assert not (settings.state_dir / "registered").exists()  # blocks and deployments are made anew
    said.clear()
    assert not have_database(settings, CLOCK, said.append)
    assert said == []


def test_a_run_that_only_prefect_knows_is_waited_for(settings: Settings) -> None:
    change(settings)
    change(settings, "INSERT INTO flow_run VALUES ('SCHEDULED', 0)", "prefect/prefect.db")
    with pytest.raises(NotTakenOver, match="1 of its runs wait"):
        have_database(settings, CLOCK, print)


def test_a_takeover_may_be_broken_off_at_any_step(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(settings)

    class Killed(Exception):
        """As by SIGKILL: nothing of ours catches it."""

    def killed(*_: object) -> None:
        raise Killed

    for step in ("copy_ledger", "note_database", "put_aside"):
        with monkeypatch.context() as patched:
            patched.setattr(takeover, step, killed)
            with pytest.raises(Killed):
                have_database(settings, CLOCK, print)
        assert old_ledger(settings).exists(), step
    have_database(settings, CLOCK, print)
    with closing(Ledger.find(settings.database_url)) as ledger:
        assert len(ledger.runs.of([ENDED, RUNNING, "w1", "w2", "e2"])) == 5
    assert not old_ledger(settings).exists()

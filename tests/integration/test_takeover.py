"""A home of version 0.1, on SQLite, is brought into the PostgreSQL of its own."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlmodel import SQLModel

from headway.admin.database import takeover
from headway.admin.database.choice import have_database
from headway.clock import SystemClock
from headway.errors import LedgerError
from headway.ledger import Ledger
from headway.ledger.copying import copy_ledger
from headway.model.trace import Trace
from headway.node.daemon import database_daemon
from headway.settings import Settings
from tests.support.lived_in import ENDED, populate
from tests.support.postgresql import new_database

CLOCK = SystemClock()
pytestmark = [
    pytest.mark.postgresql,
    # What the test's own process starts outlives the object that started it, as it is meant to.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
END_ALL = (
    "UPDATE run SET state = 'ended', ended_at = submitted_at, exit_kind = 'cancelled', "
    "exit_message = 'by hand' WHERE state <> 'ended'"
)


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Of a home in which a site was on SQLite, with Prefect's server beside it."""
    settings = Settings(home=tmp_path / "home")
    (settings.home / "prefect").mkdir(parents=True)
    with closing(Ledger.open(f"sqlite:///{settings.ledger_file}")) as ledger:
        populate(ledger)
        ledger.settings.put("line", {"teams": {"vision": {"weight": 2, "max_gpus": 8}}})
    with closing(sqlite3.connect(settings.home / "prefect/prefect.db")) as server, server:
        server.execute("CREATE TABLE flow_run (state_type TEXT, auto_scheduled BOOLEAN)")
        server.execute("INSERT INTO flow_run VALUES ('COMPLETED', 0), ('SCHEDULED', 1)")
    settings.state_dir.mkdir()
    (settings.state_dir / "registered").write_text("with the old server")
    yield settings
    database_daemon(settings).stop(signal.SIGINT, 30.0)


def rows(url: str) -> dict[str, int]:
    with closing(Ledger.find(url)) as ledger, ledger._database.reading() as session:
        return {
            table.name: session.execute(select(func.count()).select_from(table)).scalar_one()
            for table in SQLModel.metadata.sorted_tables
        }


def end_all(settings: Settings) -> None:
    with closing(sqlite3.connect(settings.ledger_file)) as ledger, ledger:
        ledger.execute(END_ALL)


def test_all_of_a_ledger_comes_along(tmp_path: Path, postgresql: str) -> None:
    source, target = f"sqlite:///{tmp_path}/ledger.db", new_database(postgresql)
    with closing(Ledger.open(source)) as ledger:
        populate(ledger)
        told = ledger.runs.get(ENDED), ledger.attempts.of_run(ENDED), ledger.traces.all()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger, ledger:
        # An older run that refers to a younger one, which is copied after it.
        ledger.execute("UPDATE run SET preempted_for = ? WHERE run_id = 'w1'", (ENDED,))
    Ledger.open(target).close()
    copied = copy_ledger(source, target)
    assert rows(source) == rows(target) == copied.rows
    assert copied.left == {}
    with closing(Ledger.find(target)) as ledger:
        assert (ledger.runs.get(ENDED), ledger.attempts.of_run(ENDED), ledger.traces.all()) == told
        more = [Trace("vgg", "v100", 1, 32, runtime_s=1.0)]
        assert ledger.traces.add(more) == 1  # its number is a new one
    with pytest.raises(LedgerError, match="has rows in"):
        copy_ledger(source, target)


def test_what_postgresql_refuses_is_counted_and_the_rest_comes(
    tmp_path: Path, postgresql: str
) -> None:
    source, target = f"sqlite:///{tmp_path}/ledger.db", new_database(postgresql)
    with closing(Ledger.open(source)) as ledger:
        populate(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE run SET reason = 'a' || char(0) WHERE run_id = ?", (ENDED,))
    Ledger.open(target).close()
    copied = copy_ledger(source, target)
    assert copied.left == {"run": 1}
    assert rows(target)["run"] == rows(source)["run"] - 1


def test_a_site_is_brought_over_when_its_runs_have_ended(settings: Settings) -> None:
    said: list[str] = []
    assert not have_database(settings, CLOCK, said.append)
    assert "stays on SQLite for now: 3 runs wait or are under way" in said[-1]
    assert settings.database_url.startswith("sqlite")
    assert not (settings.home / "database").exists()
    end_all(settings)
    before = rows(settings.database_url)
    assert have_database(settings, CLOCK, said.append)
    assert rows(settings.database_url) == before
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
    end_all(settings)
    with closing(sqlite3.connect(settings.home / "prefect/prefect.db")) as server, server:
        server.execute("INSERT INTO flow_run VALUES ('SCHEDULED', 0)")
    said: list[str] = []
    assert not have_database(settings, CLOCK, said.append)
    assert "1 runs wait" in said[0]


def test_a_takeover_may_be_broken_off_at_any_step(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_all(settings)
    before = rows(settings.database_url)

    class Killed(Exception):
        """As by SIGKILL: nothing of ours catches it."""

    def killed(*_: object) -> None:
        raise Killed

    for step in ("copy_ledger", "note_database", "put_aside"):
        with monkeypatch.context() as patched:
            patched.setattr(takeover, step, killed)
            with pytest.raises(Killed):
                have_database(settings, CLOCK, print)
        assert rows(settings.database_url) == before, step
    have_database(settings, CLOCK, print)
    assert settings.database_url.startswith("postgresql")
    assert rows(settings.database_url) == before
    assert not settings.ledger_file.exists()

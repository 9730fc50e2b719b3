"""All that a site's databases hold, in one file and back."""

import signal
import stat
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headway.admin.database.backup import NotRestored, back_up, restore
from headway.admin.database.dump import DumpFailed
from headway.admin.database.takeover import have_database
from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.ledger import Ledger, hosting
from headway.node.daemon import database_daemon
from headway.settings import Settings
from tests.support.lived_in import ENDED, populate

CLOCK = SystemClock()
pytestmark = [
    pytest.mark.postgresql,
    # What the test's own process starts outlives the object that started it, as it is meant to.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[tuple[Settings, Settings]]:
    """Of a site, and of another one."""
    found = Settings(home=tmp_path / "one"), Settings(home=tmp_path / "two")
    yield found
    for settings in found:
        database_daemon(settings).stop(signal.SIGINT, 30.0)


def test_a_site_is_as_it_was(homes: tuple[Settings, Settings], tmp_path: Path) -> None:
    site, other = homes
    have_database(site, CLOCK, print)
    with closing(Ledger.open(site.database_url)) as ledger:
        populate(ledger)
        told = ledger.runs.get(ENDED), ledger.traces.all(), ledger.leases.live()
        login = ledger.node_logins.add("there", actor="me")
    assert site.server_database is not None
    with psycopg.connect(site.server_database, autocommit=True) as server:
        server.execute("CREATE TABLE flow_run (name TEXT)")
        server.execute("INSERT INTO flow_run VALUES ('brave')")
    file = tmp_path / "site.backup"
    back_up(site, CLOCK, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.glob(".headway-backup-*")) == []
    with closing(Ledger.open(site.database_url)) as ledger:
        ledger.traces.add(told[1][:0])
        ledger.settings.put("after", {"the": "backup"})
    with pytest.raises(NotRestored, match="add --replace to give it up"):
        restore(site, CLOCK, file, replace=False, say=print)
    restore(site, CLOCK, file, replace=True, say=print)
    restore(other, CLOCK, file, replace=False, say=print)  # on a machine that takes its place
    for settings in homes:
        have_database(settings, CLOCK, print)
        with closing(Ledger.open(settings.database_url)) as ledger:
            assert (ledger.runs.get(ENDED), ledger.traces.all(), ledger.leases.live()) == told
            assert ledger.settings.get("after") is None
            assert ledger.settings.put("goes", {"on": 1})
            if settings is site:
                with closing(Ledger.find(login)) as of_a_node:
                    assert of_a_node.runs.of([ENDED]) == {}  # it was on no node of that name
            ledger.node_logins.add("there", actor="me")  # also where no server has its role
        assert settings.server_database is not None
        with psycopg.connect(settings.server_database) as server:
            assert server.execute("SELECT name FROM flow_run").fetchall() == [("brave",)]
        assert hosting.folder_of(settings.database_url) == settings.home / "database"


def test_what_is_damaged_changes_nothing(homes: tuple[Settings, Settings], tmp_path: Path) -> None:
    site, _ = homes
    have_database(site, CLOCK, print)
    with closing(Ledger.open(site.database_url)) as ledger:
        ledger.settings.put("kept", {"as": "it is"})
    file = tmp_path / "site.backup"
    back_up(site, CLOCK, file)
    with tarfile.open(file) as archive:
        (tmp_path / "parts").mkdir()
        for part in archive:
            content = archive.extractfile(part)
            assert content is not None, part
            (tmp_path / "parts" / part.name).write_bytes(content.read())
    dump = tmp_path / "parts/prefect.dump"
    dump.write_bytes(dump.read_bytes()[:700])
    with tarfile.open(file, "w") as archive:
        for part in (tmp_path / "parts").iterdir():
            archive.add(part, part.name)
    with pytest.raises(DumpFailed, match="was not changed"):
        restore(site, CLOCK, file, replace=True, say=print)
    with closing(Ledger.find(site.database_url)) as ledger:
        assert ledger.settings.get("kept") == {"as": "it is"}
    file.write_text("no backup")
    with pytest.raises(InvalidInput, match="give what `headway backup` wrote"):
        restore(site, CLOCK, file, replace=True, say=print)

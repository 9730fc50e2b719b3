"""Bringing a cluster to a newer version of PostgreSQL: dumped, and read into a new one."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sqlalchemy import make_url

from headway.admin.database.binaries import Binaries
from headway.admin.database.cluster import UNFINISHED, Cluster
from headway.admin.database.dump import dump, load
from headway.clock import Clock
from headway.ledger import hosting

_DATABASES = (hosting.LEDGER_DATABASE, hosting.PREFECT_DATABASE)


def upgrade(
    cluster: Cluster, newer: Binaries, url: str, clock: Clock, say: Callable[[str], None]
) -> Cluster:
    """Bring *cluster*, which is stopped, to *newer*; as it is then, stopped.

    It may be broken off at any point: until the new one is whole the old one is not touched,
    and it is kept under another name.

    Raises:
        StartFailed: One of the two does not come up.
        DumpFailed: What is in the old one cannot be read, or there is no room.
    """
    was = cluster.binaries
    say(f"bringing the database from PostgreSQL {was.version} to {newer.version} …")
    beside = replace(cluster, folder=_beside(cluster.folder), binaries=newer)
    with tempfile.TemporaryDirectory(prefix=".headway-upgrade-", dir=cluster.folder) as name:
        files = {database: Path(name) / database for database in _DATABASES}
        cluster.start(url, clock)
        for database, file in files.items():
            dump(newer, hosting.database_of(url, database), file)
        cluster.stop()
        beside.have_folder()
        password = make_url(url).password
        beside.make(str(password))
        new_url = hosting.socket_url(str(beside.folder), str(password))
        beside.start(new_url, clock)
        hosting.have_databases(new_url)
        for database, file in files.items():
            load(newer, hosting.database_of(new_url, database), file)
        beside.stop()
    (beside.folder / UNFINISHED).unlink()
    kept = cluster.folder / f"data-{was.major}"
    shutil.rmtree(kept, ignore_errors=True)
    cluster.data.rename(kept)
    finish_upgrade(cluster.folder)
    say(f"the database of PostgreSQL {was.version} is kept in {kept}; remove it when all is well")
    return replace(cluster, binaries=newer)


def finish_upgrade(folder: Path) -> None:
    """Put the new cluster in its place where an upgrade was broken off in its last step."""
    beside, data = _beside(folder), folder / "data"
    if not data.exists() and (beside / "data").exists() and not (beside / UNFINISHED).exists():
        (beside / "data").rename(data)
    if data.exists():
        shutil.rmtree(beside, ignore_errors=True)


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.new")

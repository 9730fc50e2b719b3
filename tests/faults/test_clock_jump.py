"""The clock of a whole machine jumps by ten days while a run trains.

Every process of the site, its database and its programs preload a wall clock that is the
machine's and an offset (`tests/support/wall_clock.c`); their monotonic clocks are the machine's.
"""

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import psycopg
import pytest

from tests.support import postgresql
from tests.support.site import ROOT, LiveSite, let_through, live_site, sleeper

pytestmark = [pytest.mark.prefect, pytest.mark.postgresql, pytest.mark.long]

DAY_S = 86_400
STEPS = 40


class JumpingSite:
    """A site and its clock."""

    def __init__(self, site: LiveSite, ledger_url: str, offset: Path) -> None:
        self.site = site
        self._ledger_url = ledger_url
        self._offset = offset

    def jump(self, days: int) -> None:
        """Let the wall clock of all its processes be so many days off."""
        with self._offset.open("r+b") as file:
            file.write(struct.pack("q", days * DAY_S))
        with psycopg.connect(self._ledger_url) as connection:
            (now_s,) = connection.execute("SELECT extract(epoch FROM now())::bigint").fetchone()
        assert now_s - time.time() == pytest.approx(days * DAY_S, abs=DAY_S / 2)


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JumpingSite]:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: the clock cannot be built")
    folder = tmp_path_factory.mktemp("clock")
    library, offset = folder / "wall_clock.so", folder / "offset"
    source = ROOT / "tests/support/wall_clock.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    offset.write_bytes(struct.pack("q", 0))
    let_through(folder)  # the database's account reads both files
    preloaded = {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(offset)}
    with ExitStack() as started:
        # A site's own database has an environment of its own, without this clock.
        with mock.patch.dict(os.environ, preloaded):
            address = started.enter_context(postgresql.server())
        ledger = postgresql.new_database(address)
        ours = {**preloaded, "HEADWAY_LEDGER_URL": ledger}
        site = started.enter_context(live_site(folder / "home", "process", **ours))
        yield JumpingSite(site, ledger, offset)


@pytest.mark.parametrize("days", [10, -10])
def test_a_clock_that_jumps_ends_no_run_and_teaches_nothing_false(
    jumping: JumpingSite, tmp_path: Path, days: int
) -> None:
    site = jumping.site
    job = sleeper(STEPS, name=f"jump-{abs(days)}", max_runtime="1h", retries=0)
    run_id = site.submit(tmp_path, **job)
    site.until_training(run_id)
    before = site.show(run_id)["progress"]["iteration"]
    jumping.jump(days)
    try:
        view = site.until(run_id, "Completed", "Failed", "Cancelled")
        assert (view["state"], view["attempt"]) == ("Completed", 1), view
        assert before < view["progress"]["iteration"] == STEPS
        assert view["measured"]["runtime_s"] < DAY_S
        assert len(site.run("logs", run_id).stdout.splitlines()) == STEPS
        after = site.submit(tmp_path, **sleeper(name=f"after-{abs(days)}"))
        assert site.until(after, "Completed", "Failed")["exit"]["kind"] == "ok"
    finally:
        jumping.jump(0)

"""The check at the end of a run of the tests finds what one of them left behind."""

import os
import subprocess
import sys
from pathlib import Path

from headway.ledger import hosting
from tests.support.leftovers import left_behind


def test_a_process_of_a_site_is_found_while_it_lives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input()"]
    env = os.environ | {"HEADWAY_HOME": str(tmp_path / "home")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=env) as process:
        (found,) = left_behind(tmp_path, leaving_s=0.0)
        assert found.startswith(f"process {process.pid}: ")
        process.communicate(b"\n")
    assert left_behind(tmp_path) == []


def test_a_database_outside_of_the_homes_is_found(tmp_path: Path) -> None:
    base, elsewhere = tmp_path / "base", tmp_path / "elsewhere"
    for home, folder in (("one", base / "one/database"), ("two", elsewhere)):
        folder.mkdir(parents=True)
        (base / home).mkdir(exist_ok=True)
        (base / home / "database.url").write_text(hosting.socket_url(str(folder), "secret"))
    assert left_behind(base) == [f"database {elsewhere} of the home {base / 'two'}"]
    elsewhere.rmdir()
    assert left_behind(base) == []

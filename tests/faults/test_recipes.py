"""What docs/operating.md says to do when something of a site was lost, and to remove a site."""

import shutil
from pathlib import Path

from headway.admin.database.own import made_by
from tests.support.site import LiveSite, free_port, let_through, processes_of, sleeper


def test_lost_secrets_are_made_anew_and_a_site_can_be_removed(tmp_path: Path) -> None:
    site = LiveSite(tmp_path / "home", "process", free_port())
    let_through(tmp_path)
    try:
        started = site.run("up")
        assert started.returncode == 0, started.stderr
        before = site.auth(), (site.home / "token").read_text()
        assert site.run("down", "--yes").returncode == 0
        for name in ("auth", "token"):
            (site.home / name).unlink()
        again = site.run("up")
        assert again.returncode == 0, again.stderr
        after = site.auth(), (site.home / "token").read_text()
        assert not set(before) & set(after)
        run = site.submit(tmp_path, **sleeper(2))
        assert site.until(run, "Completed", "Failed")["state"] == "Completed"
    finally:
        ended = site.run("down", "--stop", "--yes")
    assert ended.returncode == 0, ended.stderr
    assert processes_of(site.home) == []
    assert made_by(site.home / "database") > 0  # it lies in the home, and goes with it
    shutil.rmtree(site.home)

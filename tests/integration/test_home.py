"""A live site's home, tried by another user and by the one whom its programs run as."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.site import LiveSite

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

TRIES = r"""
import os, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
for path in sys.stdin.read().split("\0"):
    for may, what in ((os.R_OK, "read"), (os.W_OK, "write")):
        if path and os.access(path, may):
            print(what, path)
"""
WRITES = (
    "import os, shutil; out = os.environ['HEADWAY_OUTPUTS']\n"
    "open(out + '/model', 'w').write('m'); shutil.copy('/bin/true', out + '/tool')\n"
    "os.chmod(out + '/tool', 0o6755)\n"
    "print(open(os.environ['HEADWAY_DATA']).read(), os.getuid())\n"
)


def reached(home: Path, user: tuple[int, int]) -> set[str]:
    """What below *home* the user may read or write, by paths relative to it."""
    paths = [str(each) for each in (home, *home.rglob("*")) if not each.is_symlink()]
    done = subprocess.run(
        ["python3", "-c", TRIES, *map(str, user)],
        input="\0".join(paths), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.replace(str(home), "", 1) for line in done.stdout.splitlines()}


@pytest.fixture
def finished(site: LiveSite, tmp_path: Path) -> str:
    """A run that has read data and left outputs."""
    (tmp_path / "set.csv").write_text("hello data")
    run_id = site.submit(
        tmp_path,
        name="outputs",
        command=["python", "-c", WRITES],
        dataset={"uri": str(tmp_path / "set.csv")},
    )
    site.until(run_id, "Completed", "Failed")
    return run_id


def test_nobody_else_reads_what_a_site_keeps(site: LiveSite, finished: str) -> None:
    assert site.show(finished)["state"] == "Completed", site.show(finished)
    uid = site.count("SELECT first FROM team_uids WHERE team = 'default'")
    assert f"hello data {uid}" in site.run("logs", finished).stdout
    site.home.parent.chmod(0o711)
    assert reached(site.home, (54321, 54321)) == set()
    own = f"/runs/{finished}/"
    for each in reached(site.home, (uid, uid)):
        what, _, path = each.partition(" ")
        data = what == "read" and path.startswith("/cache/sets/") and "/data" in path
        assert data or path.startswith("/runs/"), each
    outputs = Path(f"{site.home}{own}outputs")
    for name in ("", "model", "tool"):
        assert (outputs / name).stat().st_uid == uid, name
    assert (outputs / "tool").stat().st_mode & 0o7777 == 0o755  # no set-uid, no set-gid
    for closed in ("database.url", "state/worker.log", "state/database.log"):
        assert (site.home / closed).stat().st_mode & 0o777 == 0o600, closed

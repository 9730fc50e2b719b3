"""A site of an early 0.2 that works is brought to this code, and back where that fails."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headway.ledger import Ledger
from headway.ledger.database import SCHEMA_VERSION
from tests.support.site import (
    BIN,
    PATIENCE_S,
    ROOT,
    LiveSite,
    free_port,
    let_through,
    processes_of,
    sleeper,
    wait_for,
)

OLD = "7db7af0f9dcadc7217ce96bf68bf2d3f34f32e9a"
OLD_SCHEMA = "0035"
pytestmark = [pytest.mark.long]


@pytest.fixture(scope="module")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of `OLD`; it runs with the packages of this one."""
    folder = tmp_path_factory.mktemp("old")
    known = subprocess.run(
        ["git", "cat-file", "-e", OLD], cwd=ROOT, capture_output=True, check=False
    )
    if known.returncode != 0:
        pytest.skip(f"this checkout has no history back to {OLD[:7]}")
    tree = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", folder], input=tree.stdout, check=True)
    let_through(folder)
    return folder


class OldSite(LiveSite):
    """A site by whose commands the old code is meant."""

    def __init__(self, home: Path, code: Path) -> None:
        super().__init__(home, "process", free_port())
        self.code = code

    def old(self, *arguments: str) -> str:
        """What `headway ARGUMENTS` of the old code says."""
        done = subprocess.run(
            [BIN / "headway", *arguments], cwd=self.code,
            env=self.env | {"PYTHONPATH": str(self.code)},
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def upgrade(self, **env: str) -> subprocess.CompletedProcess[str]:
        """`headway upgrade` of this code."""
        return subprocess.run(
            [BIN / "headway", "upgrade"], cwd=ROOT, env=self.env | env,
            capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S,
        )  # fmt: skip

    def lines(self, run_id: str) -> int:
        """What the first attempt of a run has written."""
        return (self.home / f"runs/{run_id}/log/attempt-1.log").read_text().count('"iteration"')

    def schema(self) -> str | None:
        """Of its ledger."""
        return Ledger.schema(self.ledger_url())

    def is_old(self) -> bool:
        """Whether its server is of the old code, and answers."""
        environ = Path(f"/proc/{self.pids()['server']}/environ").read_text()
        return f"PYTHONPATH={self.code}" in environ and self.call("GET", "health") is True


@pytest.fixture
def site(tmp_path: Path, old_code: Path) -> Iterator[OldSite]:
    found = OldSite(tmp_path / "home", old_code)
    let_through(tmp_path)
    try:
        found.old("up")
        yield found
    finally:
        ended = found.run("down", "--stop", "--yes")
        wait_for(lambda: not processes_of(found.home), lambda: f"{ended.stderr}{ended.stdout}")


def test_what_runs_goes_on_and_what_waits_starts(site: OldSite, tmp_path: Path) -> None:
    jobs = {}
    free = 0.7 * (os.cpu_count() or 1)  # more than beside the others, less than the node has
    cpus = {"going": 0.2, "other": 0.4 * (os.cpu_count() or 1), "waiting": free}
    for name, each in cpus.items():
        job = sleeper(2400 if name != "waiting" else 4, name=name)
        job["resources"] |= {"cpus": each}
        jobs[name] = _submit(site, tmp_path, job)
    going, other = jobs["going"], jobs["other"]
    wait_for(
        lambda: all(
            (site.home / f"runs/{run}/log/attempt-1.log").exists() for run in (going, other)
        ),
        lambda: site.old("runs"),
    )
    site.old("user", "add", "ada", "--team", "vision")
    token = (site.home / "token").read_text()
    programs = _programs(site)
    assert len(programs) >= 2
    assert site.schema() == OLD_SCHEMA

    # Nothing else of this code changes the tables, or begins beside the old one.
    for words in (("up",), ("user", "list"), ("node", "drain", "test-node")):
        refused = site.run(*words)
        assert refused.returncode == 2, refused.stdout
        assert (
            f"the ledger is at {OLD_SCHEMA}, this headway needs {SCHEMA_VERSION}" in refused.stderr
        )
        assert "Run `headway upgrade` on the site's machine" in refused.stderr
    advice = site.run("doctor").stderr + site.run("doctor").stdout
    assert "Do first: ledger: the ledger is at" in advice, advice
    assert (site.schema(), site.is_old()) == (OLD_SCHEMA, True)

    # A migration that fails: a table that it makes is there.
    with psycopg.connect(site.ledger_url(), autocommit=True) as database:
        database.execute("CREATE TABLE leader (in_the_way INTEGER)")
    failed = site.upgrade()
    assert failed.returncode != 0
    assert "the site of before is up again" in failed.stderr, failed.stderr
    assert (site.schema(), site.is_old()) == (OLD_SCHEMA, True)
    with psycopg.connect(site.ledger_url(), autocommit=True) as database:
        database.execute("DROP TABLE leader")

    # A process that does not come up, once the tables are changed.
    taken = site.env["HEADWAY_PORT"]  # the server's own
    failed = site.upgrade(HEADWAY_GATEWAY_PORT=taken, HEADWAY_HOST="127.0.0.1")
    assert failed.returncode != 0
    assert "the site of before is up again" in failed.stderr, failed.stderr
    (named,) = {file for file in (site.home / "backups").iterdir() if str(file) in failed.stderr}
    assert named.name.endswith(f"-schema-{OLD_SCHEMA}.backup")
    assert (site.schema(), site.is_old()) == (OLD_SCHEMA, True)
    seen = site.lines(going)
    wait_for(lambda: site.lines(going) > seen + 8, lambda: "the run does not go on")
    assert "going" in site.old("runs")

    done = site.upgrade()
    assert done.returncode == 0, done.stderr
    assert (site.schema(), site.is_old()) == (SCHEMA_VERSION, False)
    assert _programs(site) == programs
    for run in (going, other):
        seen = site.lines(run)
        wait_for(lambda run=run, seen=seen: site.lines(run) > seen + 8, site.worker_log)
    views = {name: site.show(run) for name, run in jobs.items()}
    assert [views[name]["state"] for name in ("going", "other")] == ["Running", "Running"]
    assert {view["attempt"] for view in views.values()} == {1}
    assert views["waiting"]["state"].startswith("Awaiting"), views["waiting"]
    assert {each["run_id"] for each in site.json("runs")} == set(jobs.values())
    assert (site.home / "token").read_text() == token
    with closing(Ledger.find(site.ledger_url())) as ledger:
        assert {each.user for each in ledger.access_tokens.all()} >= {"ada"}
    assert site.run("cancel", other).returncode == 0
    view = site.until(jobs["waiting"], "Completed", "Failed")
    assert (view["state"], view["attempt"], site.lines(jobs["waiting"])) == ("Completed", 1, 4)


def _submit(site: OldSite, folder: Path, job: dict[str, object]) -> str:
    path = folder / f"{job['name']}.json"
    path.write_text(json.dumps(job))
    run_id: str = json.loads(site.old("submit", str(path), "--json"))["run_id"]
    return run_id


def _programs(site: OldSite) -> set[int]:
    return {
        process.pid
        for process in processes_of(site.home)
        if "2400" in (process.info["cmdline"] or ())
    }

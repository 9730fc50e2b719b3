"""`headway prune` on a real ledger: what has ended goes, whatever else is there stays."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from benchmarks.answers import checked
from headway.admin.database.own import start_database
from headway.admin.database.takeover import have_database
from headway.admin.processes import StartFailed
from headway.cli.main import headway
from headway.clock import SystemClock
from headway.home import ballast_given_up, settle
from headway.ledger import hosting
from headway.model.lease import Demand
from headway.model.run import Exit, ExitKind, Measurement
from headway.node.daemon import database_daemon
from headway.node.flowlock import hold_flow
from headway.node.prune import remove, tidy
from headway.settings import Settings, read_settings
from headway.site import Site
from headway.this_node import adopt, join_site
from headway.units import MIB
from tests.support.containers import create_container
from tests.support.fence import fence_of
from tests.support.leading import grant_in_term
from tests.support.on_ledger import enqueue
from tests.support.postgresql import with_ledger
from tests.support.site import forget_site
from tests.support.small_disk import filled, small_disk

DONE = Exit(ExitKind.OK, 0, "done")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    home = tmp_path / "home"
    monkeypatch.setenv("HEADWAY_HOME", str(home))
    monkeypatch.setenv("HEADWAY_RUNTIME", "process")
    monkeypatch.setenv("HEADWAY_NODE", "here")
    forget_site()
    site = Site(Settings(home=with_ledger(home), runtime="process", node="here"), SystemClock())
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)
    site.ledger.close()
    forget_site()


def add(site: Site, number: int, *, ended: bool = True) -> str:
    """A run with a folder of 1 MiB."""
    run_id = str(UUID(int=number))
    enqueue(
        site.ledger, run_id, {"name": "job", "image": "i", "command": ["x"]}, name=f"job-{number}"
    )
    if ended:
        site.ledger.runs.finish(fence_of(site.ledger, run_id), DONE, Measurement())
    outputs = site.settings.runs_dir / run_id / "outputs"
    outputs.mkdir(parents=True)
    (outputs / "model").write_bytes(os.urandom(MIB))
    return run_id


def left(site: Site) -> set[str]:
    return {path.name for path in site.settings.runs_dir.iterdir()}


def prune(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(headway, ["prune", *arguments], input=answer)


def test_it_says_what_goes_and_asks(site: Site) -> None:
    runs = [add(site, number) for number in (1, 2, 3)]
    got = prune("--keep-at-most", "2500KiB", "--dry-run")
    assert got.exit_code == 0, got.output
    assert "1 finished runs, 1.0 MiB" in got.stdout
    assert runs[0][:8] in got.stdout
    assert left(site) == set(runs)
    assert "Remove them?" in prune("--keep-at-most", "2500KiB", answer="n\n").output
    assert left(site) == set(runs)
    assert "1 of 1 removed" in prune("--keep-at-most", "2500KiB", answer="y\n").output
    assert left(site) == set(runs[1:])
    got = prune("--older-than", "0s", "--yes", "--json")
    assert [run["removed"] for run in checked(("prune",), got.stdout)["runs"]] == [True, True]
    assert left(site) == set()
    assert prune("--older-than", "0s").stdout == "nothing to remove\n"


def test_what_may_still_be_needed_stays(site: Site, tmp_path: Path) -> None:
    waits, held, contained = add(site, 1, ended=False), add(site, 3, ended=False), add(site, 4)
    stranger = site.settings.runs_dir / "00000000-0000-4000-8000-00000000abcd"
    stranger.mkdir()
    (site.settings.runs_dir / "notes").mkdir()
    lease = grant_in_term(site.ledger, held, "here", Demand(MIB, 0.1))
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    site.ledger.runs.finish(
        fence_of(site.ledger, held), DONE, Measurement()
    )  # its flow has not cleaned up yet
    create_container(site, contained)
    everything = left(site)
    got = prune("--older-than", "0s", "--yes")
    assert got.stdout == "nothing to remove\n", got.output
    assert not any(remove(site, run) for run in (waits, held, contained))
    assert not remove(site, stranger.name)
    assert left(site) == everything


def test_an_ended_run_goes_though_its_flow_waits_until_prefect_hears_of_it(site: Site) -> None:
    run_id = add(site, 1)
    with hold_flow(site.settings.state_dir, run_id):
        assert "1 of 1 removed" in prune("--older-than", "0s", "--yes").stdout
    assert left(site) == set()


def test_no_link_is_followed(site: Site, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "outputs").mkdir(parents=True)
    (precious / "file").touch()
    first, second = add(site, 1), add(site, 2)
    (site.settings.runs_dir / first / "outputs/link").symlink_to(precious)
    moved = tmp_path / "moved"
    (site.settings.runs_dir / second).rename(moved)
    (site.settings.runs_dir / second).symlink_to(precious)
    assert prune("--older-than", "0s", "--yes").exit_code == 0
    assert not remove(site, second)
    assert left(site) == {second}
    assert (precious / "file").exists()


def test_a_run_of_very_many_nested_folders_goes_and_keeps_no_other(site: Site) -> None:
    """Python's own removal ends at its limit of recursion, and did so in each later round."""
    deep, other = add(site, 1), add(site, 2)
    here = os.open(site.settings.runs_dir / deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    got = prune("--older-than", "0s", "--yes")
    assert "2 of 2 removed" in got.output, got.output
    assert left(site).isdisjoint({deep, other})


def test_a_removal_that_was_killed_is_completed(site: Site) -> None:
    run_id = add(site, 1)
    (site.settings.runs_dir / ".gone-0123/outputs").mkdir(parents=True)
    assert remove(site, run_id)
    assert left(site) == set()


def test_a_checkpoint_goes_before_its_folder_and_never_of_what_may_go_on(site: Site) -> None:
    ended, waits, precious = add(site, 1), add(site, 2, ended=False), site.settings.home / "else"
    (precious / "checkpoint").mkdir(parents=True)
    linked = add(site, 3)
    for run_id in (ended, waits):
        (site.settings.runs_dir / run_id / "checkpoint").mkdir()
        (site.settings.runs_dir / run_id / "checkpoint/model.pt").touch()
    (site.settings.runs_dir / linked / "checkpoint").symlink_to(precious)
    everything = {*site.settings.runs_dir.rglob("*")}
    assert tidy(site) == 0  # they have ended just now
    adopt(site, "node/here", {"keep_checkpoint_days": None})
    assert tidy(site) == 0
    adopt(site, "node/here", {"keep_checkpoint_days": 1e-9})
    assert tidy(site) == 1
    gone = everything - {*site.settings.runs_dir.rglob("*")}
    folder = site.settings.runs_dir / ended / "checkpoint"
    assert gone == {folder, folder / "model.pt"}
    assert tidy(site) == 0
    assert (precious / "checkpoint").is_dir()


def test_the_nodes_settings_are_kept_by_its_worker_and_the_command(site: Site) -> None:
    runs = {add(site, number) for number in (1, 2)}
    assert tidy(site) == 0
    assert left(site) == runs
    got = prune()
    assert got.exit_code == 2
    assert 'headway-node/here: got "no limits"; give --older-than 90d' in got.stderr
    adopt(site, "node/here", {"keep_days": 30, "keep_size": "1500KiB"})
    time.sleep(1.0)  # what another process has put counts within a second
    assert "1 finished runs" in prune("--dry-run").stdout
    assert tidy(site) == 1
    assert len(left(site)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--older-than", "ever"], '--older-than: got "ever"; give a duration'),
        (["--keep-at-most", "-1"], '--keep-at-most: got "-1"; give a size'),
        (["--older-than", "1d", "--json"], "add --yes or --dry-run"),
    ],
)
def test_bad_limits_are_one_line(site: Site, arguments: list[str], said: str) -> None:
    got = prune(*arguments)
    assert got.exit_code == 2
    assert said in got.stderr


def test_a_full_disk_gives_up_its_ballast_and_has_it_again_once_there_is_room(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    with small_disk(tmp_path / "disk", 256) as disk:
        with ballast_given_up(disk, said.append) as short:
            assert not short
        ballast_bytes = (disk / "ballast").stat().st_blocks * 512
        assert ballast_bytes >= 12 * MIB
        with filled(disk):
            assert shutil.disk_usage(disk).free == 0
            with ballast_given_up(disk, said.append) as short:
                assert short
                assert shutil.disk_usage(disk).free >= ballast_bytes
            (line,) = said
            assert line.startswith(f"the disk at {disk} has 0 B of 256 MiB free: giving up {disk}")
            assert not (disk / "ballast").exists()  # there is no room for it
        with ballast_given_up(disk, said.append) as short:
            assert not short
        assert (disk / "ballast").exists()


def test_what_fails_on_a_full_disk_names_the_disk_and_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", 80) as disk:
        monkeypatch.setenv("HEADWAY_HOME", str(disk / "home"))
        forget_site()
        with filled(disk):
            got = CliRunner().invoke(headway, ["up"])
            assert got.exit_code == 2
            assert f"the disk at {disk} has 0 B of 80 MiB free" in got.output
            assert "`headway prune --older-than 7d` removes folders of ended runs" in got.output
            got = CliRunner().invoke(headway, ["runs"])  # there is no gateway
            assert got.exit_code == 3
            assert f"On this machine the disk at {disk} has 0 B of 80 MiB free" in got.output
        got = CliRunner().invoke(headway, ["runs"])
        assert "disk" not in got.output
    forget_site()


def test_prune_alone_frees_a_disk_that_is_so_full_that_the_database_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", 600) as disk:
        for name, value in (("HOME", str(disk / "home")), ("RUNTIME", "process"), ("NODE", "here")):
            monkeypatch.setenv(f"HEADWAY_{name}", value)
        forget_site()
        site = Site(read_settings(), SystemClock())
        settings = site.settings
        with ballast_given_up(settings.home, print):  # as `headway up` does
            settle(settings.home)
            if not have_database(settings, site.clock, print):
                pytest.skip("no PostgreSQL is here")
        try:
            site = Site(read_settings(), SystemClock())
            join_site(site)
            run_id = add(site, 1)
            site.ledger.close()
            with filled(disk):
                database_daemon(settings).stop(signal.SIGKILL, 10.0)
                with pytest.raises(StartFailed):
                    start_database(settings, site.clock, print)
                forget_site()
                got = prune("--older-than", "0s", "--yes")
                assert got.exit_code == 0, got.output
                assert "1 of 1 removed" in got.output
                assert not (settings.runs_dir / run_id).exists()
                assert hosting.answers(settings.database_url)
        finally:
            database_daemon(settings).stop(signal.SIGINT, 60.0)
            forget_site()

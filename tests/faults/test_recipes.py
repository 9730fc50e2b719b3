"""What docs/operating.md says to do when something went wrong, done on real sites."""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from headway.admin.database.own import made_by
from headway.gateway import certificate
from headway.model.run import RESTARTED
from headway.settings import Settings
from headway.this_node import OPERATORS_TEAM, os_user
from headway.units import MIB
from tests.support.nodes import StubNode, several_nodes
from tests.support.site import (
    BIN,
    LiveSite,
    free_port,
    let_through,
    live_site,
    processes_of,
    sleeper,
    wait_for,
    within_this_process,
)
from tests.support.small_disk import filled, small_disk

HERE = {"HEADWAY_ADDRESS": "127.0.0.1"}
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def up(site: LiveSite) -> None:
    started = site.run("up")
    assert started.returncode == 0, started.stderr + started.stdout


def do_first(site: LiveSite) -> str:
    """The last line of `headway doctor`; empty where nothing is wrong."""
    found = site.run("doctor")
    (*_, last) = (found.stdout + found.stderr).strip().splitlines()
    assert (found.returncode != 0) == last.startswith("Do first: "), found.stdout
    return last.removeprefix("Do first: ") if found.returncode else ""


def lines(site: LiveSite, run_id: str) -> int:
    """What the first attempt of a run has written."""
    return (site.home / f"runs/{run_id}/log/attempt-1.log").read_text().count('"iteration"')


def test_lost_secrets_are_made_anew_while_a_run_goes_on_and_a_site_can_be_removed(
    tmp_path: Path,
) -> None:
    site = LiveSite(tmp_path / "home", "process", free_port())
    let_through(tmp_path)
    try:
        up(site)
        going = site.submit(tmp_path, **sleeper(4000))
        site.until_training(going)
        assert do_first(site) == ""

        before = _secrets(site)
        (site.home / "auth").unlink()
        assert "`headway up`" in do_first(site)
        up(site)
        assert do_first(site) == ""
        (site.home / "token").unlink()
        assert do_first(site).startswith(f"gateway: {site.home}/token is lost")
        (site.home / "database.url").unlink()
        assert do_first(site).startswith("database: its password, the file database.url, is lost")
        up(site)
        assert do_first(site) == ""
        assert not set(before) & set(_secrets(site))

        token = site.at_the_gateway()  # known to others
        revoked = site.run("user", "revoke", os_user(), "--team", OPERATORS_TEAM)
        assert revoked.returncode == 0, revoked.stderr
        up(site)
        assert site.at_the_gateway() != token
        assert within_this_process(["runs"], site.env | token).returncode != 0

        seen = lines(site, going)
        wait_for(lambda: lines(site, going) > seen + 8, site.worker_log)
        view = site.show(going)
        assert (view["state"], view["attempt"]) == ("Running", 1)
        run = site.submit(tmp_path, **sleeper(2, name="new"))
        assert site.until(run, "Completed", "Failed")["state"] == "Completed"
    finally:
        ended = site.run("down", "--stop", "--yes")
    assert ended.returncode == 0, ended.stderr
    assert processes_of(site.home) == []
    assert made_by(site.home / "database") > 0  # it lies in the home, and goes with it
    shutil.rmtree(site.home)


@pytest.mark.postgresql
def test_a_node_joins_again_behind_a_new_auth_string(postgresql: str, tmp_path: Path) -> None:
    nodes = {"head": StubNode(0, env=HERE), "left": StubNode(0, env=HERE)}
    with several_nodes(tmp_path, postgresql, nodes) as sites:
        head, left = sites["head"], sites["left"]
        going = _on_left(head, tmp_path, "going", 4000)
        head.until_training(going)
        (head.home / "auth").unlink()
        up(head)
        left.env["PREFECT_API_AUTH_STRING"] = head.auth()
        ledger = (left.home / "ledger.url").read_text().strip()
        again = left.run("node", "join", "--server", f"{head.url}/api", "--ledger", ledger)
        assert again.returncode == 0, again.stderr
        assert "what runs has other settings (auth): restarting it" in again.stdout
        done = _on_left(head, tmp_path, "done", 1)
        view = head.until(done, "Completed", "Failed")
        assert (view["state"], view["node"]) == ("Completed", "left")
        log = left.home / f"runs/{going}/log/attempt-1.log"
        seen = log.read_text().count("iteration")
        wait_for(lambda: log.read_text().count("iteration") > seen + 8, left.worker_log)
        view = head.show(going)
        assert (view["state"], view["attempt"]) == ("Running", 1)


def _on_left(site: LiveSite, folder: Path, name: str, steps: int) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(sleeper(steps, name=name)))
    run_id: str = site.json("submit", str(path), "--node", "left")["run_id"]
    return run_id


def _secrets(site: LiveSite) -> list[str]:
    return [(site.home / name).read_text() for name in ("auth", "token", "database.url")]


def test_a_machine_that_was_restarted_goes_on_with_its_queue(tmp_path: Path) -> None:
    """All its processes are gone at once; boot id and time of the boot are others."""
    if subprocess.run([*_booted(), "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("another boot needs root, and namespaces of mounts and time")
    boot = tmp_path / "boot_id"
    boot.write_text(f"{uuid4()}\n")
    with live_site(tmp_path / "home", "process") as site:
        done = site.submit(tmp_path, **sleeper(1, name="done"))
        site.until(done, "Completed")
        going = site.submit(tmp_path, **sleeper(80, name="going"))
        site.until_training(going)
        all_cpus = {"host_memory": "256MiB", "cpus": float(os.cpu_count() or 1)}
        waiting = site.submit(tmp_path, **sleeper(1, name="waiting", resources=all_cpus))
        _lose_power(site)
        assert do_first(site).startswith("database: PostgreSQL does not run; run `headway up`")

        mount = f'mount --bind {boot} {BOOT_ID} && exec "$@"'
        again = site.command([*_booted(), mount, "sh"], ["up"])
        assert again.returncode == 0, again.stderr
        view = site.until(going, "Completed", "Failed")
        assert (view["state"], view["attempt"]) == ("Completed", 2)
        told = {each["exit"]["kind"]: each["exit"]["message"] for each in view["attempts"]}
        assert told["preempted"] == RESTARTED  # it costs no retry
        assert site.until(waiting, "Completed", "Failed")["attempt"] == 1
        assert site.show(done)["state"] == "Completed"
        assert {each["run_id"] for each in site.json("runs")} == {done, going, waiting}


def _booted() -> list[str]:
    """What runs a command of a shell on the machine as if that had been started a second ago."""
    since_s = int(time.clock_gettime(time.CLOCK_BOOTTIME)) - 1
    return ["unshare", "--mount", "--time", f"--boottime=-{since_s}", "sh", "-c"]


def _lose_power(site: LiveSite) -> None:
    """Kill whatever the site has started, runs and database with it, before it sees that."""
    home = str(site.home)
    found = [
        *processes_of(site.home),
        *(each for each in psutil.process_iter(["cmdline", "name"]) if _is_postgres(each, home)),
    ]
    everything = {each.pid: each for each in found}
    everything |= {child.pid: child for each in found for child in _children(each)}
    for how in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none restarts another
        for each in everything.values():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(how)
    psutil.wait_procs(list(everything.values()), 30)


def _is_postgres(process: psutil.Process, home: str) -> bool:
    return any(word.startswith(home) for word in process.info["cmdline"] or ())


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def test_another_address_and_a_certificate_that_expires(tmp_path: Path) -> None:
    with live_site(tmp_path / "home", "process", HEADWAY_GATEWAY_HOST="127.0.0.2") as site:
        going = site.submit(tmp_path, **sleeper(4000))
        site.until_training(going)
        member = _logged_in(site, tmp_path / "ada", "127.0.0.2")
        assert do_first(site) == ""

        site.env["HEADWAY_GATEWAY_HOST"] = "127.0.0.3"
        site.env["HEADWAY_GATEWAY_NAMES"] = "localhost"
        assert "for 127.0.0.2: run `headway certificate --renew`, then `headway up`" in do_first(
            site
        )
        refused = site.run("up")  # it changes nothing
        assert (refused.returncode, "`headway certificate --renew`" in refused.stderr) == (2, True)
        assert within_this_process(["runs"], member).returncode == 0
        _renew(site)
        assert within_this_process(["runs"], member).returncode == 3
        member = _logged_in(site, tmp_path / "bob", "127.0.0.3")
        assert set(site.json("certificate")["names"]) == {"127.0.0.2", "127.0.0.3", "localhost"}

        for lasts, words in ((timedelta(days=14), "it holds until"), (-timedelta(1), "expired")):
            _let_last(site, lasts)
            assert do_first(site).startswith("certificate: ")
            assert words in do_first(site)
            came = site.run("up")
            assert (came.returncode == 0) == (lasts > timedelta()), came.stderr
            if came.returncode == 0:
                member = _logged_in(site, tmp_path / "cleo", "127.0.0.3")
            else:
                assert "expired: run `headway certificate --renew`" in came.stderr
                assert within_this_process(["runs"], member).returncode == 0
        _renew(site)
        assert within_this_process(["runs"], member).returncode == 3
        again = _logged_in(site, tmp_path / "dora", "127.0.0.3")
        assert within_this_process(["runs"], again).returncode == 0
        view = site.show(going)
        assert (view["state"], view["attempt"]) == ("Running", 1)


def _renew(site: LiveSite) -> None:
    """The recipe."""
    renewed = site.run("certificate", "--renew")
    assert renewed.returncode == 0, renewed.stderr
    up(site)
    assert do_first(site) == ""


def _let_last(site: LiveSite, lasts: timedelta) -> None:
    """Let the gateway's certificate, made ten years ago, end in so long."""
    host = site.env["HEADWAY_GATEWAY_HOST"]
    settings = Settings(home=site.home, gateway_host=host)
    made = datetime.now(UTC) - timedelta(days=3650) + lasts
    certificate.make_certificate(settings, ["localhost", host], made)


def _logged_in(site: LiveSite, config: Path, address: str) -> dict[str, str]:
    """The environment of a member who has logged in at *address* by the fingerprint of now."""
    token = site.json("user", "add", config.name, "--team", "vision")["token"]
    env = {k: v for k, v in site.env.items() if not k.startswith("HEADWAY_")}
    env |= {"XDG_CONFIG_HOME": str(config), "HEADWAY_HOME": str(config / "home")}
    url = f"https://{address}:{site.env['HEADWAY_GATEWAY_PORT']}"
    fingerprint = site.json("certificate")["fingerprint"]
    done = subprocess.run(
        [BIN / "headway", "login", url, "--fingerprint", fingerprint, "--token-stdin"],
        env=env, input=f"{token}\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return env


def test_a_full_disk_is_freed_and_nothing_is_broken(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 900) as disk:
        let_through(disk)
        with live_site(disk / "home", "process") as site:
            big = site.submit(tmp_path, **sleeper(1, name="big"))
            site.until(big, "Completed")
            (site.home / f"runs/{big}/outputs/model").write_bytes(os.urandom(100 * MIB))
            going = site.submit(tmp_path, **sleeper(200, name="going", retries=3))
            site.until_training(going)
            with filled(disk):
                said = do_first(site)
                assert said.startswith(f"disk: the disk at {disk} has 0 B of 900 MiB free")
                assert "`headway prune" in said
                path = tmp_path / "new.json"
                path.write_text(json.dumps(sleeper(1, name="new")))
                tried = site.run("submit", str(path), "--json")
                if tried.returncode != 0:  # where the database found no room for it
                    assert "`headway prune --older-than 7d` removes folders" in tried.stderr
                freed = site.run("prune", "--older-than", "0s", "--yes")
                assert freed.returncode == 0, freed.stderr
                assert not (site.home / f"runs/{big}").exists()
                up(site)
                later = site.submit(tmp_path, **sleeper(1, name="later"))
                # Its program may have found no room for a line, and ended: it is tried again.
                expected = {going, later}
                if tried.returncode == 0:
                    expected.add(json.loads(tried.stdout)["run_id"])
                for run in expected:
                    assert site.until(run, "Completed", "Failed")["state"] == "Completed"
            compared = site.run("doctor", "--invariants")
            assert compared.returncode == 0, compared.stdout

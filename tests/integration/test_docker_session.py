"""Sessions in containers of a real engine: pages, `forward`, a shell, their end without use."""

import shutil
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from headway.client.ways import Forward
from headway.credentials import Address
from headway.model.session import session_path
from tests.support.site import BIN, ROOT, LiveSite, free_port, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.docker]

SMALL = ("--image", "headway-test/python:local", "--set", "resources.host_memory=256MiB")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of code, with the program of samples/session."""
    shutil.copytree(ROOT / "samples/session", tmp_path / "code/samples/session")
    return tmp_path / "code"


def typed(live: LiveSite, folder: Path, *words: str, **more: object) -> "subprocess.Popen[str]":
    """`headway session …`, as it is typed in *folder*."""
    return subprocess.Popen(
        [BIN / "headway", "session", *SMALL, *words], env=live.env, cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def serving(live: LiveSite, folder: Path, port: int, *words: str) -> str:
    """A session whose program listens at *port*; its run."""
    made = typed(
        live, folder, "-d", *words, str(port), "--", "python", "-u", "-m", "samples.session.serve"
    )
    out, err = made.communicate(timeout=60)
    assert made.returncode == 0, err
    run_id = run_of(out)
    assert f"headway forward {run_id[:8]}" in out
    return run_id


def run_of(said: str) -> str:
    return said.splitlines()[0].partition(": ")[2]


def test_a_page_is_served_from_its_container(docker_site: LiveSite, folder: Path) -> None:
    live, port = docker_site, free_port()
    run_id = serving(live, folder, port, "--user-folder", "--idle", "8s")
    token = (live.home / "token").read_text().strip()
    mine = {"Authorization": f"Bearer {token}"}
    pages = f"http://127.0.0.1:{live.env['HEADWAY_SESSIONS_PORT']}{session_path(run_id)}"

    def opened() -> bool:
        return httpx.get(pages, headers=mine).status_code == 200

    wait_for(opened, lambda: f"{httpx.get(pages, headers=mine).text}\n{live.worker_log()}")
    assert live.show(run_id)["lease"]["ports"] == [port]
    kept = httpx.post(pages, headers=mine, data={"note": "from a container"})
    assert kept.status_code == 303
    assert "<li>from a container" in httpx.get(pages, headers=mine).text
    gateway = Address(f"http://127.0.0.1:{live.env['HEADWAY_GATEWAY_PORT']}", token)
    way = Forward(gateway, run_id, port, local_port=0, said=print)
    threading.Thread(target=way.serve, daemon=True).start()
    try:
        assert httpx.get(f"http://127.0.0.1:{way.local_port}/").text == "only by the gateway"
    finally:
        way.close()
    ended = live.until(run_id, "Completed", "Failed")
    assert "nobody was connected" in ended["exit"]["message"], ended["exit"]


def test_two_runs_that_serve_one_port_share_a_node(docker_site: LiveSite, folder: Path) -> None:
    """As `docker run -p 12311:12345` and `-p 12312:12345` of one image do."""
    live = docker_site
    runs = [serving(live, folder, 12_345) for _ in range(2)]
    token = (live.home / "token").read_text().strip()
    gateway = Address(f"http://127.0.0.1:{live.env['HEADWAY_GATEWAY_PORT']}", token)
    found = set()
    for run_id in runs:
        way = Forward(gateway, run_id, 12_345, local_port=0, said=print)
        threading.Thread(target=way.serve, daemon=True).start()

        def answers(at: str = f"http://127.0.0.1:{way.local_port}/") -> bool:
            try:
                return httpx.get(at).text == "only by the gateway"
            except httpx.TransportError:
                return False

        try:
            wait_for(answers, live.worker_log)
        finally:
            way.close()
        view = live.show(run_id)
        assert (view["state"], view["lease"]["ports"]) == ("Running", [12_345])
        (port,) = view["lease"]["host_ports"]
        assert f"port 12345 at 127.0.0.1:{port} of the node" in live.run("show", run_id).stdout
        found.add(port)
    assert len(found) == 2
    for run_id in runs:
        live.run("cancel", run_id)
    for run_id in runs:
        live.until(run_id, "Cancelled")


def test_a_shell_is_opened_in_its_container_and_ends_it(
    docker_site: LiveSite, folder: Path
) -> None:
    live = docker_site
    shell = typed(live, folder, "shell")
    script = "ls; echo run $HEADWAY_RUN_ID; exit 3\n"
    out, err = shell.communicate(script, timeout=180)
    assert shell.returncode == 3, out + err
    run_id = run_of(out)
    assert out.splitlines()[-2:] == ["samples", f"run {run_id}"]
    ended = live.until(run_id, "Completed", "Failed", "Cancelled")
    assert (ended["state"], ended["exit"]["kind"]) == ("Completed", "ok"), ended["exit"]
    assert ended["lease"] is None or not ended["lease"]["ports"]

"""Sessions in containers of a real engine: pages, `forward`, a shell, their end without use."""

import shutil
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from headway.client.forward import Forward
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


def run_of(said: str) -> str:
    return said.splitlines()[0].partition(": ")[2]


def test_a_page_is_served_from_its_container(docker_site: LiveSite, folder: Path) -> None:
    live, port = docker_site, free_port()
    made = typed(
        live, folder, "-d", "--user-folder", "--idle", "4s",
        str(port), "--", "python", "-u", "-m", "samples.session.serve",
    )  # fmt: skip
    out, err = made.communicate(timeout=60)
    assert made.returncode == 0, err
    run_id = run_of(out)
    assert f"headway forward {run_id[:8]}" in out
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


def test_a_shell_is_opened_in_its_container_and_ends_it(
    docker_site: LiveSite, folder: Path
) -> None:
    live = docker_site
    shell = typed(live, folder, "--idle", "4s", "shell")
    script = "ls; echo run $HEADWAY_RUN_ID; sleep 8; echo still here; exit 3\n"
    out, err = shell.communicate(script, timeout=180)
    assert shell.returncode == 3, out + err
    run_id = run_of(out)
    # Longer than its idle time: an open shell is use, also where nobody types.
    assert out.splitlines()[-3:] == ["samples", f"run {run_id}", "still here"]
    ended = live.until(run_id, "Completed", "Failed", "Cancelled")
    assert (ended["state"], ended["exit"]["kind"]) == ("Completed", "ok"), ended["exit"]
    assert ended["lease"] is None or not ended["lease"]["ports"]

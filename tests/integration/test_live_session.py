"""samples/session on a live site: its page at the gateway's other port, and its end without use."""

import json
import subprocess
from pathlib import Path

import httpx
import pytest

from headway.model.session import session_path
from tests.support.site import BIN, LiveSite, sleeper, wait_for

JOB = {
    "name": "notes",
    "image": "headway-samples:local",
    "command": ["python", "-u", "-m", "samples.session.serve"],
    "session": {"idle": "3s"},
    "resources": {"host_memory": "256MiB"},
    "retries": 0,
}


@pytest.mark.prefect
def test_its_owner_opens_it_and_it_ends_when_nobody_does(
    process_site: LiveSite, tmp_path: Path
) -> None:
    live = process_site
    run_id = live.submit(tmp_path, **JOB)
    live.until(run_id, "Running")
    gateway = f"http://127.0.0.1:{live.env['HEADWAY_GATEWAY_PORT']}"
    pages = f"http://127.0.0.1:{live.env['HEADWAY_SESSIONS_PORT']}{session_path(run_id)}"
    token = (live.home / "token").read_text().strip()
    mine = {"Authorization": f"Bearer {token}"}

    def opened() -> httpx.Response | None:
        answer = httpx.get(pages, headers=mine)
        return answer if answer.status_code == 200 else None

    wait_for(opened, lambda: f"{httpx.get(pages, headers=mine).text}\n{live.worker_log()}")
    link = live.show(run_id)["session"]
    assert link == f"{gateway}/v1/runs/{run_id}/session"
    led = httpx.get(link, headers=mine)
    assert (led.status_code, f"http:{led.headers['location']}") == (303, pages)
    kept = httpx.post(pages, headers=mine, data={"note": "remember <me>"})
    assert kept.headers["location"] == session_path(run_id)
    assert "<li>remember &lt;me&gt;" in httpx.get(pages, headers=mine).text
    assert httpx.get(pages).status_code == 401
    assert "remember" not in httpx.get(f"{gateway}{session_path(run_id)}", headers=mine).text
    ended = live.until(run_id, "Completed", "Failed")
    assert ended["state"] == "Completed", ended["exit"]
    assert "nobody was connected" in ended["exit"]["message"]
    assert ended["session"] is None
    assert httpx.get(pages, headers=mine).status_code == 409


@pytest.mark.prefect
def test_no_shell_is_promised_where_none_can_be_opened(
    process_site: LiveSite, tmp_path: Path
) -> None:
    job = tmp_path / "shell.json"
    job.write_text(json.dumps(JOB | {"name": "shell", "session": {"shell": True}}))
    said = [process_site.run("submit", str(job))]

    def refused() -> bool:  # once the node has said that it has no engine
        said.append(process_site.run("submit", str(job)))
        return said[-1].returncode == 2

    wait_for(refused, lambda: f"it is not refused: {said[-1]}")
    assert "without a container engine" in said[-1].stderr
    assert "the nodes that have one: none" in said[-1].stderr


@pytest.mark.prefect
def test_ssh_says_why_it_leads_into_no_program_without_an_engine(
    process_site: LiveSite, tmp_path: Path
) -> None:
    live = process_site
    run_id = live.submit(tmp_path, **sleeper(2_000))
    live.until(run_id, "Running")
    entered = subprocess.run(
        [BIN / "headway", "ssh", run_id, "true"], env=live.env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert entered.returncode == 255
    assert "without a container engine" in entered.stderr
    live.run("cancel", run_id)
    live.until(run_id, "Cancelled")

"""People are told of ends through a block of Prefect's, here a webhook that really answers."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import pytest

from tests.support.site import BIN, ROOT, LiveSite, wait_for

_MAKE = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock as Webhook
Webhook(name="test", url=sys.argv[1], json_data={"title": "{{subject}}", "text": "{{body}}"}).save("test")
Webhook(name="gone", url="http://127.0.0.1:9/", json_data={}).save("gone")
"""  # noqa: E501 - a program


@pytest.fixture
def told() -> Iterator[tuple[str, "Queue[dict[str, str]]"]]:
    """A web hook: its address, and what was posted there."""
    posted: Queue[dict[str, str]] = Queue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", posted
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _teams_as_before(process_site: LiveSite) -> Iterator[None]:
    yield
    process_site.set_knobs(teams={})


def test_an_end_is_told_once_and_a_block_that_fails_stops_no_other(
    process_site: LiveSite, told: tuple[str, "Queue[dict[str, str]]"], tmp_path: Path
) -> None:
    url, posted = told
    env = process_site.env | {
        "PREFECT_API_URL": f"{process_site.url}/api",
        "PREFECT_API_AUTH_STRING": process_site.auth(),
        "APPRISE_URL": url.replace("http:", "json:"),
    }
    for words in (["-c", _MAKE, url], [ROOT / "samples/tools/told.py", "test"]):
        subprocess.run([BIN / "python", *words], env=env, cwd=ROOT, check=True, timeout=120)
    blocks = ["custom-webhook/gone", "custom-webhook/test", "secret/no-notifier"]
    apprise = "headway-notification/test"
    process_site.set_knobs(teams={"default": {"notify": [*blocks, apprise]}})
    runs = [process_site.submit(tmp_path, name=name, notify=blocks) for name in ("one", "two")]
    for run_id in runs:
        process_site.until(run_id, "Completed")
    messages = [posted.get(timeout=60) for _ in runs]
    titles = sorted(message["title"] for message in messages)
    assert [title.partition(" after")[0] for title in titles] == [
        "headway: one ended well", "headway: two ended well",
    ]  # fmt: skip
    assert any(runs[0] in message["text"] for message in messages)
    counted = "SELECT count(*) FROM notice WHERE error <> '' AND taken_at IS NOT NULL"
    wait_for(lambda: process_site.count(counted) == 4, process_site.worker_log)
    assert posted.empty()
    process_site.submit(tmp_path, name="three", notify=[apprise])
    by_apprise = posted.get(timeout=60)
    assert by_apprise["title"].startswith("headway: three ended well")


def test_a_job_names_only_blocks_of_its_team(process_site: LiveSite, tmp_path: Path) -> None:
    process_site.set_knobs(teams={"default": {"notify": ["custom-webhook/test"]}})
    path = tmp_path / "job.json"
    path.write_text(json.dumps({
        "name": "digits", "image": "python:3.11", "command": ["true"],
        "notify": ["slack-webhook/of-others"],
    }))  # fmt: skip
    refused = process_site.run("submit", str(path))
    assert refused.returncode == 2
    assert "notify.0" in refused.stderr
    assert "team default may name custom-webhook/test" in refused.stderr

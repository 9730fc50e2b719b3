"""A real Prometheus with the shipped configuration, on a free port."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

RULES = Path(__file__).parents[2] / "deployments/prometheus"


def why_none() -> str:
    """Why no Prometheus can be had here; empty when one can be started."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        return "Prometheus is not installed (root on Debian: make test-deps)"
    return ""


@contextmanager
def scraping(site_url: str, headers: Mapping[str, str], folder: Path) -> Iterator[httpx.Client]:
    """Prometheus with the shipped files, only faster, at this site's port, with their token."""
    (folder / "headway.token").write_text(headers["Authorization"].removeprefix("Bearer "))
    shipped = (RULES / "prometheus.yml").read_text()
    assert shipped.count("15s") == 2
    config = shipped.replace("15s", "1s").replace("127.0.0.1:4280", site_url[len("http://") :])
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(RULES / "alerts.yml", folder)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=10) as client:
            until(lambda: client.get("/-/ready").status_code == 200)
            yield client
    finally:
        process.terminate()
        process.wait(timeout=30)


def until(holds: Callable[[], bool], seconds: float = 40.0, *, what: str = "it") -> None:
    """Wait for *what* to happen within *seconds*."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.2)


def query(client: httpx.Client, expression: str, **span: float) -> list[dict[str, Any]]:
    """What an expression gives now, or over the *span* of start, end and step."""
    path = "/api/v1/query_range" if span else "/api/v1/query"
    answer = client.get(path, params={"query": expression, **span}).json()
    assert answer["status"] == "success", answer
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result

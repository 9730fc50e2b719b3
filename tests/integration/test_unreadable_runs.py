"""A run whose parameters Prefect's server stores but cannot send stops nobody else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.prefect.transport import SiteAuth
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = pytest.mark.prefect

POISONS = {"surrogate": "\ud800", "integer": 2**70}
"""Values that a request may carry and that no page of `/flow_runs/filter` can hold."""


@pytest.fixture
def raw(process_site: LiveSite) -> Iterator[httpx.Client]:
    """Prefect's API, asked as it is: without headway's client, which sends no such values."""
    address = f"{process_site.url}/api"
    auth = SiteAuth(process_site.auth(), address)
    with httpx.Client(base_url=address, auth=auth, timeout=30) as client:
        yield client


def start_poisoned(site: LiveSite, raw: httpx.Client, which: str) -> str | None:
    """A run whose job has a poisoned value; its id, None where the database itself refuses it.

    PostgreSQL takes no half of a surrogate pair.
    """
    deployment = site.call("GET", "deployments/name/train/default")["id"]
    name = f"poisoned-{which}"
    body = {
        "name": name,
        "parameters": {"job": sleeper() | {"labels": {"note": POISONS[which]}}},
        "state": {"type": "SCHEDULED"},
        "enforce_parameter_schema": False,
    }
    answer = raw.post(f"/deployments/{deployment}/create_flow_run", content=json.dumps(body))
    stored = seen_by_name(site, name)
    assert stored or answer.is_error
    return str(stored[0]["id"]) if stored else None


def seen_by_name(site: LiveSite, name: str) -> list[dict[str, Any]]:
    """Runs of this name with their states, by an endpoint that leaves parameters out."""
    asked = {"flow_runs": {"name": {"any_": [name]}}}
    found: list[dict[str, Any]] = site.call("POST", "ui/flow_runs/history", asked)
    return found


def test_runs_with_unreadable_parameters_end_refused_and_the_others_go_on(
    process_site: LiveSite, raw: httpx.Client, tmp_path: Path
) -> None:
    site = process_site
    made = {which: start_poisoned(site, raw, which) for which in POISONS}
    poisoned = {which: run_id for which, run_id in made.items() if run_id is not None}
    assert "integer" in poisoned
    good = site.submit(tmp_path, name="beside-poison")

    assert site.until(good, "Completed")["exit"]["kind"] == "ok"
    for which in poisoned:
        wait_for(
            lambda name=f"poisoned-{which}": seen_by_name(site, name)[0]["state_type"] == "FAILED",
            lambda: f"{poisoned} are not refused\n{site.worker_log()}",
        )
    listed = {run["run_id"]: run for run in site.json("runs", "--members", "--limit", "50")}
    assert listed[good]["state"] == "Completed"
    for which, run_id in poisoned.items():
        assert listed[run_id]["state"] == "Failed"
        assert "parameters" in listed[run_id]["reason"], which
        assert "submit it again" in listed[run_id]["reason"], which

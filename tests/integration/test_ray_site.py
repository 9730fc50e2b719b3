"""A Ray brought into a live site: a run goes there by the same commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray import Ray, two_ray_nodes
from tests.support.site import live_site, wait_for

JOB = {"name": "r", "python": "3", "command": ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]}


@pytest.fixture
def ray() -> Iterator[Ray]:
    yield from two_ray_nodes()


@pytest.mark.ray
def test_a_run_goes_to_a_ray_by_the_same_commands(ray: Ray, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    with live_site(tmp_path / "home", "process") as site:
        bare = site.run("engine", "add", "ray")
        assert bare.returncode == 2
        assert "--address" in bare.stderr
        added = site.json("engine", "add", "ray", "--address", ray.address)
        assert added["work_pools"] == {"ray": "ray"}
        resources = {"cpus": 1, "gpus": 1, "host_memory": "64MiB"}
        path.write_text(json.dumps(JOB | {"resources": resources}))
        run_id = site.json("submit", str(path), "--pool", "ray")["run_id"]

        def ended() -> dict[str, Any] | None:
            view = site.show(run_id)
            return view if view["state"] in {"Completed", "Failed"} else None

        view = wait_for(ended, lambda: f"{site.show(run_id)} {site.run('why', run_id).stdout}")
        assert (view["state"], view["runtime"]) == ("Completed", "ray"), view
        assert site.run("logs", run_id).stdout == "0\n"
        path.write_text(json.dumps(JOB | {"resources": {"cpus": 1, "nodes": 2}}))
        refused = site.run("submit", str(path), "--pool", "ray")
        assert refused.returncode == 2
        assert "nodes" in refused.stderr
        assert "pools ray" in site.run("doctor").stdout

"""Nodes with GPUs of different kinds on one PostgreSQL: one line, one plan."""

import json
from collections import Counter

import pytest

from tests.support.nodes import KINDS
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = [pytest.mark.postgresql, pytest.mark.prefect]


def job(**resources: object) -> dict[str, object]:
    program = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(0.2)"
    return {
        "command": ["python", "-c", program],
        "resources": {"gpus": 1, "host_memory": "64MiB", "cpus": 0.05, **resources},
    }


def submit(site: LiveSite, folder, name: str, *options: str, **fields: object) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(sleeper() | {"name": name} | fields))
    run_id: str = site.json("submit", str(path), *options)["run_id"]
    return run_id


def test_each_job_finds_the_node_that_has_its_gpu(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    wanted = {"H100": "middle", "V100": "left", "A100": "head"}
    runs = {
        submit(head, tmp_path, kind, **job(gpu_type=kind, gpu_memory="1GiB")): node
        for kind, node in wanted.items()
    }
    for run_id, node in runs.items():
        view = head.until(run_id, "Completed", "Failed")
        assert (view["state"], view["node"]) == ("Completed", node), view


def test_a_job_that_needs_much_goes_where_it_fits_best(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    run_id = submit(head, tmp_path, "large", **job(gpu_memory="20GiB"))
    view = head.until(run_id, "Completed", "Failed")
    # Best fit: 16 GiB are too few and 40 are enough, so the GPUs of 80 stay free.
    assert (view["state"], view["node"]) == ("Completed", "head"), view


def test_a_job_is_bound_to_the_node_it_names(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    for node in ("middle", "left"):
        run_id = submit(head, tmp_path, f"on-{node}", "--node", node, **job(gpu_memory="1GiB"))
        assert head.until(run_id, "Completed", "Failed")["node"] == node
    refused = head.run("submit", str(tmp_path / "on-left.json"), "--node", "elsewhere")
    assert refused.returncode == 2
    assert "elsewhere" in refused.stderr


def test_a_drained_node_takes_nothing_and_says_so(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    assert head.run("node", "drain", "left", "--reason", "new fan").returncode == 0
    try:
        run_id = submit(head, tmp_path, "patient", "--node", "left", **job(gpu_memory="1GiB"))
        view = head.until(run_id, "AwaitingHeadroom")
        wait_for(
            lambda: "new fan" in head.show(run_id)["reason"],
            lambda: head.show(run_id)["reason"],
        )
        assert view["node"] is None
    finally:
        assert head.run("node", "resume", "left").returncode == 0
    assert head.until(run_id, "Completed", "Failed")["node"] == "left"


def test_up_on_a_machine_that_has_joined_brings_back_its_worker_alone(three_nodes) -> None:
    """A gateway of its own would be announced in the place of the site's."""
    left = three_nodes["left"]
    before = left.worker_pid()
    left.kill(before)
    assert set(left.json("up")["started"]) <= {"worker"}  # its supervisor may have been faster
    assert left.worker_pid() != before
    assert not {"server", "gateway"} & left.pids().keys()


def test_a_burst_of_jobs_uses_every_node_and_none_is_lost(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    for node in KINDS:
        assert head.run("node", "drain", node, "--reason", "filling the line").returncode == 0
    gate = tmp_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)"
    # As many as there are GPUs, and none ends before all of them run.
    whole = job(gpu_memory="1GiB", sharing="whole") | {"command": ["python", "-c", waits]}
    runs = [submit(head, tmp_path, f"burst-{i}", **whole) for i in range(2 * len(KINDS))]
    for node in KINDS:
        assert head.run("node", "resume", node).returncode == 0
    views = [head.until(run_id, "Running", "Completed", "Failed") for run_id in runs]
    gate.touch()
    assert Counter(view["node"] for view in views) == dict.fromkeys(KINDS, 2)
    for run_id in runs:
        view = head.until(run_id, "Completed", "Failed")
        assert (view["state"], view["attempt"]) == ("Completed", 1), view


def test_the_line_says_what_would_happen(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    path = tmp_path / "rehearsed.json"
    path.write_text(json.dumps(sleeper() | {"name": "rehearsed"} | job(gpu_memory="70GiB")))
    said = head.json("submit", str(path), "--dry-run")
    assert said["starts_now"]
    assert said["reason"] == "at once, on middle"
    assert said["predicted"]["runtime_s"] > 0


def test_log_and_outputs_come_from_the_node_that_had_the_run(three_nodes, tmp_path) -> None:
    head = three_nodes["head"]
    program = (
        "import os, pathlib; out = pathlib.Path(os.environ['HEADWAY_OUTPUTS'], 'deep');"
        "out.mkdir(); (out / 'model.pt').write_bytes(b'weights');"
        "(out / 'link').symlink_to('/etc'); print('written')"
    )
    path = tmp_path / "writer.json"
    job = sleeper() | {"name": "writer", "command": ["python", "-c", program]}
    path.write_text(json.dumps(job))
    run_id = head.json("submit", str(path), "--node", "left")["run_id"]
    view = head.until(run_id, "Completed", "Failed")
    assert (view["state"], view["node"]) == ("Completed", "left"), view
    assert head.run("logs", run_id).stdout == "written\n"
    listed = head.json("outputs", run_id)
    assert [each["path"] for each in listed["files"]] == ["deep/model.pt"]
    assert listed["left_out"] == 1
    folder = tmp_path / "here"
    done = head.run("outputs", run_id, str(folder), "--only", "*.pt")
    assert done.returncode == 0, done.stderr
    assert (folder / "deep" / "model.pt").read_bytes() == b"weights"

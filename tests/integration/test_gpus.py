"""GPUs from NVML to the program: a whole site on the stub library."""

import pytest

from headway.units import GIB
from tests.nvml.stub import GPU_IS_LOST, UNKNOWN_ERROR
from tests.support.site import LiveSite, wait_for

pytestmark = pytest.mark.prefect

SHOW = "import os, time; print('devices', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
HOLD = f"{SHOW}; time.sleep(600)"  # each test ends its runs


def job(**gpu: object) -> dict[str, object]:
    return {
        "command": ["python", "-c", HOLD],
        "resources": {"host_memory": "128MiB", "cpus": 0.1, **gpu},
    }


def granted(view: dict) -> list[str]:
    return [grant["uuid"] for grant in view["lease"]["gpus"]]


def test_gpus_are_shared_by_memory_and_seen_by_the_program(stub_site, tmp_path) -> None:
    node = stub_site.json("nodes")[0]
    assert [gpu["uuid"] for gpu in node["gpus"]] == ["GPU-a", "GPU-b"]
    runs = []
    try:
        first = stub_site.submit(tmp_path, name="first", **job(gpus=1, gpu_memory="10GiB"))
        runs.append(first)
        one = granted(stub_site.until(first, "Running"))
        second = stub_site.submit(tmp_path, name="second", **job(gpus=1, gpu_memory="10GiB"))
        runs.append(second)
        # Best fit: the GPU that is already in use, so that a whole one stays free.
        assert granted(stub_site.until(second, "Running")) == one
        whole = stub_site.submit(
            tmp_path, name="whole", **job(gpus=1, gpu_memory="1GiB", sharing="whole")
        )
        runs.append(whole)
        other = granted(stub_site.until(whole, "Running"))
        assert {*one, *other} == {"GPU-a", "GPU-b"}
        log = stub_site.run("logs", whole).stdout
        assert f"devices {other[0]}" in log

        waits = stub_site.submit(tmp_path, name="waits", **job(gpus=1, gpu_memory="10GiB"))
        runs.append(waits)
        view = stub_site.until(waits, "AwaitingHeadroom")
        assert view["reason"].startswith("needs 10.0 GiB on one GPU; at most")
        stub_site.run("cancel", first)
        assert granted(stub_site.until(waits, "Running")) == one
    finally:
        for run_id in runs:
            stub_site.run("cancel", run_id)
        for run_id in runs:
            stub_site.until(run_id, "Cancelled")


def test_gpus_that_cannot_be_read_are_not_free(stub_site, stub, tmp_path) -> None:
    stub.fail(init_error=UNKNOWN_ERROR)
    try:
        run_id = stub_site.submit(tmp_path, name="blind", **job(gpus=1, gpu_memory="1GiB"))
        stub_site.until(run_id, "AwaitingHeadroom")
        wait_for(  # one that was granted before the driver failed waits again, and is planned then
            lambda: "cannot be read" in stub_site.show(run_id)["reason"],
            lambda: str(stub_site.show(run_id)),
        )
    finally:
        stub.fail(init_error=0)
    stub_site.until(run_id, "Running")
    stub_site.run("cancel", run_id)
    stub_site.until(run_id, "Cancelled")


def warned(site: LiveSite, run_id: str) -> dict:
    """The run's view once it has a warning."""
    return wait_for(
        lambda: view if (view := site.show(run_id)).get("warnings") else None,
        lambda: f"no warning on {run_id}: {site.show(run_id)}\n{site.worker_log()}",
    )


def test_a_gpu_that_is_held_and_idle_is_a_warning_on_the_run(stub_site, tmp_path) -> None:
    stub_site.set_knobs(silent_after_s=10.0, silent_grace_s=5.0, on_silent_failure="warn")
    run_id = stub_site.submit(tmp_path, name="idle", **job(gpus=1, gpu_memory="1GiB"))
    try:
        stub_site.until(run_id, "Running")
        (warning,) = warned(stub_site, run_id)["warnings"]
        assert (warning["kind"], warning["measured"], warning["ended_at"]) == (
            "gpu_unused", 0.0, None,
        )  # fmt: skip
        said = f"it holds {warning['gpu']}, which was 0.0% busy over"
        assert said in stub_site.run("show", run_id).stdout.replace("\n", " ")
        (top,) = [run for run in stub_site.json("top")["runs"] if run["run_id"] == run_id]
        assert [each["kind"] for each in top["warnings"]] == ["gpu_unused"]
        page = wait_for(
            lambda: made if "warnings" in (made := stub_site.artifacts(run_id)) else None,
            lambda: f"no artifact: {stub_site.artifacts(run_id)}",
        )
        assert said in page["warnings"]
        assert "**holds a GPU and does not use it**" in page["remaining-time"]
        assert f"(/headway#/runs/{run_id})" in page["remaining-time"]
        lines = wait_for(
            lambda: [line for line in stub_site.logged(run_id) if said in line],
            lambda: f"not in the log: {stub_site.logged(run_id)}",
        )
        assert len(lines) == 1
        assert stub_site.show(run_id)["state"] == "Running"  # longer than the grace: it only warns
    finally:
        stub_site.run("cancel", run_id)
        stub_site.until(run_id, "Cancelled")
    (warning,) = stub_site.show(run_id)["warnings"]
    assert warning["ended_at"] is not None


def test_the_site_may_end_a_run_that_does_not_use_its_gpu(stub_site, tmp_path) -> None:
    stub_site.set_knobs(silent_after_s=10.0, silent_grace_s=3.0, on_silent_failure="stop")
    try:
        run_id = stub_site.submit(
            tmp_path, name="stopped", retries=3, **job(gpus=1, gpu_memory="1GiB")
        )
        view = stub_site.until(run_id, "Failed", "Completed", "Cancelled")
    finally:
        stub_site.set_knobs(silent_after_s=300.0, silent_grace_s=900.0, on_silent_failure="warn")
    assert (view["state"], view["attempt"], view["exit"]["kind"]) == ("Failed", 1, "failed")
    assert view["exit"]["message"].startswith("stopped by the site's policy on silent failures")
    assert "0.0% busy over" in view["exit"]["message"]
    assert view["warnings"][0]["stopped_at"] is not None


NEEDS_MORE = """\
import os, sys
print('attempt', os.environ['HEADWAY_ATTEMPT'], flush=True)
if os.environ['HEADWAY_ATTEMPT'] == '1':
    sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.')
"""


def test_a_run_out_of_gpu_memory_is_tried_again_with_more(stub_site, tmp_path) -> None:
    asked = job(gpus=1, gpu_memory="4GiB") | {"command": ["python", "-c", NEEDS_MORE]}
    run_id = stub_site.submit(tmp_path, name="needs-more", **asked)
    view = stub_site.until(run_id, "Completed", "Failed")
    assert (view["state"], view["attempt"]) == ("Completed", 2), view
    assert view["demand"]["gpu_memory_bytes"] == 6 * GIB
    told = " ".join(stub_site.run("show", run_id).stdout.split())
    assert "it asked for 2.0 GiB more, and was granted 4.0 GiB" in told, told
    assert "it is tried again with 6.0 GiB" in told, told


HOLDS = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"


def test_who_takes_what_a_neighbour_was_granted_is_ended_and_the_neighbour_goes_on(
    stub_site, stub, tmp_path
) -> None:
    asked = {"command": ["python", "-c", HOLDS]}
    runs, pids, gpu = [], [], ""
    try:
        for name in ("greedy", "innocent"):
            runs.append(
                stub_site.submit(
                    tmp_path, name=name, retries=1, **job(gpus=1, gpu_memory="10GiB") | asked
                )
            )
            (gpu,) = granted(stub_site.until(runs[-1], "Running"))
            said = wait_for(lambda: stub_site.run("logs", runs[-1]).stdout, lambda: "no pid")
            pids.append(int(said.split()[1]))
        greedy, innocent = runs
        assert granted(stub_site.show(greedy)) == [gpu]
        stub.set(gpu, used=20 * GIB, processes={pids[0]: 17 * GIB, pids[1]: 3 * GIB})
        (warning,) = warned(stub_site, greedy)["warnings"]  # before it is ended
        assert (warning["kind"], warning["measured"]) == ("over_grant", 17 * GIB)
        assert warning["text"].endswith("it is ended if that goes on for 10 s")
        assert "it is ended if that" in " ".join(stub_site.run("show", greedy).stdout.split())
        wait_for(
            lambda: stub_site.show(greedy)["attempt"] == 2,
            lambda: f"{stub_site.show(greedy)}\n{stub_site.worker_log()}",
        )
        stub.set(gpu, used=3 * GIB, processes={pids[1]: 3 * GIB})
        told = " ".join(stub_site.run("show", greedy).stdout.split())
        assert f"ended as over its grant: it holds 17.0 GiB of {gpu}, was granted 10.0 GiB" in told
        wait_for(  # until the next plan it shows what it had
            lambda: stub_site.show(greedy)["demand"]["gpu_memory_bytes"] > 17 * GIB,
            lambda: f"{stub_site.show(greedy)}\n{stub_site.worker_log()}",
        )
        view = stub_site.show(innocent)
        assert (view["state"], view["attempt"]) == ("Running", 1)
    finally:
        for run_id in runs:
            stub_site.run("cancel", run_id)
        for run_id in runs:
            stub_site.until(run_id, "Cancelled")
        if gpu:
            stub.set(gpu, used=0, processes={})


DIES_WITH_ITS_GPU = """\
import os, sys, time
print('devices', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)
for _ in range(600):
    time.sleep(0.1)
    lines = open(os.environ['STATE']).read().split('gpu\\n')[1:]
    if any(os.environ['CUDA_VISIBLE_DEVICES'] in each and 'error 15' in each for each in lines):
        sys.exit('CUDA error: GPU is lost')
"""


def test_a_gpu_that_falls_off_the_bus_drains_itself_alone(stub_site, stub, tmp_path) -> None:
    run_id = stub_site.submit(
        tmp_path,
        name="loses",
        command=["python", "-c", DIES_WITH_ITS_GPU],
        env={"STATE": str(stub.path)},
        retries=1,
        resources={"host_memory": "128MiB", "cpus": 0.1, "gpus": 1, "gpu_memory": "1GiB"},
    )
    (gone,) = granted(stub_site.until(run_id, "Running"))
    index, other = (0, "GPU-b") if gone == "GPU-a" else (1, "GPU-a")
    wait_for(lambda: gone in stub_site.run("logs", run_id).stdout, lambda: "not started")
    stub.set(gone, error=GPU_IS_LOST)
    try:
        wait_for(
            lambda: stub_site.show(run_id)["attempt"] == 2,
            lambda: f"{stub_site.show(run_id)}\n{stub_site.worker_log()}",
        )
        view = stub_site.until(run_id, "Running")
        assert granted(view) == [other]

        lost = {gone: f"NVML error {GPU_IS_LOST}: GPU is lost", other: ""}
        wait_for(  # the node's next heartbeat tells the ledger
            lambda: {g["uuid"]: g["lost"] for g in stub_site.json("nodes")[0]["gpus"]} == lost,
            lambda: str(stub_site.json("nodes")),
        )
        (node,) = stub_site.json("nodes")
        assert (node["state"], node["gpu_error"]) == ("ready", "")
        said = f"gpu{index} drained: lost: NVML error 15: GPU is lost"
        for command in (["nodes"], ["top", "--once"]):
            shown = " ".join(stub_site.run(*command).stdout.split())
            assert "lost: NVML" in shown, command

        both = stub_site.submit(tmp_path, name="both", **job(gpus=2, gpu_memory="1GiB"))
        assert said in stub_site.until(both, "AwaitingHeadroom")["reason"]
        for each in (both, run_id):
            stub_site.run("cancel", each)
        stub_site.until(run_id, "Cancelled")

        # A worker that is started anew does not forget the GPU: the machine was not.
        stub_site.kill(stub_site.worker_pid())
        assert stub_site.run("up").returncode == 0
        lost = {gpu["uuid"]: bool(gpu["lost"]) for gpu in stub_site.json("nodes")[0]["gpus"]}
        assert lost == {gone: True, other: False}
        refused = stub_site.run("node", "gpu", "reset-ok", node["node"], str(index))
        assert refused.returncode != 0
        assert "it still has lost" in " ".join(refused.stderr.split())
    finally:
        stub.heal()
    # Its machine was not restarted, but the GPU is there again.
    back = stub_site.run("node", "gpu", "reset-ok", node["node"], str(index))
    assert back.returncode == 0, back.stderr
    assert not any(gpu["drained"] for gpu in stub_site.json("nodes")[0]["gpus"])

"""GPUs from NVML to the program: a whole site on the stub library."""

from collections.abc import Iterator

import pytest

from headway.units import GIB
from tests.nvml.stub import UNKNOWN_ERROR, StubGpus, build_stub
from tests.support.site import LiveSite, live_site

SHOW = "import os, time; print('devices', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
HOLD = f"{SHOW}; time.sleep(60)"


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> StubGpus:
    stub = StubGpus(tmp_path_factory.mktemp("nvml") / "gpus.state")
    stub.add("GPU-a", total=24 * GIB)
    stub.add("GPU-b", total=24 * GIB)
    return stub


@pytest.fixture(scope="module")
def gpu_site(stub: StubGpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    folder = tmp_path_factory.mktemp("gpu-site")
    env = stub.environment(build_stub(folder))
    with live_site(folder / "home", "process", **env) as site:
        yield site


def job(**gpu: object) -> dict[str, object]:
    return {
        "command": ["python", "-c", HOLD],
        "resources": {"host_memory": "128MiB", "cpus": 0.1, **gpu},
    }


def granted(view: dict) -> list[str]:
    return [grant["uuid"] for grant in view["lease"]["gpus"]]


def test_gpus_are_shared_by_memory_and_seen_by_the_program(gpu_site, tmp_path) -> None:
    node = gpu_site.json("nodes")[0]
    assert [gpu["uuid"] for gpu in node["gpus"]] == ["GPU-a", "GPU-b"]
    runs = []
    try:
        first = gpu_site.submit(tmp_path, name="first", **job(gpus=1, gpu_memory="10GiB"))
        runs.append(first)
        one = granted(gpu_site.until(first, "Running"))
        second = gpu_site.submit(tmp_path, name="second", **job(gpus=1, gpu_memory="10GiB"))
        runs.append(second)
        # Best fit: the GPU that is already in use, so that a whole one stays free.
        assert granted(gpu_site.until(second, "Running")) == one
        whole = gpu_site.submit(
            tmp_path, name="whole", **job(gpus=1, gpu_memory="1GiB", sharing="whole")
        )
        runs.append(whole)
        other = granted(gpu_site.until(whole, "Running"))
        assert {*one, *other} == {"GPU-a", "GPU-b"}
        log = gpu_site.run("logs", whole).stdout
        assert f"devices {other[0]}" in log

        waits = gpu_site.submit(tmp_path, name="waits", **job(gpus=1, gpu_memory="10GiB"))
        runs.append(waits)
        view = gpu_site.until(waits, "AwaitingHeadroom")
        assert view["reason"].startswith("needs 10.0 GiB on one GPU; the largest headroom is")
        gpu_site.run("cancel", first)
        assert granted(gpu_site.until(waits, "Running")) == one
    finally:
        for run_id in runs:
            gpu_site.run("cancel", run_id)
        for run_id in runs:
            gpu_site.until(run_id, "Cancelled")


def test_gpus_that_cannot_be_read_are_not_free(gpu_site, stub, tmp_path) -> None:
    stub.fail(init_error=UNKNOWN_ERROR)
    try:
        run_id = gpu_site.submit(tmp_path, name="blind", **job(gpus=1, gpu_memory="1GiB"))
        view = gpu_site.until(run_id, "AwaitingHeadroom")
        assert "cannot be read" in view["reason"]
    finally:
        stub.fail(init_error=0)
    gpu_site.until(run_id, "Running")
    gpu_site.run("cancel", run_id)
    gpu_site.until(run_id, "Cancelled")

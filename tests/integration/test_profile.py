"""Profiled runs of a whole site: from the job file to the run's page."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.units import KIB
from tests.nvml.stub import StubGpu, StubGpus
from tests.support.site import LiveSite, wait_for

pytestmark = pytest.mark.prefect


BUSY = {
    "util": 60, "pcie_rx": round(9e9 / KIB), "pcie_tx": round(1e9 / KIB),
    "pcie_gen": 3, "pcie_width": 16, "pcie_gen_max": 3, "pcie_width_max": 16,
    "sm": 54, "tensor": 2, "dram": 12, "clock": 990, "clock_max": 1980, "clock_limits": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def site(stub: StubGpus, stub_site: LiveSite) -> Iterator[LiveSite]:
    """The site, whose GPUs are busy."""
    idle = vars(StubGpu(""))
    for uuid in ("GPU-a", "GPU-b"):
        stub.set(uuid, **BUSY)
    yield stub_site
    for uuid in ("GPU-a", "GPU-b"):
        stub.set(uuid, **{name: idle[name] for name in BUSY})


def job(name: str, program: str, **more: object) -> dict[str, object]:
    return {
        "name": name,
        "command": ["python", "-c", program],
        "profile": True,
        "resources": {"host_memory": "256MiB", "cpus": 0.1, "gpus": 1, "gpu_memory": "1GiB"},
    } | more


def artifact(site: LiveSite, run_id: str) -> dict:
    wanted = {"artifacts": {"flow_run_id": {"any_": [run_id]}, "key": {"any_": ["profile"]}}}
    (found,) = site._post("artifacts/filter", wanted)
    return dict(found)


def readings(site: LiveSite, gpu: str) -> int:
    """How often the GPU was read into the ledger."""
    return site.count("SELECT COUNT(*) FROM telemetry WHERE gpu = :gpu AND period_s = 1", gpu=gpu)


def test_a_report_becomes_a_table(site: LiveSite, tmp_path: Path) -> None:
    run_id = site.submit(tmp_path, **job("recorded", "print('hello')"))
    view = site.until(run_id, "Completed")
    profile = site.json("profile", "recorded")
    assert profile == view["profile"]
    assert profile["source"] == "nsys"
    into = profile["copies"][0]
    assert into["text"].startswith("HtoD 9.0 of 15.8 GB/s (57 %), 8.4 GiB in 1.0 s")
    assert profile["kernels"][0]["name"] == "par_ranged2d_kernel"
    assert Path(profile["report"]).name == "report.nsys-rep"
    assert profile["report"] in view["outputs"]
    assert "HtoD 9.0 of 15.8 GB/s (57 %)" in site.run("show", run_id).stdout
    assert "par_ranged2d_kernel" in site.run("profile", run_id).stdout.replace("\n", "")
    page = artifact(site, run_id)
    assert page["type"] == "table"
    assert json.loads(page["data"])[0]["what"] == into["text"]
    assert site.run("logs", run_id).stdout == "hello\n"
    learnt = "SELECT COUNT(*) FROM trace WHERE run_id LIKE :run"
    assert site.count(learnt, run=f"{run_id}%") == 0


def test_while_it_runs_and_without_a_report_nvml_tells(site: LiveSite, tmp_path: Path) -> None:
    program = (
        "import os, time\n"
        "print('hello', flush=True)\n"
        "while not os.path.exists(os.environ['GO']):\n"
        "    time.sleep(0.1)\n"
    )
    env = {"FAKE_NSYS": "silent", "GO": str(tmp_path / "go")}
    run_id = site.submit(tmp_path, **job("counted", program, env=env, max_runtime="3m"))
    (gpu,) = (each["uuid"] for each in site.until(run_id, "Running")["lease"]["gpus"])
    before = readings(site, gpu)
    live = site.json("profile", run_id, "--window", "5s")
    assert live["source"] == "nvml"
    assert live["notes"][0].startswith("nsys writes its report when the program has ended")
    # They are written ten at a time; the first ten may be of the time before the start.
    wait_for(lambda: readings(site, gpu) > before + 10, lambda: "no reading was written")
    (tmp_path / "go").touch()
    site.until(run_id, "Completed")
    profile = site.json("profile", run_id)
    assert [each["text"].split(",")[0] for each in profile["copies"]] == [
        "HtoD 9.0 of 15.8 GB/s (57 %)",
        "DtoH 1.0 of 15.8 GB/s (6 %)",
    ]
    assert profile["copies"][0]["gpu"] == gpu
    assert profile["busy_frac"] == pytest.approx(0.6)
    activity = (
        "its GPUs were 60 % utilised, SMs 54 %, tensor cores 2 %, memory 12 %: waits for memory"
    )
    assert activity in profile["text"]
    assert "clocks at 50 % of the highest, held down for power 100 % of the time" in profile["text"]
    assert "nsys made no report" in profile["notes"][0]


def test_the_exit_of_a_profiled_run_is_the_programs(site: LiveSite, tmp_path: Path) -> None:
    for mode in ("works", "refuses", "dies"):
        name = f"fails-{mode}"
        program = "import sys, time; time.sleep(1); print('word'); sys.exit(7)"
        run_id = site.submit(tmp_path, **job(name, program, env={"FAKE_NSYS": mode}))
        view = site.until(run_id, "Failed")
        assert (view["exit"]["kind"], view["exit"]["code"]) == ("failed", 7)
        assert site.run("logs", run_id).stdout == "word\n"


def test_a_limit_of_time_leaves_time_for_a_checkpoint(site: LiveSite, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(1)\n"
        "    open(os.environ['HEADWAY_OUTPUTS'] + '/saved', 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "time.sleep(60)\n"
    )
    run_id = site.submit(tmp_path, **job("limited", program, max_runtime="3s", retries=0))
    view = site.until(run_id, "TimedOut", "Failed")
    assert view["exit"]["kind"] == "timed_out"
    assert any(path.endswith("/saved") for path in view["outputs"])


def test_a_run_that_was_not_profiled_says_what_to_do(site: LiveSite, tmp_path: Path) -> None:
    run_id = site.submit(tmp_path, **job("plain", "pass", profile=False))
    view = site.until(run_id, "Completed")
    assert "profile" not in view
    done = site.run("profile", run_id)
    assert done.returncode == 2
    assert "`profile: true`" in done.stderr


def test_a_run_without_nsys_or_profile_is_counted_while_it_runs(
    site: LiveSite, tmp_path: Path
) -> None:
    run_id = site.submit(tmp_path, **job("late", "import time; time.sleep(60)", profile=False))
    site.until(run_id, "Running")
    assert "cannot be attached" in site.json("profile", run_id)["notes"][0]
    site.run("cancel", run_id)
    site.until(run_id, "Cancelled")

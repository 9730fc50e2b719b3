"""A whole site in front of NVIDIA's imitation of NVML, whose GPUs fall sick while runs use them."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.nvml.imitation import LOST, OFF_THE_BUS, Document, ImitatedGpus, ecc_uncorrectable
from tests.support.site import LiveSite, live_site, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.long]

NODE = "test-node"
UUIDS = [f"GPU-{index}" for index in range(7)]
WORKS = """\
import os, pathlib, sys, time
checkpoint = pathlib.Path(os.environ["HEADWAY_CHECKPOINT"]) / "step"
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("from step", step, flush=True)
end = pathlib.Path(sys.argv[1])
while not end.exists():
    step += 1
    checkpoint.with_suffix(".new").write_text(str(step))
    checkpoint.with_suffix(".new").replace(checkpoint)
    time.sleep(0.1)
sys.exit(int(end.read_text()) if os.environ["HEADWAY_ATTEMPT"] == "1" else 0)
"""
ECC: Document = {"ecc": {"errors": {"volatile": {"double_bit": {"total": 3}}}}}
REMAP_FAILED: Document = {"remapped_rows": {"failure_occurred": True}}
REMAP_PENDING: Document = {"remapped_rows": {"pending": True, "uncorrectable": 1}}
NARROW: Document = {"pcie": {"current_link_width": 8}}
BUSY: Document = {"utilization": {"gpu": 90}}
HOT: Document = {"thermal": {"temperature_gpu_c": 95}}


class Case(NamedTuple):
    """What befalls a GPU, and what is to be told of it."""

    injected: tuple[Document, ...]
    kinds: set[str]
    said: str = ""
    moves: bool = False
    """Whether its run goes on elsewhere."""


BY_ECC = {"ecc", "row_remap"}
CASES = {
    "lost": Case((LOST,), {"lost"}, "lost: NVML error 15", moves=True),
    "off the bus": Case((OFF_THE_BUS,), {"lost", "xid"}, "lost: NVML error 15", moves=True),
    "ECC counted": Case((ECC,), {"ecc"}, "that ECC could not correct"),
    "48": Case((ecc_uncorrectable(48),), {*BY_ECC, "xid"}, "double bit ECC error", moves=True),
    "64": Case((ecc_uncorrectable(64),), {*BY_ECC, "xid"}, "row remapping failed", moves=True),
    "remap pending": Case((REMAP_PENDING,), set()),
    "95": Case((ecc_uncorrectable(95),), {*BY_ECC, "xid"}, "uncontained", moves=True),
    "94": Case((ecc_uncorrectable(94),), {*BY_ECC, "xid_contained"}, "Xid 94", moves=True),
    "narrow": Case((NARROW, BUSY), {"link_width"}, "PCIe x8 of x16"),
    "119": Case((ecc_uncorrectable(119),), {*BY_ECC, "xid"}, "GSP error", moves=True),
    "a program's 31": Case((ecc_uncorrectable(31),), BY_ECC, "could not be remapped", moves=True),
    "narrow and idle": Case((NARROW,), set()),
    "unknown": Case((ecc_uncorrectable(999),), {*BY_ECC, "xid"}, "not in the table", moves=True),
    "nobody's 63": Case((ecc_uncorrectable(63),), BY_ECC, "could not be remapped", moves=True),
    "hot": Case((HOT,), {"hot"}, "95 °C"),
    "remap failed": Case((REMAP_FAILED,), {"row_remap"}, "could not be remapped", moves=True),
    "ECC and hot": Case((ECC, HOT), {"ecc", "hot"}, "95 °C"),
    "hot, remap failed": Case((HOT, REMAP_FAILED), {"hot", "row_remap"}, "95 °C", moves=True),
}
ROUNDS = [list(CASES)[at : at + 3] for at in range(0, len(CASES), 3)]
"""Three GPUs fall sick at once, each of something else."""


def held(view: dict[str, Any]) -> str:
    """The GPU of a run, as `show` has it; empty while it has none, as between two attempts."""
    gpus = (view.get("lease") or {}).get("gpus") or [{"uuid": ""}]
    return str(gpus[0]["uuid"])


def _of_a_run(name: str) -> str:
    return re.sub("[^a-zA-Z0-9]+", "-", name)


class Bench:
    """The site, its GPUs, and one run that has nothing to do with any of it."""

    def __init__(self, site: LiveSite, gpus: ImitatedGpus, folder: Path) -> None:
        self.site, self.gpus, self._folder = site, gpus, folder
        folder.chmod(0o755)
        self.neighbour = self.start("neighbour")

    def start(self, name: str, gpus: int = 1, **job: Any) -> str:
        """A run with GPUs of its own, which works until it is told to end."""
        name = _of_a_run(name)
        command = ["python", "-c", WORKS, str(self._folder / name)]
        resources = {"host_memory": "128MiB", "cpus": 0.1, "gpus": gpus, "gpu_memory": "1GiB"}
        asked = {"name": name, "command": command, "retries": 0, **job}
        return self.site.submit(self._folder, **asked, resources={**resources, "sharing": "whole"})

    def end(self, name: str, code: int = 0) -> None:
        new = self._folder / "new"
        new.write_text(str(code))
        new.replace(self._folder / _of_a_run(name))

    def on(self, run_id: str, attempt: int = 1) -> str:
        """The GPU on which this attempt works, once it has begun."""

        def gpu() -> str:
            view = self.site.until(run_id, "Running", "Failed", "Completed")
            if view["attempt"] != attempt:
                return ""
            assert view["state"] == "Running", view
            return held(view)

        return str(wait_for(gpu, lambda: str(self.site.show(run_id))))

    def moved(self, run_id: str, uuid: str) -> None:
        """Wait until the run works on another GPU; the attempt on this one may be seen before."""

        def works_elsewhere() -> bool:
            view = self.site.until(run_id, "Running", "Failed", "Completed")
            assert view["state"] == "Running", view
            return held(view) not in ("", uuid)

        wait_for(works_elsewhere, lambda: f"{self.site.show(run_id)}\n{self.site.worker_log()}")

    def steps(self, run_id: str) -> list[int]:
        """From where each of its attempts went on."""
        lines = self.site.run("logs", run_id).stdout.splitlines()
        return [int(line.split()[-1]) for line in lines if "from step" in line]

    def drains(self) -> dict[str, set[str]]:
        """The GPUs that take no runs."""
        gpus = self.site.json("nodes")[0]["gpus"]
        return {gpu["uuid"]: set(gpu["drained_kinds"]) for gpu in gpus if gpu["drained"]}

    def until_drained(self, expected: dict[str, set[str]]) -> None:
        wait_for(
            lambda: self.drains() == expected,
            lambda: f"{self.drains()}, not {expected}\n{self.site.worker_log()}",
        )

    def told(self, uuid: str) -> str:
        (gpu,) = [gpu for gpu in self.site.json("nodes")[0]["gpus"] if gpu["uuid"] == uuid]
        return str(gpu["drained"])

    def lessons(self, run_id: str) -> int:
        return self.site.count(
            "SELECT count(*) FROM trace WHERE starts_with(run_id, :run)", run=run_id
        )

    def recover(self) -> None:
        """Reset what is sick, and have it looked at."""
        self.gpus.heal()
        for uuid in self.drains():
            done = self.site.run("node", "gpu", "reset-ok", NODE, uuid)
            assert done.returncode == 0 or uuid not in self.drains(), done.stderr
        assert self.drains() == {}

    def nothing_else_has_happened(self) -> None:
        view = self.site.show(self.neighbour)
        assert (view["state"], view["attempt"]) == ("Running", 1), view


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("sick")
    for each in (folder, folder.parent):
        each.chmod(0o755)  # a program looks here, too, and is not root
    gpus = ImitatedGpus(folder, UUIDS)
    with live_site(folder / "home", "process", **gpus.environment()) as site:
        site.set_block("headway-container-policy", data_hosts=["127.0.0.1"])
        made = Bench(site, gpus, folder)
        made.on(made.neighbour)
        yield made
        made.end("neighbour")
        site.until(made.neighbour, "Completed")


@pytest.fixture(autouse=True)
def _leaves_nothing(bench: Bench) -> Iterator[None]:
    yield
    bench.recover()
    bench.nothing_else_has_happened()


@pytest.mark.parametrize("names", ROUNDS, ids=" | ".join)
def test_each_gpu_is_named_right_and_its_run_goes_where_it_should(
    bench: Bench, names: list[str]
) -> None:
    runs = {name: bench.start(name) for name in names}
    sick = {name: bench.on(run_id) for name, run_id in runs.items()}
    for run_id in runs.values():
        wait_for(lambda run=run_id: bench.steps(run), lambda: "no first step")
    for name, uuid in sick.items():
        bench.gpus.set(uuid, *CASES[name].injected)
    bench.until_drained({sick[name]: CASES[name].kinds for name in names if CASES[name].kinds})
    for name in names:
        assert CASES[name].said in bench.told(sick[name]), name
    for name in [name for name in names if CASES[name].moves]:
        assert bench.on(runs[name], attempt=2) not in sick.values()
        begun = wait_for(lambda name=name: bench.steps(runs[name])[1:], lambda: "no second step")
        assert begun[0] > 0, name  # from its checkpoint
        assert bench.lessons(runs[name]) == 0
    for name in names:
        bench.end(name)
    for name in names:
        moves = CASES[name].moves
        view = bench.site.until(runs[name], "Completed", "Failed")
        assert (view["state"], view["attempt"]) == ("Completed", 2 if moves else 1), name
        # What has ended on a GPU that is sick teaches nothing.
        assert bench.lessons(runs[name]) == (moves or not CASES[name].kinds), name


def test_a_peak_of_heat_drains_nothing(bench: Bench) -> None:
    run_id = bench.start("peak")
    uuid = bench.on(run_id)
    bench.gpus.set(uuid, HOT)
    time.sleep(3.0)  # a few looks; it counts after ten seconds
    bench.gpus.heal(uuid)
    bench.end("peak")
    assert bench.site.until(run_id, "Completed", "Failed")["attempt"] == 1
    assert (bench.drains(), bench.lessons(run_id)) == ({}, 1)


def test_heat_that_is_over_needs_nobody(bench: Bench) -> None:
    run_id = bench.start("cools")
    uuid = bench.on(run_id)
    bench.gpus.set(uuid, HOT)
    bench.until_drained({uuid: {"hot"}})
    bench.gpus.heal(uuid)
    bench.until_drained({})
    bench.end("cools")
    assert bench.site.until(run_id, "Completed", "Failed")["attempt"] == 1


@contextmanager
def held_back() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """A file on the web that comes only when it may: its address, that it was asked for, go on."""
    asked, go_on = threading.Event(), threading.Event()

    class Far(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.send_header("ETag", '"one"')
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            asked.set()
            go_on.wait(120)
            self.wfile.write(b"data")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Far)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/data.bin", asked, go_on
    finally:
        go_on.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ["lost", "48"])
def test_while_it_stages_its_data(bench: Bench, name: str) -> None:
    case, job = CASES[name], f"staging {name}"
    with held_back() as (uri, asked, go_on):
        run_id = bench.start(job, dataset={"uri": uri})
        wait_for(asked.is_set, lambda: f"{bench.site.show(run_id)}\n{bench.site.worker_log()}")
        uuid = wait_for(lambda: held(bench.site.show(run_id)), lambda: "no GPU")
        bench.gpus.set(uuid, *case.injected)
        bench.until_drained({uuid: case.kinds})
        go_on.set()
        bench.moved(run_id, uuid)
    bench.end(job)
    assert bench.site.until(run_id, "Completed", "Failed")["state"] == "Completed"


@pytest.mark.parametrize("name", ["off the bus", "95"])
def test_at_its_start(bench: Bench, name: str) -> None:
    case, job = CASES[name], f"start {name}"
    run_id = bench.start(job)
    uuid = wait_for(lambda: held(bench.site.show(run_id)), lambda: str(bench.site.show(run_id)))
    bench.gpus.set(uuid, *case.injected)
    bench.until_drained({uuid: case.kinds})
    bench.moved(run_id, uuid)
    bench.end(job)
    assert bench.site.until(run_id, "Completed", "Failed")["state"] == "Completed"


@pytest.mark.parametrize("name", ["ECC counted", "119"])
def test_at_its_end(bench: Bench, name: str) -> None:
    """One that fails by it goes on elsewhere; one that has done its work is done.

    Whether the latter teaches is not said: it does not wait for a look after its end.
    """
    case, job = CASES[name], f"end {name}"
    fails, ends = bench.start(f"{job} fails"), bench.start(f"{job} well")
    sick = [bench.on(fails), bench.on(ends)]
    for uuid in sick:
        bench.gpus.set(uuid, *case.injected)
    bench.end(f"{job} fails", code=1)
    bench.end(f"{job} well")
    assert bench.site.until(ends, "Completed", "Failed")["state"] == "Completed"
    wait_for(lambda: bench.site.show(fails)["attempt"] == 2, lambda: str(bench.site.show(fails)))
    bench.until_drained(dict.fromkeys(sick, case.kinds))
    view = bench.site.until(fails, "Completed", "Failed")
    assert (view["state"], view["attempt"]) == ("Completed", 2), view


def test_what_is_left_is_all_that_is_granted(bench: Bench) -> None:
    names = [f"full {index}" for index in range(len(UUIDS) - 2)]
    sick = [uuid for uuid in UUIDS if uuid != bench.on(bench.neighbour)][:1]
    bench.gpus.set(sick[0], ECC)
    bench.until_drained({sick[0]: {"ecc"}})
    runs = [bench.start(name) for name in names]
    on = [bench.on(run_id) for run_id in runs]
    assert sorted([*on, bench.on(bench.neighbour), *sick]) == UUIDS
    waits = bench.start("waits")
    assert "drained: memory errors" in bench.site.until(waits, "AwaitingHeadroom")["reason"]
    for name in [*names, "waits"]:
        bench.end(name)
    for run_id in [*runs, waits]:
        bench.site.until(run_id, "Completed")


def test_gpus_of_one_run_are_close_to_each_other(bench: Bench) -> None:
    """Four GPUs are at the first socket, three at the second, of which the neighbour has one."""
    assert bench.on(bench.neighbour) in UUIDS[4:]
    run_id = bench.start("pair", gpus=2)
    bench.on(run_id)
    held = {gpu["uuid"] for gpu in bench.site.show(run_id)["lease"]["gpus"]}
    assert held == {*UUIDS[4:]} - {bench.on(bench.neighbour)}
    shown = " ".join(bench.site.run("show", run_id).stdout.split())
    assert "these joined by NVLink, behind the same PCIe switches" in shown
    bench.end("pair")
    bench.site.until(run_id, "Completed")


def test_a_restart_takes_back_what_is_well_and_only_that(bench: Bench) -> None:
    well, still = [uuid for uuid in UUIDS if uuid != bench.on(bench.neighbour)][:2]
    bench.gpus.set(well, ECC)
    bench.gpus.set(still, REMAP_FAILED)
    bench.until_drained({well: {"ecc"}, still: {"row_remap"}})
    refused = bench.site.run("node", "gpu", "reset-ok", NODE, still)
    assert refused.returncode != 0
    assert "could not be remapped" in " ".join(refused.stderr.split())
    bench.gpus.heal(well)
    bench.site.kill(bench.site.worker_pid())
    bench.until_drained({still: {"row_remap"}})

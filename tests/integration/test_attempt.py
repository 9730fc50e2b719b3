"""An attempt that a second flow process takes over, on a real ledger and the process runtime."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.clock import SystemClock
from headway.errors import ImpossibleDemand, InvalidInput
from headway.estimate.framework_memory import UNKNOWN_BYTES
from headway.forecast import Forecaster
from headway.model.job import TrainingJob
from headway.model.job_parts import Dataset, Resources
from headway.model.launch import Launch
from headway.model.lease import Basis, Lease, Sharing, Wait
from headway.model.link import GpuLinks
from headway.model.node import GpuProcess, GpuReading, Reserve
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Prediction, RunState, Step, StepState
from headway.model.sent_files import SentFile
from headway.model.trace import Trace
from headway.model.upload import UploadManifest
from headway.run.attempt import Attempt
from headway.run.followed import Followed, GpuUse
from headway.run.guard_notes import GuardNotes, keep_notes
from headway.run.settle import exit_of
from headway.run.spec import container_spec
from headway.run.upkeep import AttemptUpkeep
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerState, ContainerStatus
from headway.settings import Settings
from headway.site import POLICY, Site
from headway.staging.cache import DataCache
from headway.staging.errors import SourceMissing, StagingTimedOut
from headway.telemetry.errors import NvmlUnavailable
from headway.telemetry.host import boot_id
from headway.this_node import adopt, heartbeat, join_site, read_node
from headway.units import GIB, MIB
from headway.views.run_history import history_of
from headway.views.run_markdown import markdown
from tests.ports.telemetry import FakeGpus
from tests.support.containers import create_container
from tests.support.fence import fence_of, release
from tests.support.leading import admitted
from tests.support.postgresql import with_ledger
from tests.support.queued import begun, claim
from tests.support.site import wait_for

RUN = "00000000-0000-4000-8000-000000000001"
JOB = TrainingJob(
    name="job",
    image="image:1",
    command=["sleep", "60"],
    resources=Resources(host_memory="64MiB", cpus=0.1),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


def test_what_runs_is_followed_though_it_would_not_be_admitted_any_more(site: Site) -> None:
    first = begun(site, RUN, JOB)
    lease = admitted(first)
    demand = site.ledger.runs.get(RUN).demand
    assert demand is not None
    said = Prediction(runtime_s=4711.0, basis="said before the start")
    site.ledger.runs.predict(
        fence_of(site.ledger, RUN), said, replace(demand, host_memory_bytes=65 * MIB)
    )
    (here,) = site.ledger.nodes.all()
    all_of_it = Reserve(0.0, here.node.capacity.host_memory_bytes)
    full = replace(here.node, reserve=all_of_it)
    site.ledger.nodes.register(full, boot_id="b", worker_token="w", identity=here.identity)
    with pytest.raises(ImpossibleDemand):
        begun(site, RUN, JOB).admit()
    site.runtime.start(create_container(site, RUN))
    assert begun(site, RUN, JOB).admit() == lease
    assert site.ledger.runs.get(RUN).prediction == said


def test_a_run_that_came_by_no_gateway_gets_no_port_of_another_team(site: Site) -> None:
    adopt(site, POLICY, {"teams": {"speech": {"ports": "30000-30999"}}})
    for number, (team, port, free) in enumerate(
        [("default", 30001, False), ("speech", 8080, False), ("speech", 30001, True)]
    ):
        job = JOB.model_copy(update={"team": team, "ports": (port,)})
        attempt = begun(site, f"{RUN[:-1]}{number}", job)
        if free:
            assert isinstance(attempt.admit(), Lease)
            continue
        with pytest.raises(ImpossibleDemand, match=r"ports: got .*30000-30999"):
            attempt.admit()
        release(site.ledger, attempt.run_id)


def test_staging_counts_as_the_jobs_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JOB.model_copy(update={"max_runtime": 5.0, "dataset": Dataset(uri="/data/set")})
    attempt = begun(site, RUN, job)

    def stage(dataset: Dataset, run_id: str, **given: Any) -> None:
        raise StagingTimedOut(dataset.uri, given["limit_s"])

    monkeypatch.setattr(DataCache, "stage", lambda _, *given, **more: stage(*given, **more))
    with pytest.raises(StagingTimedOut) as late:
        attempt.stage_data(lambda done, total: None)
    assert late.value.limit_s == 5.0
    assert attempt.fail(exit_of(late.value)).kind is ExitKind.TIMED_OUT
    assert attempt.ended  # not tried again: the next one would take as long


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder outside of the site's home that anybody may read."""
    folder = tmp_path.with_name(f"{tmp_path.name}-sources")
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def test_several_data_sets_are_staged_mounted_and_told_of(site: Site, sources: Path) -> None:
    places = {
        "": sources / "all.csv",
        "valid-set": sources / "valid",
        "again": sources / "all.csv",
    }
    places["valid-set"].mkdir()
    places[""].write_text("a,b\n")
    (places["valid-set"] / "one.csv").write_text("c,d,e\n")
    for place in (*places.values(), places["valid-set"] / "one.csv"):
        place.chmod(0o755)
    sets = {name: Dataset(uri=str(place)) for name, place in places.items()}
    job = JOB.model_copy(update={"dataset": sets.pop(""), "datasets": sets})
    attempt = begun(site, RUN, job)
    staged = attempt.stage_data(lambda done, total: None)
    assert {name: each.path.name for name, each in staged.items()} == {
        "": "all.csv", "valid-set": "data", "again": "all.csv"
    }  # fmt: skip
    assert attempt.dataset_bytes == 4 + 6 + 4
    lease = admitted(attempt)
    spec = container_spec(attempt, lease)
    assert {mount.target for mount in spec.mounts if mount.target.startswith("/data")} == {
        "/data/all.csv", "/data/valid-set", "/data/again/all.csv"
    }  # fmt: skip
    told = {name: Path(spec.env[f"HEADWAY_DATA{name}"]) for name in ("", "_VALID_SET", "_AGAIN")}
    assert (told[""].read_text(), told["_AGAIN"].read_text()) == ("a,b\n", "a,b\n")
    assert (told["_VALID_SET"] / "one.csv").read_text() == "c,d,e\n"
    # Whoever takes over finds all of it there, which does not make it a hit.
    begun(site, RUN, job).stage_data(lambda done, total: None)
    came = {each.name: each.was_there for each in site.ledger.staged.of_run(RUN)}
    assert came == {"": False, "again": True, "valid-set": False}
    assert all(each.run_ids == (RUN,) for each in site.ledger.staged.list("here"))
    report = markdown(history_of(site, site.ledger.runs.get(RUN)))
    assert "**data set again** 4 B, was in the cache of node here" in report
    attempt.clean_up()
    assert all(each.run_ids == () for each in site.ledger.staged.list("here"))


def test_a_program_finds_its_config_as_files_that_it_may_not_change(site: Site) -> None:
    config = {"arch": {"layers": [4, {"norm": None}]}, "trainer": {"lr": 1e-5, "resume": "no"}}
    attempt = begun(site, RUN, JOB.model_copy(update={"config": config}))
    lease = admitted(attempt)
    spec = container_spec(attempt, lease)
    as_json, as_yaml = (Path(spec.env[f"HEADWAY_CONFIG{end}"]) for end in ("", "_YAML"))
    assert json.loads(as_json.read_text()) == config
    assert yaml.safe_load(as_yaml.read_text()) == config
    (mount,) = (mount for mount in spec.mounts if mount.target == "/config")
    assert mount.read_only
    # Another program of its team may be at work on the node, as the same user.
    uid = int((attempt.user or f"{os.geteuid()}:").split(":")[0])
    assert (as_json.stat().st_uid, as_json.stat().st_mode & 0o777) == (uid, 0o400)
    assert mount.source.stat().st_uid == mount.source.parent.stat().st_uid == os.geteuid()


def test_a_program_has_the_variables_of_the_site_unless_its_job_sets_them(site: Site) -> None:
    proxy, index = "http://proxy.example.org:3128", "https://pypi.example.org/simple"
    adopt(site, POLICY, {"environment": {"HTTPS_PROXY": proxy, "UV_DEFAULT_INDEX": index}})
    own = JOB.model_copy(update={"env": {"UV_DEFAULT_INDEX": "https://own.example.org/simple"}})
    attempt = begun(site, RUN, own)
    lease = admitted(attempt)
    env = container_spec(attempt, lease).env
    assert (env["HTTPS_PROXY"], env["UV_DEFAULT_INDEX"]) == (proxy, own.env["UV_DEFAULT_INDEX"])
    for wrong in ({"LD_PRELOAD": "x"}, {"HTTPS_PROXY": "http://a:b@c"}):
        with pytest.raises(ValueError, match=r"it looks like a secret|headway's to set"):
            adopt(site, POLICY, {"environment": wrong})


def test_a_program_reaches_the_outside_as_one_block_says(site: Site, sources: Path) -> None:
    file = sources / "authorities.pem"
    outside = {"index": "https://pypi.example/simple", "proxy": "http://proxy.example:3128",
               "certificates": str(file), "contact": "Ann"}  # fmt: skip
    adopt(site, POLICY, {"outside": outside, "environment": {"PIP_CERT": "/own.pem"}})
    attempt = begun(site, RUN, JOB)
    lease = admitted(attempt)
    with pytest.raises(RuntimeFailure, match=f"{file} cannot be read on node here.*Ask Ann"):
        container_spec(attempt, lease)
    file.write_text("those whom it trusts")
    spec = container_spec(attempt, lease)
    assert Path(spec.env["SSL_CERT_FILE"]).read_text() == "those whom it trusts"
    assert spec.env["https_proxy"] == spec.env["HTTP_PROXY"] == "http://proxy.example:3128"
    assert spec.env["UV_DEFAULT_INDEX"] == "https://pypi.example/simple"
    assert spec.env["PIP_CERT"] == "/own.pem"  # the site's `environment` is stronger
    assert Path(spec.env["SSL_CERT_FILE"]).parent in {mount.source for mount in spec.mounts}


def test_a_launcher_on_one_node_is_told_its_hosts(site: Site) -> None:
    """As it is on several: a job that gives a range of nodes has one command."""
    command = ["horovodrun", "-np", "2", "--hostfile", "{hosts}", "python", "train.py"]
    job = JOB.model_copy(update={"launch": Launch.HOROVOD, "command": command})
    attempt = begun(site, RUN, job)
    lease = admitted(attempt)
    spec = container_spec(attempt, lease)
    assert spec.command[:4] == ("horovodrun", "-np", "2", "--hostfile")
    assert Path(spec.command[4]).read_text() == "localhost slots=1\n"
    assert Path(spec.command[4]).parent in {mount.source for mount in spec.mounts}


def test_the_data_set_that_cannot_be_staged_is_named(site: Site, sources: Path) -> None:
    (sources / "empty").touch(0o755)
    sets = {"valid": Dataset(uri=str(sources / "empty"))}
    attempt = begun(site, RUN, JOB.model_copy(update={"datasets": sets}))
    with pytest.raises(InvalidInput, match=r"^datasets.valid.uri: got "):
        attempt.stage_data(lambda done, total: None)


def test_what_a_member_has_put_is_staged_for_its_team_alone(site: Site) -> None:
    data = b"a,b\n"
    file = SentFile("all.csv", len(data), (hashlib.sha256(data).hexdigest(),))
    put = UploadManifest.of([file], is_directory=False)
    site.upload_chunks.put(JOB.team, data)
    site.ledger.uploads.put(JOB.team, "set", "ada", put)
    job = JOB.model_copy(update={"dataset": Dataset(uri="headway://set")})
    attempt = begun(site, RUN, job)
    path = attempt.stage_data(lambda done, total: None)[""].path
    assert (path.name, path.read_bytes()) == ("all.csv", data)
    uid = int((attempt.user or f"{os.geteuid()}:").split(":")[0])
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (uid, 0o400)
    theirs = begun(site, RUN.replace("1", "2"), job.model_copy(update={"team": "speech"}))
    with pytest.raises(SourceMissing, match="team speech has none of this name"):
        theirs.stage_data(lambda done, total: None)


def test_gpus_of_one_node_have_a_process_each_on_cpus_that_are_near(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = FakeGpus.idle(3)
    near = frozenset(sorted(os.sched_getaffinity(0))[:-1])
    gpus.connect(GpuLinks("GPU-0", cpus=near))
    gpus.connect(GpuLinks("GPU-1", cpus=near))
    site.__dict__["gpus"] = gpus
    join_site(site)
    wants = {"gpus": 2, "sharing": Sharing.WHOLE, "host_memory": "64MiB", "cpus": len(near)}
    job = JOB.model_copy(update={"resources": Resources(**wants)})
    attempt = begun(site, RUN, job)
    lease = admitted(attempt)
    spec = container_spec(attempt, lease)
    assert spec.near_cpus == near
    threads = str(max(1, len(near) // 2))
    assert (spec.env["PET_NPROC_PER_NODE"], spec.env["OMP_NUM_THREADS"]) == ("2", threads)
    attempt.job = job.model_copy(update={"env": {"OMP_NUM_THREADS": "7"}})
    assert container_spec(attempt, lease).env["OMP_NUM_THREADS"] == "7"
    attempt.job = job.model_copy(update={"launch": Launch.MPI})
    assert container_spec(attempt, lease).env["OMPI_MCA_plm_rsh_agent"] == "/bin/sh"
    gpus.error = NvmlUnavailable("the test said so")
    assert container_spec(attempt, lease).near_cpus == frozenset()


def test_training_has_what_staging_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = begun(site, RUN, JOB.model_copy(update={"max_runtime": 10.0}))
    assert attempt._time_left_s() == 10.0
    began = site.clock.now()
    steps = [
        Step("stage_data", number, StepState.DONE, began, began + timedelta(seconds=4))
        for number in (attempt.number, attempt.number + 1)
    ]
    monkeypatch.setattr(site.ledger.steps, "of_run", lambda _: steps)
    assert attempt._time_left_s() == 6.0
    assert begun(site, RUN.replace("1", "2"), JOB)._time_left_s() is None


def test_what_a_run_holds_of_the_host_is_read_with_the_node(site: Site) -> None:
    """Else its memory would count as a stranger's beside what it was granted."""
    assert isinstance(begun(site, RUN, JOB).admit(), Lease)
    site.runtime.start(create_container(site, RUN))
    held = wait_for(
        lambda: read_node(site).run_host_bytes.get(RUN),
        lambda: f"not told: {read_node(site)}",
    )
    assert 0 < held < 64 * MIB


# -- out of memory -----------------------------------------------------------------------------

ON_A_GPU = JOB.model_copy(update={"resources": Resources(host_memory="64MiB", cpus=0.1, gpus=1)})
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"


@pytest.fixture
def gpu_site(site: Site) -> Site:
    """The same site on a node with two kinds of GPU."""
    small = GpuReading("GPU-0", 0, "NVIDIA T4", 16 * GIB, 0)
    large = GpuReading("GPU-1", 1, "NVIDIA A100-SXM4-80GB", 80 * GIB, 0)
    site.gpus = FakeGpus(small, large)
    join_site(site)
    return site


def run_once(attempt: Attempt) -> Lease:
    lease = attempt.admit()
    assert isinstance(lease, Lease), lease
    runs, runtime = attempt.site.ledger.runs, attempt.site.runtime.kind.value
    runs.begin(lease.fence, container=attempt.container, runtime=runtime, ttl_s=60.0)
    return lease


def ended(
    attempt: Attempt,
    code: int = 1,
    *,
    log: str = OOM,
    oom: bool = False,
    gpu_peaks: dict[str, int] | None = None,
) -> Followed:
    status = ContainerStatus(
        attempt.container, RUN, attempt.number, ContainerState.EXITED, code, oom_killed=oom
    )
    return Followed(status, False, 60.0, log, GpuUse(gpu_peaks or {}))


def settled(attempt: Attempt, followed: Followed) -> Exit:
    """How the attempt ended; the run is forecast anew, as its worker does."""
    site = attempt.site
    exit_, _ = attempt.settle(followed)
    release(site.ledger, RUN)
    record = site.ledger.runs.get(RUN)
    if record.state is RunState.WAITING:
        override = record.demand_override
        site.ledger.runs.predict(
            fence_of(site.ledger, RUN), *Forecaster(site).forecast(attempt.job, override=override)
        )
    return exit_


def test_out_of_gpu_memory_gets_a_larger_gpu_teaches_and_ends_with_the_largest(
    gpu_site: Site,
) -> None:
    first = begun(gpu_site, RUN, ON_A_GPU)
    lease = run_once(first)
    assert [(it.uuid, it.sharing) for it in lease.gpus] == [("GPU-0", Sharing.WHOLE)]
    assert first.prediction.gpu_type == "NVIDIA T4"
    exit_ = settled(first, ended(first, gpu_peaks={"GPU-0": 15 * GIB}))
    assert exit_.kind is ExitKind.GPU_OUT_OF_MEMORY
    assert "it held 15.0 GiB and asked for 2.0 GiB more" in exit_.message
    assert exit_.message.endswith("it is tried again with a whole GPU of at least 34.0 GiB")

    second = begun(gpu_site, RUN, ON_A_GPU)
    assert second.number == 2
    assert [it.uuid for it in run_once(second).gpus] == ["GPU-1"]
    assert second.prediction.gpu_type == "NVIDIA A100-SXM4-80GB"
    exit_ = settled(second, ended(second))
    assert exit_.message.endswith("it had the whole of the largest GPU there is, 79.5 GiB")
    assert gpu_site.ledger.runs.get(RUN).state is RunState.ENDED

    bounds = gpu_site.ledger.traces.newest(JOB.recipe(), 9, "default")
    assert [(it.exit, it.gpu_type, it.gpu_peak_bytes, it.host_peak_bytes) for it in bounds] == [
        ("oom", "NVIDIA A100-SXM4-80GB", round(79.5 * GIB), None),
        ("oom", "NVIDIA T4", 17 * GIB, None),
    ]
    said, demand = Forecaster(gpu_site).forecast(ON_A_GPU)
    assert said.gpu_above_bytes == round(79.5 * GIB)
    assert (demand.sharing, demand.gpu_memory_bytes) == (Sharing.WHOLE, round(79.5 * GIB))


def test_a_short_trial_tells_how_much_of_a_gpu_the_real_run_needs(gpu_site: Site) -> None:
    trial = begun(gpu_site, RUN, ON_A_GPU.model_copy(update={"max_runtime": 60.0}))
    lease = run_once(trial)
    assert lease.gpus[0].sharing is Sharing.WHOLE
    points = [ProgressPoint(1.0, 1), ProgressPoint(2.0, 2)]
    gpu_site.ledger.progress.append(lease.fence, points, first=0)
    cut = replace(ended(trial, 143, log="", gpu_peaks={"GPU-0": 4 * GIB}), timed_out=True)
    assert settled(trial, cut).kind is ExitKind.TIMED_OUT
    (told,) = gpu_site.ledger.traces.newest(JOB.recipe(), 9, "default")
    assert (told.exit, told.gpu_peak_bytes) == ("failed", 4 * GIB)
    assert (told.runtime_s, told.host_peak_bytes) == (None, None)
    said, demand = Forecaster(gpu_site).forecast(ON_A_GPU)
    assert (said.gpu_held_bytes, said.learnt_runtime_s) == (4 * GIB, None)
    assert (demand.sharing, demand.gpu_memory_bytes) == (Sharing.SHARED, 6 * GIB)
    assert demand.gpu_memory_basis is Basis.PRIOR


SHARES = ON_A_GPU.model_copy(
    update={
        "resources": Resources(
            host_memory="64MiB", cpus=0.1, gpus=1, gpu_memory="40GiB", gpu_type="A100"
        )
    }
)


@pytest.mark.parametrize("pid", [4711, None])
def test_a_run_that_others_kept_from_its_grant_is_not_given_more(
    gpu_site: Site, pid: int | None
) -> None:
    attempt = begun(gpu_site, RUN, SHARES)
    (grant,) = run_once(attempt).gpus
    # The driver may name no process: once the run is gone all that is in use is others'.
    held = () if pid is None else (GpuProcess(pid, 60 * GIB),)
    gpu_site.gpus.show(grant.uuid, used_bytes=60 * GIB, processes=held)
    exit_ = settled(attempt, ended(attempt, gpu_peaks={grant.uuid: 19 * GIB}))
    who = "pid 4711" if pid else "a process that the driver does not name"
    assert "it stayed within the 40.0 GiB that it was granted of GPU-1" in exit_.message
    assert f"{who}, not of this site, held 60.0 GiB there" in exit_.message
    assert exit_.message.endswith("it is tried again where there is room")
    assert gpu_site.ledger.runs.get(RUN).demand_override is None
    assert gpu_site.ledger.traces.count() == 0
    waits = claim(gpu_site, RUN, SHARES)
    assert not isinstance(waits, Lease)
    assert "20.0 GiB" in waits.reason


def test_a_run_of_which_nothing_is_known_gets_twice_the_memory_and_then_all_there_is(
    site: Site,
) -> None:
    """Its retries, two, are not counted for a guess of the site's own."""
    job = JOB.model_copy(update={"resources": Resources(cpus=0.1)})
    heartbeat(site, read_node(site))  # what strangers use is known
    killed: list[int] = []
    while not killed or site.ledger.runs.get(RUN).state is RunState.WAITING:
        attempt = begun(site, RUN, job)
        killed.append(run_once(attempt).host_memory_bytes)
        assert attempt.number == len(killed) <= 20
        exit_ = settled(attempt, ended(attempt, 137, log="", oom=True))
        assert exit_.kind is ExitKind.OUT_OF_MEMORY
    assert killed[0] <= UNKNOWN_BYTES
    for before, after in pairwise(killed):  # what strangers use changes meanwhile
        assert after == 2 * before or (before < after < 2 * before and 4 * before > killed[-1])
    assert "it had all the host memory that a node could give" in exit_.message
    assert Forecaster(site).forecast(job)[0].host_above_bytes == killed[-1]


def test_a_run_on_gpus_of_several_kinds_teaches_nothing(gpu_site: Site) -> None:
    job = ON_A_GPU.model_copy(
        update={"resources": Resources(host_memory="64MiB", cpus=0.1, gpus=2)}
    )
    attempt = begun(gpu_site, RUN, job)
    lease = run_once(attempt)
    assert Forecaster(gpu_site).gpu_type(lease) == ""
    assert settled(attempt, ended(attempt, 0)).kind is ExitKind.OK
    assert gpu_site.ledger.traces.count() == 0


def test_a_forecast_is_about_the_gpu_that_is_granted(gpu_site: Site) -> None:
    """Before, it is about the slowest of which something is known; its memory the most."""
    for gpu_type, runtime_s, peak_gib in (
        ("NVIDIA T4", 900.0, 7),
        ("NVIDIA A100-SXM4-80GB", 60.0, 8),
    ):
        gpu_site.ledger.traces.add([
            Trace(JOB.recipe(), gpu_type, 1, None, runtime_s=runtime_s, cpus=0.1,
                  gpu_peak_bytes=peak_gib * GIB, run_id=gpu_type)
        ])  # fmt: skip
    said, demand = Forecaster(gpu_site).forecast(ON_A_GPU)
    assert (said.gpu_type, said.runtime_s) == ("NVIDIA T4", pytest.approx(900))
    assert (demand.gpu_memory_bytes, demand.gpu_memory_basis) == (10 * GIB, Basis.PREDICTED)
    gpu_site.gpus.show("GPU-0", used_bytes=15 * GIB)  # a stranger is on the T4
    attempt = begun(gpu_site, RUN, ON_A_GPU)
    assert [it.uuid for it in run_once(attempt).gpus] == ["GPU-1"]
    assert attempt.prediction.runtime_s == pytest.approx(60)
    assert settled(attempt, ended(attempt, 0)).kind is ExitKind.OK
    (newest,) = gpu_site.ledger.traces.newest(JOB.recipe(), 1, "default")
    assert (newest.gpu_type, newest.team) == ("NVIDIA A100-SXM4-80GB", "default")


def test_a_guess_is_small_and_within_the_node_that_the_run_may_go_to(site: Site) -> None:
    (here,) = (each.node for each in site.ledger.nodes.all())
    capacity = replace(here.capacity, cpus=16.0, host_memory_bytes=1024 * GIB)
    there = replace(here, name="there", capacity=capacity, reserve=Reserve())
    site.ledger.nodes.register(there, boot_id="b", worker_token="w")
    job = JOB.model_copy(update={"resources": Resources(cpus=1)})
    _, demand = Forecaster(site).forecast(job, pool=here.pool)
    assert (demand.host_memory_bytes, demand.host_memory_basis) == (UNKNOWN_BYTES, Basis.PRIOR)
    _, bound = Forecaster(site).forecast(job, pool=here.pool, queue="here")
    assert bound.host_memory_bytes <= min(UNKNOWN_BYTES, here.capacity.host_memory_bytes)
    _, large = Forecaster(site).forecast(job, dataset_bytes=200 * GIB, pool=here.pool, queue="here")
    assert large.host_memory_bytes < here.capacity.host_memory_bytes


def test_what_the_guard_stopped_is_tried_again_as_the_sites_fault(site: Site) -> None:
    """Its program ended with 143 or with 0, as it does when it is told to stop."""
    attempt = begun(site, RUN, JOB)
    lease = admitted(attempt)
    site.runtime.start(create_container(site, RUN))
    why = "its lease could not be renewed for 14 min"
    site.settings.state_dir.mkdir()
    keep_notes(site.settings.state_dir, GuardNotes(boot_id(), stopped={attempt.container: why}))
    site.runtime.stop(attempt.container, 5.0)
    status = site.runtime.inspect(attempt.container)
    assert status is not None
    found = AttemptUpkeep(attempt, lease, ()).last_cancellation(status)
    assert found == Exit(ExitKind.INFRASTRUCTURE, status.exit_code, f"stopped by the guard: {why}")


def test_a_flow_process_that_comes_after_its_claim_was_given_back_may_not_begin(site: Site) -> None:
    claimed = begun(site, RUN, JOB)
    lease = admitted(claimed)
    site.ledger.leases.give_back(lease.fence)
    late = Attempt(site, RUN)
    answer = late.admit()
    assert isinstance(answer, Wait)
    assert "given back before its flow process began" in answer.reason
    late.give_back(answer)
    assert site.ledger.runs.get(RUN).state is RunState.WAITING
    assert site.ledger.leases.live() == []

"""From a job and what is predicted of it to a request, and to the options of sbatch."""

from dataclasses import replace

import pytest

from headway.engine.ask import Terms, ask, time_limit_s
from headway.engine.port import (
    After,
    Array,
    Gang,
    GpuAsk,
    Nice,
    Part,
    Request,
    Requeue,
)
from headway.engine.slurm import SlurmEngine
from headway.engine.slurm_options import options
from headway.model.engine import EngineNode, EnginePool, GpuKind
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Refuse, Sharing
from headway.model.run import Prediction, When
from headway.units import GIB, HOUR_S, MIB

GPUS = (GpuKind("a100", 4), GpuKind("v100", 2))
NODES = (EngineNode("n1", 32, 256 * GIB, GPUS), EngineNode("n2", 16, 128 * GIB, GPUS))
POOL = EnginePool("gpu", NODES, max_time_s=24 * HOUR_S)
DEMAND = Demand(host_memory_bytes=3 * GIB + 1, cpus=2.5)
LEARNT = Prediction(
    runtime_s=3600.0, runtime_low_s=3000.0, runtime_high_s=4000.0, basis="forest of 12 runs"
)


NO_TERMS = Terms()


def job(**changes: object) -> TrainingJob:
    return TrainingJob(**{"name": "j", "python": "3", "command": ["python", "t.py"]} | changes)


def asked(
    job: TrainingJob,
    demand: Demand = DEMAND,
    said: Prediction = LEARNT,
    *,
    pool: EnginePool = POOL,
    takes: frozenset[type[Part]] = SlurmEngine.takes,
    terms: Terms = NO_TERMS,
) -> Request | Refuse:
    return ask("k1", job=job, demand=demand, said=said, pool=pool, takes=takes, terms=terms)


def test_the_request_is_what_was_learnt():
    found = asked(job(env={"A": "1"}, stop_grace="20s"))
    assert isinstance(found, Request)
    assert (found.cpus, found.host_memory_bytes, found.gpus) == (3, 3 * GIB + 1, None)
    assert found.time_limit_s == pytest.approx(4000.0 * 1.2 + 20.0)
    assert (found.grace_s, found.env, found.parts) == (20.0, {"A": "1"}, (Requeue(),))


@pytest.mark.parametrize(
    ("max_runtime_s", "said", "limit_s"),
    [
        (None, Prediction(), None),  # the pool's own: nothing is known
        (None, replace(LEARNT, basis="prior"), None),  # a guess cuts nobody short
        (7200.0, Prediction(), 7200.0),
        (1800.0, LEARNT, 1800.0),  # its user's limit is the most
        (7200.0, LEARNT, 4810.0),  # a shorter request starts earlier
        (24 * HOUR_S, Prediction(), 24 * HOUR_S - 130.0),  # with grace and a minute within MaxTime
        (None, replace(LEARNT, runtime_high_s=10.0), 310.0),
    ],
)
def test_the_time_limit(max_runtime_s, said, limit_s):
    assert time_limit_s(max_runtime_s, said, 10.0, POOL) == limit_s


def test_gpus_are_those_that_the_cluster_has():
    demand = replace(DEMAND, gpus=2)
    whole = {"gpus": 2}
    of_any = asked(job(resources=whole), demand)
    a100 = asked(job(resources=whole | {"gpu_type": "NVIDIA A100"}), demand)
    missing = asked(job(resources=whole | {"gpu_type": "H200"}), demand)
    many = asked(job(resources={"gpus": 8}), replace(DEMAND, gpus=8))
    none = asked(
        job(resources=whole), demand, pool=replace(POOL, nodes=(EngineNode("c", 4, GIB * 9),))
    )
    assert isinstance(of_any, Request)
    assert isinstance(a100, Request)
    assert (of_any.gpus, a100.gpus) == (GpuAsk(2), GpuAsk(2, "a100"))
    assert missing == Refuse(
        "resources.gpu_type", "H200", "choose another pool than gpu: its GPUs are a100, v100"
    )
    assert isinstance(many, Refuse)
    assert "at most 4" in many.allowed
    assert isinstance(none, Refuse)
    assert none.allowed.endswith("it has no GPUs")


def test_who_shares_gets_a_part_where_gpus_are_divided():
    divided = replace(POOL, nodes=(EngineNode("n1", 8, 64 * GIB, (GpuKind("a100", 4, 16),)),))
    demand = replace(DEMAND, gpus=1, gpu_utilisation_frac=0.4)
    resources = {"gpus": 1}
    shares = asked(job(resources=resources), demand, pool=divided)
    whole = asked(job(resources=resources), replace(demand, sharing=Sharing.WHOLE), pool=divided)
    assert isinstance(shares, Request)
    assert isinstance(whole, Request)
    assert shares.gpus == GpuAsk(1, shards=2)
    assert whole.gpus == GpuAsk(1)


IN_IMAGE = {"python": "", "image": "team/net"}


@pytest.mark.parametrize("known", [None, {"podman": ""}, {"apptainer": "broken", "docker": ""}])
def test_an_image_goes_where_something_starts_it_or_nobody_could_look(known):
    found = asked(job(**IN_IMAGE, volumes=["models"]), pool=replace(POOL, containers=known))
    assert isinstance(found, Request)
    assert found.image == "docker.io/team/net:latest"


@pytest.mark.parametrize(
    ("changes", "known", "field", "said"),
    [
        ({}, {}, "image", "none of apptainer, singularity, enroot, podman, docker is there"),
        ({}, {"docker": "its service runs as root"}, "image", "docker: its service runs as root"),
        ({"workdir": ".", "requirements": "r.txt"}, None, "requirements", "have in the image"),
        ({"resources": {"nodes": 2}, "launch": "mpi"}, None, "launch", "reaches no other node"),
        ({"volumes": ["models"], "user_folder": True}, None, "user_folder", "your own folder"),
    ],
)
def test_what_no_image_can_have_there_is_refused(changes, known, field, said):
    found = asked(job(**IN_IMAGE, **changes), pool=replace(POOL, containers=known))
    assert isinstance(found, Refuse)
    assert found.field == field
    assert said in found.allowed


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"session": {}}, "session"),
        ({"ports": [6006]}, "ports"),
        ({"secrets": {"TOKEN": "hub"}}, "secrets"),
        ({"datasets": {"a": {"uri": "/data"}}}, "datasets"),
        ({"config": {"a": 1}}, "config"),
        ({"user_folder": True}, "user_folder"),
        ({"resources": {"gpus": 1, "gpu_memory": "40GiB"}}, "resources.gpu_memory"),
        ({"resources": {"gpus": "1-4"}}, "resources"),
        ({"resources": {"disk": "1GiB"}}, "resources.disk"),
        ({"resources": {"nodes": 2}, "launch": "tensorflow"}, "launch"),
        ({"resources": {"nodes": 3}}, "resources.nodes"),
        ({"max_runtime": "48h"}, "max_runtime"),
    ],
)
def test_what_has_no_counterpart_is_refused_before_the_queue(changes, field):
    found = asked(job(**changes))
    assert isinstance(found, Refuse)
    assert found.field == field
    assert found.allowed


def test_what_no_node_has_is_refused():
    for demand, field in (
        (replace(DEMAND, host_memory_bytes=300 * GIB), "resources.host_memory"),
        (replace(DEMAND, cpus=33.0), "resources.cpus"),
    ):
        found = asked(job(), demand)
        assert isinstance(found, Refuse)
        assert found.field == field
    # Two nodes have to have it: the second is smaller.
    found = asked(job(resources={"nodes": 2}), replace(DEMAND, cpus=20.0))
    assert isinstance(found, Refuse)
    assert "at most 16" in found.allowed


def test_a_part_that_the_engine_does_not_know_is_refused():
    found = asked(job(), terms=Terms(parts=(Array(3),)), takes=frozenset({Gang}))
    assert isinstance(found, Refuse)
    assert found.field == "array"


def test_a_request_becomes_options():
    request = Request(
        key="k1", name="j", pool="gpu", command=("a",), cpus=3, host_memory_bytes=3 * GIB + 1,
        gpus=GpuAsk(2, "a100"), time_limit_s=3600.0, grace_s=20.0, account="vision", qos="low",
        parts=(Array(9, 2), After("k0", When.FAILED), After("gone", When.OK), Nice(100), Requeue()),
    )  # fmt: skip
    found = options(request, "headway:s:k1", {"k0": "17"})
    assert {
        "--comment=headway:s:k1", "--mem=3073M", "--cpus-per-task=3", "--gres=gpu:a100:2",
        "--time=62", "--signal=B:TERM@20", "--array=1-9%2", "--dependency=afternotok:17",
        "--nice=100", "--requeue", "--account=vision", "--qos=low", "--nodes=1",
    } <= set(found)  # fmt: skip
    assert [each for each in found if each.startswith("--export=")] == ["--export=ALL"]


def test_an_mpi_gang_has_a_task_for_each_gpu():
    request = Request(
        key="k", name="j", pool="p", command=("mpirun",), cpus=8, host_memory_bytes=MIB,
        gpus=GpuAsk(4), parts=(Gang(2, starts_others=True),),
    )  # fmt: skip
    found = options(request, "c", {})
    assert {"--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=2"} <= set(found)

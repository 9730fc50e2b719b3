"""What the worker starts, and that nothing written to Prefect's API chooses it."""

import asyncio
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import Flow, FlowRun
from prefect.results import ResultRecordMetadata
from prefect.runner import Runner
from prefect.serializers import PickleSerializer
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed
from prefect.workers.process import ProcessWorker

import flows.train
from headway.errors import HeadwayError
from headway.project import FLOWS, PROJECT
from headway.worker.flow_process import ENTRYPOINT, GpuNodeConfiguration
from headway.worker.gpu_node import GpuNodeWorker


def test_it_shares_no_folder_with_another_user_of_the_machine(monkeypatch, tmp_path: Path) -> None:
    own = tmp_path / "home/state/tmp"
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = own / "runner_storage/left-by-the-last"
    left.mkdir(parents=True)
    used = []

    async def enter(worker: ProcessWorker) -> ProcessWorker:
        used.append(Runner()._tmp_dir)
        return worker

    monkeypatch.setattr(ProcessWorker, "__aenter__", enter)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}):
        asyncio.run(GpuNodeWorker(work_pool_name="p").__aenter__())
    assert own in used[0].parents
    assert own.stat().st_mode & 0o077 == 0
    assert not left.exists()


def test_every_flow_of_the_table_exists() -> None:
    for name, entrypoint in FLOWS.items():
        module, function = entrypoint.split(":")
        __import__(module)
        assert getattr(sys.modules[module], function).name == name


def configuration(flow: str, run: FlowRun) -> GpuNodeConfiguration:
    """What the worker resolves for *run* of *flow*."""

    async def read_flow(flow_id: object) -> Flow:
        assert flow_id == run.flow_id
        return Flow(id=run.flow_id, name=flow, labels={})

    client = cast("Any", SimpleNamespace(read_flow=read_flow))  # and no deployment, no block
    pool = SimpleNamespace(
        base_job_template={
            "job_configuration": {"command": "touch /canary", "env": {"POOL": "1"}},
            "variables": {"properties": {}},
        }
    )
    return asyncio.run(
        GpuNodeConfiguration.resolve_for_flow_run(run, client=client, work_pool=pool)
    )


def test_nothing_that_a_run_or_its_pool_says_reaches_the_flow_process(monkeypatch) -> None:
    monkeypatch.delenv(ENTRYPOINT, raising=False)
    evil = {
        "command": "touch /canary",
        "working_dir": "/canary",
        "stream_output": True,
        "env": {"RUN": "1", ENTRYPOINT: "/canary.py:evil", "env.DOTTED": "1"},
    }
    run = FlowRun(flow_id=uuid4(), deployment_id=uuid4(), job_variables=evil)
    found = configuration("train", run)
    found.start_with("the-stub")
    assert (found.command, found.working_dir, found.stream_output) == ("the-stub", PROJECT, False)
    given = {name for name in found.env if name not in os.environ}
    assert {name for name in given if not name.startswith("PREFECT")} == set()
    assert found.env[ENTRYPOINT] == "flows.train:train"
    assert found.env["PREFECT__FLOW_RUN_ID"] == str(run.id)


def test_a_flow_that_is_not_in_the_table_is_not_started() -> None:
    found = configuration("evil", FlowRun(flow_id=uuid4()))
    with pytest.raises(HeadwayError, match="so its run was not started"):
        found.start_with("the-stub")
    assert ENTRYPOINT not in found.env


def test_a_pool_offers_no_variables() -> None:
    template = GpuNodeWorker.get_default_base_job_template()
    assert template["variables"]["properties"] == {}
    assert "{{" not in str(template)


@pytest.fixture
def sleeping() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes; the second says that it was started for run `mine`."""
    started = [
        subprocess.Popen(["sleep", "60"], env={"PREFECT__FLOW_RUN_ID": run})
        for run in ("other", "mine")
    ]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_only_a_process_of_the_run_itself_is_ended_by_a_pid_from_the_api(sleeping) -> None:
    worker = GpuNodeWorker(work_pool_name="p")
    mine = configuration("train", FlowRun(flow_id=uuid4()))
    mine._run_id = "mine"
    for pid in (str(sleeping[0].pid), "-1", "not a pid", str(2**22 + 1), str(sleeping[1].pid)):
        asyncio.run(worker.kill_infrastructure(pid, mine))
    sleeping[1].wait(10)
    assert sleeping[0].poll() is None


class Evil:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_state_that_points_to_a_pickle_has_no_result(tmp_path: Path) -> None:
    assert flows.train.train.name == "train"  # what a flow process has imported
    canary, stored = tmp_path / "canary", tmp_path / "result"
    body = PickleSerializer().dumps(Evil(canary)).decode()
    metadata = ResultRecordMetadata(storage_key=str(stored), serializer=PickleSerializer())
    document = {"metadata": metadata.model_dump(mode="json"), "result": body}
    stored.write_text(json.dumps(document))
    pickle.loads(pickle.dumps(Evil(canary)))
    assert canary.exists()
    canary.unlink()
    state = Completed(data=metadata)
    with pytest.raises(RuntimeError, match="reads no stored results"):
        asyncio.run(state.aresult(retry_result_failure=False))
    assert not canary.exists()

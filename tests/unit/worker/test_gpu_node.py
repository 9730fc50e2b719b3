"""What the worker starts, and that nothing written to Prefect's API chooses it."""

import asyncio
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.results import ResultRecordMetadata
from prefect.serializers import PickleSerializer
from prefect.states import Completed

import flows.train
from headway.errors import HeadwayError
from headway.project import FLOWS
from headway.worker.flow_process import ENTRYPOINT, flow_environment
from headway.worker.gpu_node import GpuNodeWorker


def test_every_flow_of_the_table_exists() -> None:
    for name, entrypoint in FLOWS.items():
        module, function = entrypoint.split(":")
        __import__(module)
        assert getattr(sys.modules[module], function).name == name


def test_nothing_that_a_run_or_its_pool_says_reaches_the_flow_process(monkeypatch) -> None:
    monkeypatch.delenv(ENTRYPOINT, raising=False)
    env = flow_environment("the-run", "train")  # it is told nothing else of the run
    given = {name for name in env if name not in os.environ}
    assert {name for name in given if not name.startswith("PREFECT")} == set()
    assert env[ENTRYPOINT] == "flows.train:train"
    assert env["PREFECT__FLOW_RUN_ID"] == "the-run"


def test_a_flow_that_is_not_in_the_table_is_not_started() -> None:
    with pytest.raises(HeadwayError, match="so its run was not started"):
        flow_environment("the-run", "evil")


def test_a_pool_offers_no_variables() -> None:
    template = GpuNodeWorker.get_default_base_job_template()
    assert template["variables"]["properties"] == {}
    assert "{{" not in str(template)


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

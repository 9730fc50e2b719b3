"""The engine contract, on the fake and on a real Slurm."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.engine.errors import EngineAway, EngineRefused
from headway.engine.place import Place
from headway.engine.port import Engine, Requeue
from headway.engine.slurm import SlurmEngine
from headway.model.engine import GpuKind
from headway.model.run import ExitKind
from tests.ports.engine import POOL, FakeCluster, FakeEngine
from tests.ports.engine_contract import (
    BesideContract,
    EngineContract,
    KeyedContract,
    OperatedContract,
    QueueContract,
)
from tests.ports.engine_harness import EngineHarness
from tests.support.slurm import Slurm


class TestFake(EngineContract, QueueContract, KeyedContract, BesideContract, OperatedContract):
    @pytest.fixture
    def cluster(self) -> Iterator[FakeCluster]:
        cluster = FakeCluster()
        yield cluster
        cluster.end()

    @pytest.fixture
    def harness(self, tmp_path: Path, cluster: FakeCluster) -> EngineHarness:
        def make(site: str) -> Engine:
            engine = FakeEngine(Place(tmp_path / site), site, SystemClock())
            engine.cluster = cluster
            return engine

        return EngineHarness(make, cluster, tmp_path / "contract", POOL, limit_s=1.0)

    def test_what_it_has_no_counterpart_for_is_refused(self, harness: EngineHarness) -> None:
        assert harness.refuses(Requeue())

    def test_one_that_is_away_is_asked_again(
        self, harness: EngineHarness, cluster: FakeCluster
    ) -> None:
        request = harness.request("echo once")
        cluster.is_away = True
        with pytest.raises(EngineAway, match="no job is submitted twice"):
            harness.engine().submit(request)
        cluster.is_away = False
        assert harness.engine().submit(request).is_new
        harness.ended(request.key)

    def test_one_question_is_asked_for_all(
        self, harness: EngineHarness, cluster: FakeCluster
    ) -> None:
        for _ in range(4):
            harness.submitted("true")
        before = cluster.questions
        assert len(harness.engine().jobs()) == 4
        assert cluster.questions == before + 1


@pytest.mark.slurm
class TestSlurm(EngineContract, QueueContract, KeyedContract, BesideContract, OperatedContract):
    @pytest.fixture
    def harness(
        self, tmp_path: Path, cluster: Slurm, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[EngineHarness]:
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])

        def make(site: str) -> Engine:
            return SlurmEngine(Place(tmp_path / site), site, SystemClock())

        yield EngineHarness(make, cluster, tmp_path / "contract", "all", within_s=60.0)
        cluster.end_all()

    def test_who_is_killed_while_submitting_leaves_one_job(self, harness: EngineHarness) -> None:
        """At whatever moment: `sbatch` itself lives on, and may have its job after the repeat."""
        requests = [
            harness.request('echo once >> "$HEADWAY_OUTPUTS/../count"; sleep 1') for _ in range(10)
        ]
        for number, request in enumerate(requests):
            if (pid := os.fork()) == 0:
                harness.engine().submit(request)
                os._exit(0)
            time.sleep(0.004 * number)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            harness.engine().submit(request)
        for request in requests:
            end = harness.end(request.key)
            assert end.kind is ExitKind.OK
            assert (harness.folder / request.key / "count").read_text() == "once\n"

    def test_a_controller_that_is_down_is_told_and_nothing_is_handed_in_twice(
        self, harness: EngineHarness, cluster: Slurm
    ) -> None:
        request = harness.request("echo once")
        cluster.kill_controller()
        for ask in (harness.engine().jobs, lambda: harness.engine().submit(request)):
            with pytest.raises(EngineAway, match="Slurm did not answer"):
                ask()
        cluster.restart()
        # Killed, it has forgotten its last seconds: jobs of the test before are there again.
        cluster.ask("scancel", "--me")
        harness.engine().submit(request)
        harness.ended(request.key)
        assert harness.log(request.key) == "once\n"

    def test_what_slurm_refuses_is_said_in_its_words(self, harness: EngineHarness) -> None:
        request = harness.request("true", pool="nowhere")
        with pytest.raises(EngineRefused, match="invalid partition"):
            harness.engine().submit(request)
        assert harness.job(request.key) is None
        gpus = harness.engine().inspect().pools[0].nodes[0].gpus
        assert gpus == (GpuKind("", 2),)

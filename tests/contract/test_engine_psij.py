"""The engine contract on PSI/J: on its executor for one machine, and on that for a real Slurm."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.engine.errors import EngineRefused
from headway.engine.place import Place
from headway.engine.port import Engine, GpuAsk, Phase
from headway.engine.psij import PsijEngine
from headway.model.engine import EngineNode, EnginePool
from headway.units import GIB
from tests.ports.engine import FakeCluster
from tests.ports.engine_contract import (
    BesideContract,
    EngineContract,
    OperatedContract,
    QueueContract,
)
from tests.ports.engine_harness import EngineHarness
from tests.support.slurm import Slurm

pytest.importorskip("psij", reason="installed with the next `make`: it is in the lock files")


def _two_nodes(pool: str) -> EnginePool:
    return EnginePool(pool, tuple(EngineNode(name, 2, 4 * GIB) for name in ("n1", "n2")))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
class TestPsijHere(EngineContract):
    """PSI/J's own executor for one machine: no queue, and it kills at once."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[EngineHarness]:
        def make(site: str) -> Engine:
            place = Place(tmp_path / site)
            pools = [_two_nodes("here")]
            return PsijEngine(place, site, SystemClock(), kind="local", pools=pools)

        harness = EngineHarness(make, FakeCluster(), tmp_path / "contract", "here", limit_s=1.0)
        yield harness
        left = [job for job in harness.engine().jobs() if job.phase is not Phase.ENDED]
        harness.engine().cancel([(job.key, 0) for job in left])
        for job in left:
            harness.ended(job.key)
        time.sleep(0.5)  # PSI/J's thread lets go of their pipes, which it does not close
        gc.collect()

    def test_what_its_script_cannot_ask_for_is_refused(self, harness: EngineHarness) -> None:
        for asked in ({"gpus": GpuAsk(1)}, {"gpus": GpuAsk(1, "a100")}, {"qos": "long"}):
            request = harness.request("true", **asked)
            with pytest.raises(EngineRefused, match="PSI/J cannot name "):
                harness.engine().submit(request)
            assert harness.job(request.key) is None


@pytest.mark.slurm
class TestPsijOnSlurm(EngineContract, QueueContract, BesideContract, OperatedContract):
    """Its executors for batch schedulers are one class with other commands: this one is real."""

    @pytest.fixture
    def harness(
        self, tmp_path: Path, cluster: Slurm, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[EngineHarness]:
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])

        def make(site: str) -> Engine:
            place = Place(tmp_path / site)
            pools = [_two_nodes("all")]
            return PsijEngine(place, site, SystemClock(), kind="slurm", pools=pools)

        folder = tmp_path / "contract"
        yield EngineHarness(
            make, cluster, folder, "all", within_s=60.0, limit_s=1.0, held=Phase.WAITING
        )
        cluster.end_all()

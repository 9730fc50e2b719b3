"""The engine contract on a Ray of two nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.engine.errors import EngineAway, EngineRefused
from headway.engine.place import Place
from headway.engine.port import Engine, GpuAsk, Phase
from headway.engine.ray_jobs import PARTS, POOL, RayEngine
from headway.model.engine import GpuKind
from headway.waits import until
from tests.ports.engine_contract import (
    BesideContract,
    EngineContract,
    KeyedContract,
    QueueContract,
)
from tests.ports.engine_harness import EngineHarness
from tests.support.ray import Ray, two_ray_nodes


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    yield from two_ray_nodes()


@pytest.mark.ray
class TestRay(EngineContract, QueueContract, KeyedContract, BesideContract):
    """Ray's Job API, on a Ray of two nodes with two GPUs each."""

    @pytest.fixture
    def harness(self, tmp_path: Path, ray: Ray) -> Iterator[EngineHarness]:
        def make(site: str) -> Engine:
            return RayEngine(Place(tmp_path / site), site, SystemClock(), address=ray.address)

        folder = tmp_path / "contract"
        yield EngineHarness(make, ray, folder, POOL, within_s=60.0, limit_s=1.0)
        ray.end_all()

    def test_gpus_are_shared_by_fractions(self, harness: EngineHarness) -> None:
        """Two GPUs for four jobs; who wants a whole one waits."""
        gpus = [each.gpus for each in harness.engine().inspect().pools[0].nodes]
        assert gpus == [(GpuKind("", 1, PARTS),)] * 2
        half = GpuAsk(1, shards=PARTS // 2)
        command = 'echo "GPU $CUDA_VISIBLE_DEVICES"; exec sleep 300'
        keys = [harness.submitted(command, gpus=half).key for _ in range(4)]
        for key in keys:
            harness.until(key, Phase.RUNNING)
            assert until(lambda key=key: harness.log(key), SystemClock(), 30.0, 0.1)
            assert harness.log(key) == "GPU 0\n"
        whole = harness.submitted("true", gpus=GpuAsk(1)).key
        harness.engine().cancel([(keys[0], 0)])
        harness.ended(keys[0])
        assert harness.until(whole, Phase.WAITING).end is None

    def test_what_it_cannot_be_asked_for_is_refused(self, harness: EngineHarness) -> None:
        for asked in ({"account": "a"}, {"qos": "long"}):
            request = harness.request("true", **asked)
            with pytest.raises(EngineRefused, match="no accounts and no QOS"):
                harness.engine().submit(request)
            assert harness.job(request.key) is None

    def test_a_head_that_is_away_is_told(self, tmp_path: Path) -> None:
        engine = RayEngine(Place(tmp_path), "s", SystemClock(), address="http://127.0.0.1:9")
        with pytest.raises(EngineAway, match="Ray did not answer"):
            engine.jobs()

"""A node is measured in the image that the site names, before anything runs on it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from headway.admin.doctor import examine
from headway.clock import SystemClock
from headway.estimate import store
from headway.estimate.estimator import Estimators
from headway.estimate.features import Configuration
from headway.estimate.physics import shipped
from headway.model.container_policy import ContainerPolicy, NetworkMode
from headway.model.node import Gpu
from headway.model.speeds import GpuSpeeds, MeasuredGpu, NodeSpeeds
from headway.node.probe_program import MARK
from headway.node.probing import check_believable, probe_node, read_line
from headway.prefect.client import PrefectServer
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerSpec
from headway.settings import Settings
from headway.site import Site
from headway.testing.clock import FakeClock
from headway.testing.runtime import FakeMachine, FakeRuntime, Script
from headway.testing.telemetry import FakeGpus
from headway.this_node import join_site
from headway.units import GIB
from tests.support.postgresql import with_ledger

IMAGE = "ml/torch:2"
NODE = NodeSpeeds(9e8, 4e8, 9e8, 1e11)
V100 = GpuSpeeds(13e12, 100e12, None, 800e9, 12e9, 13e9, None)


def line(gpu: GpuSpeeds | None = V100, **more: Any) -> bytes:
    """What the program prints."""
    found = {"node": asdict(NODE)} | ({"gpu": asdict(gpu)} if gpu else {}) | more
    return f"a banner of the image\n\n{MARK}{json.dumps(found)}\n".encode()


class Noting(FakeRuntime):
    """Notes what was asked for."""

    specs: list[ContainerSpec]

    def create(self, spec: ContainerSpec) -> None:
        self.specs.append(spec)
        super().create(spec)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A node of two idle V100s whose site names an image."""
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), FakeClock())
    vars(site)["gpus"] = FakeGpus.idle(2, 16 * GIB, "Tesla V100-SXM2-16GB")
    join_site(site)
    site.ledger.settings.put("policy", {"probe_image": IMAGE})
    policy = ContainerPolicy(mount_roots=(tmp_path,))
    runtime = Noting("s", policy, site.clock, FakeMachine(default=Script(((0.0, line()),))))
    runtime.specs = []
    vars(site)["runtime"] = runtime
    yield site
    site.ledger.close()


def probed(site: Site) -> tuple[list[ContainerSpec], str]:
    """What a probe starts and says."""
    said: list[str] = []
    site.runtime.specs.clear()  # type: ignore[attr-defined]
    probe_node(site, said.append)
    return list(site.runtime.specs), "\n".join(said)  # type: ignore[attr-defined]


def test_what_was_measured_takes_the_place_of_the_data_sheet(site: Site) -> None:
    before = site.tables
    assert before.basis("Tesla V100-SXM2-16GB") == "data sheet"
    (spec,), said = probed(site)
    assert (spec.image, spec.network) == (IMAGE, NetworkMode.NONE)
    assert len(spec.gpu_uuids) == 2  # one is measured, and its way to the other
    assert "about half a minute" in said
    after = site.tables
    assert after.basis("Tesla V100-SXM2-16GB") == "measured"
    asked = Configuration(gpu_type="v100", precision="amp")
    half = after.complete(asked).gpu_flops_per_s
    assert half == pytest.approx(100e12 / 0.82)
    assert half != before.complete(asked).gpu_flops_per_s
    assert site.ledger.speeds.node("here") is not None
    assert list(site.settings.work_dir.iterdir()) == []
    assert site.runtime.containers() == []


def test_a_process_that_lives_on_goes_by_what_is_new(site: Site) -> None:
    old = site.estimators
    assert site.estimators is old
    probed(site)
    assert site.estimators.tables.basis("Tesla V100-SXM2-16GB") == "measured"
    assert site.estimators.version == 0
    store.save(Estimators(version=3), site.settings.models_dir)  # as the nightly refit does
    assert site.estimators.version == 3


def test_a_product_is_measured_once_in_each_image_and_each_node_by_itself(site: Site) -> None:
    probed(site)
    assert probed(site) == ([], "")
    other = Site(site.settings.model_copy(update={"node": "there"}), site.clock)
    for name in ("runtime", "gpus", "ledger"):
        vars(other)[name] = vars(site)[name]
    specs, said = probed(other)
    assert [spec.gpu_uuids for spec in specs] == [()]
    assert "the CPUs and the disk" in said
    site.ledger.settings.put("policy", {"probe_image": "ml/torch:3"})
    assert [spec.image for spec in probed(site)[0]] == ["ml/torch:3"]


def test_without_an_image_or_with_a_gpu_in_use_nothing_is_measured_of_it(site: Site) -> None:
    site.gpus.show("GPU-0", used_bytes=3 * GIB)  # type: ignore[attr-defined]
    (spec,), _ = probed(site)
    assert spec.gpu_uuids == ("GPU-1",)
    site.ledger.settings.put("policy", {})
    assert probed(site) == ([], "")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (Script(((0.0, b"no python here\n"),), exit_code=127), "no python here"),
        (Script(((0.0, MARK.encode() + b"{}"),)), "node: Field required"),
        (Script(runs_s=1e6), "did not end within 120 s"),
        (Script(((0.0, line(None, no_gpu="no PyTorch")),)), "no PyTorch; its data sheet"),
        (Script(((0.0, line(replace(V100, fp16_flops_per_s=9e14))),)), "data sheet has 1.25e"),
    ],
)
def test_what_an_image_does_not_measure_stays_with_the_data_sheet(
    site: Site, script: Script, why: str
) -> None:
    site.runtime.machine.default = script  # type: ignore[attr-defined]
    assert why in probed(site)[1]
    assert site.tables.basis("Tesla V100-SXM2-16GB") == "data sheet"
    assert site.runtime.containers() == []
    # What measured the node and no GPU is not run again at each start; what failed as a whole is.
    assert bool(probed(site)[0]) == (site.ledger.speeds.node("here") is None)


def test_an_image_that_is_not_there_or_not_allowed_keeps_no_node_from_joining(site: Site) -> None:
    site.runtime.machine.missing_images.add(IMAGE)  # type: ignore[attr-defined]
    assert "data sheets are believed" in probed(site)[1]
    assert list(site.settings.work_dir.iterdir()) == []


@pytest.mark.parametrize("bad", [0, -1.0, 1e30, "fast", True, None, float("nan")])
def test_no_number_that_cannot_be_is_believed(bad: object) -> None:
    found = asdict(V100) | {"fp32_flops_per_s": bad}
    log = f"{MARK}{json.dumps({'node': asdict(NODE), 'gpu': found})}".encode()
    with pytest.raises(RuntimeFailure, match=r"gpu\.fp32_flops_per_s|its line"):
        read_line(log, IMAGE)


def test_a_gpu_that_no_table_knows_is_known_by_its_measurement() -> None:
    name = "NVIDIA X9000 PCIe"
    assert shipped().basis(name) == "unknown"
    check_believable(shipped(), Gpu("u", 0, name, 48 * GIB), V100)
    tables = shipped().with_measured({name: MeasuredGpu(V100, 48 * GIB, "here", IMAGE)})
    assert tables.gpu_name(name) == shipped().gpu_name(name)  # its traces keep their type
    assert tables.basis(name) == "measured"
    assert tables.basis("NVIDIA X9000 PCIe Ultra") == "data sheet of its nearest relative"
    known = tables.complete(Configuration(gpu_type=name))
    assert known.gpu_memory_bytes == 48 * GIB
    assert not known.gpu_is_guessed


def test_the_program_measures_a_machine_without_pytorch(tmp_path: Path) -> None:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    vars(site)["gpus"] = FakeGpus()
    join_site(site)
    site.ledger.settings.put("policy", {"probe_image": IMAGE})
    said: list[str] = []
    probe_node(site, said.append)
    measured = site.ledger.speeds.node("here")
    with PrefectServer("http://127.0.0.1:9/api", auth=None, timeout_s=1.0) as nobody:
        told = {each.what: each.found for each in examine(site, nobody)}
    assert f"on a core; in {IMAGE}" in told["speed of this node"]
    site.ledger.close()
    assert measured is not None, said
    assert measured.speeds.hash_bytes_per_s > 1e6
    assert measured.speeds.write_bytes_per_s > 1e5

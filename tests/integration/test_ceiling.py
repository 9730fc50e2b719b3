"""The ceiling of a node: a file of root's, without which nothing is started and nothing is lost."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.admin.doctor import examine
from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.lease import Wait
from headway.prefect.client import PrefectServer
from headway.runtime.errors import CeilingUnsafe, PolicyViolation
from headway.settings import Settings
from headway.site import POLICY, Site
from headway.this_node import adopt, join_site, read_node
from tests.ports.telemetry import FakeGpus
from tests.support.leading import admitted
from tests.support.postgresql import with_ledger
from tests.support.queued import begun, claim

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a ceiling is root's")

RUN, NEXT = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
JOB = TrainingJob(
    name="job",
    image="image:1",
    command=["sleep", "60"],
    resources=Resources(host_memory="64MiB", cpus=0.1),
)


@pytest.fixture
def ceiling(tmp_path: Path) -> Path:
    file = tmp_path / "etc/ceiling.yaml"
    file.parent.mkdir()
    file.write_text(
        "images: ['image:*']\nnetworks: [bridge, none]\nuids: [2100000000-2100999999]\n"
    )
    return file


@pytest.fixture
def site(ceiling: Path, tmp_path: Path) -> Iterator[Site]:
    home = tmp_path / "home"
    settings = Settings(home=with_ledger(home), runtime="process", node="here", ceiling=ceiling)
    site = Site(settings, SystemClock())
    site.make_ledger()
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


def give_away(file: Path) -> None:
    os.chown(file, 65534, 65534)


def open_to_all(file: Path) -> None:
    file.chmod(0o666)


def open_the_folder(file: Path) -> None:
    file.parent.chmod(0o777)


def link(file: Path) -> None:
    file.rename(file.with_suffix(".real"))
    file.symlink_to(file.with_suffix(".real"))


def misspell(file: Path) -> None:
    file.write_text("image: ['x']\n")


def write_no_mapping(file: Path) -> None:
    file.write_text("- images\n")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (give_away, "it belongs to uid 65534, not to root"),
        (open_to_all, "others than root may write to it"),
        (open_the_folder, "others than root may write to it"),
        (link, "symbolic links"),
        (misspell, "image: Extra inputs"),
        (write_no_mapping, "it is no mapping"),
        (Path.unlink, "it is not there"),
    ],
)
def test_one_that_cannot_be_trusted_is_refused(
    site: Site, ceiling: Path, break_it: Callable[[Path], None], said: str
) -> None:
    assert site.ceiling is not None
    break_it(ceiling)
    with pytest.raises(CeilingUnsafe, match=said):
        _ = site.ceiling


def test_a_node_without_one_that_is_trusted_starts_nothing_and_goes_on(
    site: Site, ceiling: Path
) -> None:
    first = begun(site, RUN, JOB)
    lease = admitted(first)
    first.launch(lease, dict)
    open_to_all(ceiling)
    assert "only root may change" in read_node(site).closed
    waits = claim(site, NEXT, JOB)
    assert isinstance(waits, Wait)
    assert "cannot be trusted" in waits.reason
    # What runs is followed and cleaned up all the same.
    again = begun(site, RUN, JOB)
    again.stage_data(lambda *_: None)
    found_again = admitted(again)
    assert found_again.lease_id == lease.lease_id
    assert site.runtime.inspect(again.container) is not None
    again.clean_up()
    assert site.runtime.containers() == []
    found = {
        each.what: each
        for each in examine(site, PrefectServer("http://127.0.0.1:9/api", auth=None))
    }
    assert not found["ceiling"].ok
    ceiling.chmod(0o644)
    assert read_node(site).closed == ""


def test_a_block_that_allows_more_does_not_hold(site: Site) -> None:
    adopt(site, POLICY, {"images": ["image:1"]})
    for wider in ({"images": ["*"]}, {"network": "host"}, {"teams": {"v": {"uids": "5000-5999"}}}):
        with pytest.raises(ValueError, match=r"the ceiling .*/ceiling\.yaml allows"):
            adopt(site, POLICY, wider)
    assert site.container_policy.images == ("image:1",)


def test_what_a_block_allowed_before_there_was_a_ceiling_closes_the_node(
    site: Site, ceiling: Path
) -> None:
    adopt(site, POLICY, {"images": ["image:1"]})
    ceiling.write_text("images: ['other:*']\n")
    assert "images: got" in read_node(site).closed
    ceiling.write_text("images: []\n")  # none at all, and not any
    assert "allows nothing" in read_node(site).closed


def test_an_image_that_only_the_ceiling_forbids_is_not_started(site: Site) -> None:
    attempt = begun(site, RUN, JOB.model_copy(update={"image": "other:1"}))
    lease = admitted(attempt)
    with pytest.raises(PolicyViolation, match=r"give one of image:\*"):
        attempt.launch(lease, dict)
    assert site.runtime.containers() == []


def test_only_gpus_that_it_names_are_offered(site: Site, ceiling: Path) -> None:
    site.__dict__["gpus"] = gpus = FakeGpus.idle(2)
    second = gpus.gpus()[1].uuid
    ceiling.write_text(f"devices: [{second}]\n")
    join_site(site)
    (node,) = site.ledger.nodes.all()
    assert [gpu.uuid for gpu in node.node.capacity.gpus] == [second]


@pytest.mark.parametrize("user", ["0:0", "1000:2100000000", "2100000000:0"])
def test_one_user_for_all_is_bounded_too(site: Site, user: str) -> None:
    settings = site.settings.model_copy(update={"container_user": user})
    bounded = Site(settings, site.clock)
    assert "HEADWAY_CONTAINER_USER: got" in bounded.why_closed()
    assert "allows 2100000000-2100999999" in bounded.why_closed()
    with pytest.raises(InvalidInput, match="HEADWAY_CONTAINER_USER"):
        bounded.user_of("vision")
    within = settings.model_copy(update={"container_user": "2100000000:2100000000"})
    assert Site(within, site.clock).why_closed() == ""

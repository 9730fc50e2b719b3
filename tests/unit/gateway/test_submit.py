"""What submit says about a job that this site cannot run."""

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.gateway.submit import allowed_here, job_of, limit, refuse_missing, stamped
from headway.ledger import Ledger
from headway.model.access import Caller, Scope
from headway.model.container_policy import ContainerPolicy
from headway.model.job_text import read_job
from headway.model.node import Capacity, Gpu, HostReading, Node, NodeReading, Reserve
from headway.policy.settings import PolicySettings
from headway.telemetry.host import boot_id
from headway.this_node import os_user
from headway.units import GIB
from tests.support.postgresql import new_ledger

SMALL = Node("h1", "cpu", Capacity(4, 8 * GIB), Reserve(0.5, GIB))
LARGE = Node(
    "h2",
    "gpu",
    Capacity(16, 64 * GIB, (Gpu("a", 0, "V100", 16 * GIB), Gpu("b", 1, "A100", 80 * GIB))),
    Reserve(1.0, 4 * GIB),
)


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        (
            "resources.gpu_memory",
            "give a size between 6.0 MiB and 80.0 GiB (the largest GPU of pool gpu)",
        ),
        (
            "resources.host_memory",
            "give a size between 6.0 MiB and 60.0 GiB (the largest node, h2), or auto",
        ),
        ("resources.cpus", "give a number between 0.01 and 15 (the largest node, h2)"),
        ("resources.gpus", ""),
        ("name", ""),
    ],
)
def test_the_limit_is_the_largest_nodes(field, allowed):
    assert limit(field, [SMALL, LARGE]) == allowed
    assert limit(field, []) == ""


def test_a_site_without_gpus_has_no_limit_for_their_memory():
    assert limit("resources.gpu_memory", [SMALL]) == ""


def site(*nodes: Node, here: str = "h1", boot: str = "", no_image: str = "", user: str = "") -> Any:
    records = [SimpleNamespace(node=each, boot_id=boot or boot_id()) for each in nodes]
    return SimpleNamespace(
        settings=SimpleNamespace(node=here),
        ledger=SimpleNamespace(nodes=SimpleNamespace(all=lambda: records)),
        runtime=SimpleNamespace(why_no_image=lambda _: no_image),
        container_policy=ContainerPolicy(),
        policy_for=lambda _: ContainerPolicy(),
        nodes=lambda: list(nodes),
        user_of=lambda _: user,
    )


def refuse(of: Any, uri: str, *, queue: str = "", secrets: tuple[str, ...] = ("known",)) -> None:
    job = f"name: a\nimage: i\ncommand: [x]\nsecrets: {{T: known}}\ndataset: {{uri: '{uri}'}}\n"
    server: Any = SimpleNamespace(has_secret=lambda name: name in secrets)
    read = read_job(job.encode(), filename="job.yaml")
    refuse_missing(of, read, server, pool="cpu", queue=queue)


def test_data_that_is_not_there_is_told_at_once_where_that_can_be_known(tmp_path: Path) -> None:
    none, there = str(tmp_path / "none"), str(tmp_path)
    alone = site(SMALL)
    refuse(alone, there)
    for uri in (none, f"file://{none}", f"{Path(__file__)}/in-a-file"):
        with pytest.raises(InvalidInput, match="nothing is there on node h1") as caught:
            refuse(alone, uri)
        assert (caught.value.field, caught.value.where) == ("dataset.uri", "job.yaml:5")
    # What lies on other machines, or elsewhere, nobody knows here.
    other = Node("h3", "cpu", Capacity(4, 8 * GIB))
    refuse(site(SMALL, other), none)
    refuse(site(SMALL, other), none, queue="h3")
    refuse(site(SMALL, here="laptop"), none)
    refuse(site(SMALL, boot="another machine"), none)
    refuse(alone, "s3://bucket/none")
    with pytest.raises(InvalidInput, match="nothing is there"):
        refuse(site(SMALL, other), none, queue="h1")
    refuse(site(SMALL, LARGE), there)  # the other one is of another pool


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_lies_in_a_folder_of_others_is_not_told(tmp_path: Path) -> None:
    """Root's gateway could see it: whether a name is there says what others work on."""
    outside = Path(tempfile.mkdtemp(dir="/tmp"))  # where anybody may pass, unlike in pytest's
    try:
        outside.chmod(0o755)
        private = outside / "private"
        (private / "open").mkdir(parents=True)
        private.chmod(0o700)
        (outside / "link").symlink_to(private / "open")
        alone = site(SMALL, user="4242:4242")
        with pytest.raises(InvalidInput, match="nothing is there"):
            refuse(alone, str(outside / "none"))
        for way in ("private/none", "private/open/none", "link/none"):
            refuse(alone, str(outside / way))
        os.chown(private, 4242, 0)
        with pytest.raises(InvalidInput, match="nothing is there"):
            refuse(alone, str(private / "none"))
    finally:
        shutil.rmtree(outside)


def test_an_image_that_is_nowhere_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="manifest unknown") as caught:
        refuse(site(SMALL, no_image="manifest unknown"), str(tmp_path))
    assert (caught.value.field, caught.value.where) == ("image", "job.yaml:2")
    refuse(site(SMALL, no_image="manifest unknown", here="laptop"), str(tmp_path))


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("manifest unknown", "its registry has none (manifest unknown)"),
        (None, "nobody here can ask its registry"),
        ("", ""),
    ],
)
def test_a_python_that_no_node_has_is_told_before_anything_is_queued(
    tmp_path: Path, why: str | None, said: str
) -> None:
    with closing(Ledger.open(new_ledger())) as ledger:
        ledger.nodes.register(SMALL, boot_id="b", worker_token="t")
        host = HostReading(8 * GIB, GIB, 0.1, GIB)
        there = {"3.11": "python:3.11-slim"}
        ledger.nodes.heartbeat("h1", "t", NodeReading(ledger.now(), host, pythons=there))
        of: Any = SimpleNamespace(
            ledger=ledger,
            policy_for=lambda _: ContainerPolicy(),
            policy_settings=PolicySettings(),
            runtime=SimpleNamespace(why_no_image=lambda _: why),
        )
        asked = {"name": "a", "command": ["x"], "notify": []}
        ada = Caller("ada", "vision", frozenset({Scope.SUBMIT}))
        assert job_of(of, asked | {"python": "3"}, ada).job.image == "python:3.11-slim"
        if said:
            with pytest.raises(InvalidInput, match=r"The nodes have 3\.11") as caught:
                job_of(of, asked | {"python": "3.12"}, ada)
            assert said in caught.value.allowed
        else:
            found = job_of(of, asked | {"python": "3.12"}, ada)
            assert found.job.image == "python:3.12-slim"


@pytest.mark.parametrize(
    ("memory_bytes", "most"),
    [(8 * GIB, "8.0 GiB, as the largest node"), (900 * GIB, "64.0 GiB, as the site's policy")],
)
def test_more_shared_memory_than_fits_is_refused_with_the_most(
    memory_bytes: int, most: str
) -> None:
    there = site(SMALL, Node("h9", "cpu", Capacity(4, memory_bytes)))
    there.policy_settings, there.port_ranges = PolicySettings(), {}
    job = "name: a\nimage: i\ncommand: [x]\nresources: {shm: %s}\n"
    allowed_here(there, read_job(job % "8GiB"))
    with pytest.raises(InvalidInput, match=f"give at most {most} allows") as caught:
        allowed_here(there, read_job(job % "1000GiB"))
    assert (caught.value.field, caught.value.where) == ("resources.shm", "job.yaml:4")


def test_a_secret_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Secret block that exists") as caught:
        refuse(site(SMALL, here="laptop"), str(tmp_path), secrets=())
    assert (caught.value.field, caught.value.value) == ("secrets.T", "known")


def test_only_an_operator_hands_in_what_is_somebody_elses() -> None:
    operator = Caller("root", "default", frozenset(Scope))
    member = Caller("bob", "vision", frozenset({Scope.SUBMIT}))
    own = {"owner": "bob", "team": "vision"}
    for said in ({}, {"owner": ""}, {"team": "default"}, own):
        assert stamped(said, member) == own
    assert stamped({}, operator) == {"owner": "root", "team": "default"}
    assert stamped({"owner": "ada", "team": "speech"}, operator) == {
        "owner": "ada", "team": "speech"
    }  # fmt: skip
    for said in ({"owner": "ada"}, {"team": "speech"}):
        with pytest.raises(InvalidInput, match="it comes from your token"):
            stamped(said, member)


@pytest.mark.parametrize(
    ("name", "owner"), [("ada", "ada"), ("DOMAIN\\ada", "uid-7"), ("", "uid-7"), (None, "uid-7")]
)
def test_an_account_that_has_no_usable_name_is_its_number(monkeypatch, name, owner) -> None:
    def entry(_: int) -> Any:
        if name is None:
            raise KeyError("uid not found")
        return SimpleNamespace(pw_name=name)

    monkeypatch.setattr("headway.this_node.os.getuid", lambda: 7)
    monkeypatch.setattr("headway.this_node.pwd.getpwuid", entry)
    assert os_user() == owner

"""`headway submit` on bad input: status 2, one line, and no attempt to reach the server."""

import json
import socket

import pytest
from click.testing import CliRunner

from headway.cli.main import headway
from headway.forecast import Forecaster
from headway.gateway.submit import rehearse
from headway.model.job_text import read_job
from headway.model.node import Capacity, Gpu, Node, Reserve
from headway.policy.plan import Start, Stay
from headway.policy.settings import LINE
from headway.scheduler.limits import GATES, Gates, gates_document
from headway.site import POLICY, current_site
from headway.this_node import adopt
from headway.units import GIB
from tests.support.api import own_gateway
from tests.support.fence import fence_of
from tests.support.postgresql import with_ledger
from tests.support.site import forget_site

GOOD = "name: t\nimage: python:3.11\ncommand: [python, train.py]\n"


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """A site with one node, and a port where nobody listens."""
    monkeypatch.setenv("HEADWAY_HOME", str(with_ledger(tmp_path / "home")))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HEADWAY_PORT", str(unused.getsockname()[1]))
    forget_site()
    site = current_site()
    site.make_ledger()
    gpus = (Gpu("GPU-a", 0, "NVIDIA A100", 80 * GIB),)
    node = Node("h2", "gpu", Capacity(8, 44 * GIB, gpus), Reserve(1.0, 4 * GIB))
    site.ledger.nodes.register(node, boot_id="b", worker_token="t")
    yield site
    forget_site()


@pytest.fixture
def gateway(site, monkeypatch):
    """What says of a job that is well written whether the site could run it."""
    with own_gateway(site, monkeypatch):
        yield


def submit(tmp_path, text, *more):
    path = tmp_path / "job.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = CliRunner().invoke(headway, ["submit", str(path), *more])
    return done, done.stderr.replace(str(path), "job.yaml")


@pytest.mark.usefixtures("gateway")
def test_a_good_job_gets_as_far_as_the_server(tmp_path):
    done, said = submit(tmp_path, GOOD)
    assert done.exit_code == 3, said


OF_THE_SITE = [
    (
        GOOD + "resources:\n  gpus: 1\n  shm: 1GiB\n  gpu_memory: -5g\n",
        (
            'job.yaml:7 resources.gpu_memory: got "-5g"; give a size between 6.0 MiB and 80.0 GiB '
            "(the largest GPU of pool gpu)"
        ),
    ),
    (
        GOOD + "resources:\n  host_memory: 96GiB\n",
        (
            'job.yaml:5 resources.host_memory: got "96.0 GiB"; largest node h2 has 40.0 GiB; '
            "ask for at most that"
        ),
    ),
    (
        GOOD + "resources:\n  cpus: 64\n",
        "job.yaml:5 resources.cpus: got 64.0; largest node h2 has 7; ask for at most that",
    ),
    (
        GOOD + "resources:\n  gpus: 1\n  gpu_type: A1000\n",
        'job.yaml:6 resources.gpu_type: got "A1000"; did you mean A100? this site has NVIDIA A100',
    ),
]


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize(("text", "line"), OF_THE_SITE)
def test_what_no_node_can_hold_is_one_line_and_status_2(tmp_path, text, line):
    done, said = submit(tmp_path, text)
    assert (done.exit_code, done.stdout, said) == (2, "", line + "\n")


ROWS = [
    (
        GOOD + "env:\n  AWS_SECRET_ACCESS_KEY: abc\n",
        (
            "job.yaml:5 env.AWS_SECRET_ACCESS_KEY: got a hidden value; it looks like a secret; "
            "name a Prefect Secret block in secrets instead"
        ),
    ),
    (
        GOOD + "name: u\n",
        "job.yaml:4 name: got a second value; give it once; the first is in line 1",
    ),
    (b"x" * 10_000_000, "job.yaml job: got more than 256 KiB of text; give at most 256 KiB"),
    (b"\x00\xff", "job.yaml:1 job: got b'\\xff'; save the file as UTF-8"),
    (
        json.dumps({"name": "t", "image": "", "command": ["x"]}, indent=1),
        (
            'job.yaml:3 image: got ""; give an image such as python:3.11-slim or '
            "registry/team/image:tag, or python"
        ),
    ),
]


@pytest.mark.parametrize(("text", "line"), ROWS)
def test_bad_input_is_one_line_and_status_2(tmp_path, text, line):
    done, said = submit(tmp_path, text)
    assert (done.exit_code, done.stdout, said) == (2, "", line + "\n")


def add_small(site):
    """A node of another pool, which has less of everything."""
    node = Node("s1", "small", Capacity(4, 8 * GIB), Reserve(1.0, 4 * GIB))
    site.ledger.nodes.register(node, boot_id="b", worker_token="t")


@pytest.mark.usefixtures("gateway")
def test_what_a_team_may_never_hold_is_refused(tmp_path, site):
    # Set before quotas were checked; now they are refused where they are set.
    site.ledger.settings.put(LINE, {"teams": {"default": {"max_running": 0}}})
    done, said = submit(tmp_path, GOOD)
    assert done.exit_code == 2
    assert said.startswith(
        'job.yaml:1 team: got "default"; its quota is 0, so none of its runs may start; ask'
    )
    with pytest.raises(ValueError, match=r"teams\.default\.max_running: got 0; give at least 1"):
        adopt(site, LINE, {"teams": {"default": {"max_running": 0}}})
    adopt(site, LINE, {"teams": {"default": {"max_gpus": 0}}})
    assert submit(tmp_path, GOOD)[0].exit_code == 3  # it gets as far as the server
    done, said = submit(tmp_path, GOOD + "resources:\n  gpus: 1\n")
    assert (done.exit_code, said) == (
        2,
        "job.yaml:5 resources.gpus: got 1; team default may hold 0 at once; ask for at most that\n",
    )


@pytest.mark.usefixtures("gateway")
def test_a_secret_that_jobs_may_not_use_is_refused(tmp_path, site):
    done, said = submit(tmp_path, GOOD + "secrets:\n  TOKEN: team-token\n")
    assert done.exit_code == 2
    assert said == (
        'job.yaml:5 secrets.TOKEN: got "team-token"; jobs may not use this block on this site; '
        "name a block job-…\n"
    )
    assert submit(tmp_path, GOOD + "secrets:\n  TOKEN: job-token\n")[0].exit_code == 3


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("place", [("--pool", "small"), ("--node", "s1")])
def test_a_job_is_held_against_the_pool_or_node_it_goes_to(tmp_path, site, place):
    add_small(site)
    done, said = submit(tmp_path, GOOD + "resources:\n  host_memory: 20GiB\n", *place)
    assert done.exit_code == 2
    assert said == (
        'job.yaml:5 resources.host_memory: got "20.0 GiB"; largest node s1 has 4.0 GiB; '
        "ask for at most that\n"
    )


def test_a_rehearsal_is_about_the_pool_and_queue_it_goes_to(site):
    add_small(site)
    job = read_job(GOOD.encode(), filename="job.yaml").job
    entry, *_ = rehearse(site, job, pool="small", queue="default")
    assert isinstance(entry, Start)
    assert [admit.node for admit in entry.admits] == ["s1"]
    entry, *_ = rehearse(site, job, pool="gpu", queue="h2")
    assert [admit.node for admit in entry.admits] == ["h2"]
    for gates, why in (
        (Gates(pool_paused=True), "its work pool is paused"),
        (Gates(paused=frozenset({"default"})), "work queue default is paused"),
    ):
        site.ledger.settings.put(f"{GATES}/small", gates_document(gates))
        said = rehearse(site, job, pool="small", queue="default")
        assert (said.entry, said.held_back) == (None, why)
        assert [each.text for each in said.changes] == ["on pool gpu"]


def test_a_rehearsal_goes_by_the_priority_of_its_queue(site):
    text = GOOD + "resources:\n  cpus: 6\n"
    job = read_job(text.encode(), filename="job.yaml").job
    site.ledger.runs.enqueue(
        "r", job.document(), name="r", owner="", team="", pool="gpu", priority=-1,
        submitted_at=site.ledger.now(), queue="default",
    )  # fmt: skip
    site.ledger.runs.predict(fence_of(site.ledger, "r"), *Forecaster(site).forecast(job))
    gates = gates_document(Gates(priorities={"default": -1, "urgent": 0}))
    site.ledger.settings.put(f"{GATES}/gpu", gates)
    said = [rehearse(site, job, pool="gpu", queue=queue)[0] for queue in ("default", "urgent")]
    assert [type(entry) for entry in said] == [Stay, Start]


def test_an_override_names_itself(tmp_path):
    done, said = submit(tmp_path, GOOD, "--set", "resources.gpus=1.5")
    assert done.exit_code == 2
    allowed = "give a whole number between 0 and 1024, or a range of them such as 2-8"
    assert said == f"--set resources.gpus: got 1.5; {allowed}\n"


@pytest.mark.usefixtures("gateway")
def test_an_image_that_the_site_forbids(tmp_path, site):
    assert adopt(site, POLICY, {"images": ["ml/*"]})
    done, said = submit(tmp_path, GOOD)
    assert done.exit_code == 2
    assert said == 'job.yaml:2 image: got "python:3.11"; this site allows ml/*\n'

"""Fixtures that start real things once a session."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from sqlalchemy import func

from headway.ledger import database, leaders
from headway.units import GIB
from samples.local_image import BUSYBOX, PYTHON, MissingPiece, build
from tests.nvml.stub import StubGpus, build_stub
from tests.support import dockerd, leftovers, parallel, whitelist
from tests.support import postgresql as postgresql_support
from tests.support.nodes import KINDS, several_nodes
from tests.support.s3 import BUCKET, s3_server
from tests.support.site import ONE_THREAD, LiveSite, live_site

# Before numpy is loaded: its threads would wait for each other actively on the cores that the
# processes of the tests share, which makes a fit several times as long.
os.environ.setdefault(ONE_THREAD, "1")
# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("headway", deadline=None)
settings.load_profile("headway")
# A shell that starts the tests with `&` has them ignore both, and with them all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
AS_ROOT = os.geteuid() == 0
NOBODY = (65534, 65534)
_OURS = "headway-tests-"
ROOTS_FILES = "/srv"
"""Programs of root's site without an engine have a /tmp of their own."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """As root, have a folder for files that pytest does not close to other users.

    What runs as another user has to pass it; the usual one is made 0700 by
    every session that starts.
    """
    if AS_ROOT and config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix=_OURS, dir=ROOTS_FILES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> parallel.BySite:
    """With ``-n 4`` the tests of one site stay together."""
    return parallel.BySite(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of one site behind each other, what takes longest first."""
    for item in items:
        parallel.check(item)
    items.sort(key=lambda item: parallel.turn(item.nodeid))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that folder, unless a test failed."""
    base = Path(config.option.basetemp or "/")
    session_failed = getattr(config, "headway_failed", False)
    if AS_ROOT and base.name.startswith(_OURS) and not session_failed:
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(autouse=True)
def _no_ledger_is_left() -> Iterator[None]:
    """Hundreds of tests share the connections of one server, and its disk."""
    with postgresql_support.nothing_left():
        yield


@pytest.fixture(autouse=True)
def _a_busy_machine_is_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transactions of this process last: among its like it may get no core for seconds.

    A scheduler is asked again where its transaction was ended; a test that calls the ledger is not.
    """
    patient = func.set_config("idle_in_transaction_session_timeout", "60000", True)
    monkeypatch.setattr(leaders, "_LETS_GO", patient)
    monkeypatch.setattr(database, "_FROZEN_MS", 60_000)


@pytest.fixture(autouse=True)
def _usual_umask() -> None:
    """A command that a test runs within this process makes its files private from then on."""
    os.umask(0o022)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """pytest's, open to the users whom root's site becomes: they read what a test puts there."""
    if AS_ROOT:
        for above in tmp_path.parents:
            if above.name.startswith(_OURS) or above.parent.name.startswith(_OURS):
                above.chmod(0o711)  # the second is that of a process among several
        tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A container engine at the default address, started here if none answers.

    Every container that a test creates there, a live site's too, has to keep to the whitelist.
    """
    if reason := dockerd.why_none():
        pytest.skip(reason)
    with dockerd.engine(), whitelist.watched(None, tmp_path_factory.getbasetemp()):
        yield
        _SITES.close()  # the containers of a site end while there is an engine


@pytest.fixture(scope="session")
def busybox_image(docker_engine: None) -> str:
    """An image of 2 MB with a shell."""
    return _built("busybox", BUSYBOX)


@pytest.fixture(scope="session")
def python_image(docker_engine: None) -> str:
    """An image with this interpreter; virtual environments can be mounted into it."""
    return _built("python", PYTHON)


def _built(which: str, tag: str) -> str:
    try:
        return build(which, tag)
    except MissingPiece as missing:
        pytest.skip(f"cannot build {tag}: this machine lacks {missing}")


@pytest.fixture(scope="session")
def postgresql() -> str:
    """Address of a private PostgreSQL, without a database name."""
    return postgresql_support.shared()


@pytest.fixture
def empty_database_url(postgresql: str) -> str:
    """Address of a database that has no tables yet."""
    return postgresql_support.new_database(postgresql)


@pytest.fixture
def ledger_url() -> str:
    """Address of an empty ledger."""
    return postgresql_support.new_ledger()


_SITES = ExitStack()
"""The live sites that are up."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take the sites down behind the last test that uses them: one that idles is not idle."""
    if nextitem is None or not parallel.share_a_site(item.nodeid, nextitem.nodeid):
        _SITES.close()


@pytest.fixture(scope="session")
def process_site(tmp_path_factory: pytest.TempPathFactory) -> LiveSite:
    """A site without an engine."""
    return _SITES.enter_context(live_site(tmp_path_factory.mktemp("site"), "process"))


@pytest.fixture(scope="session")
def docker_site(tmp_path_factory: pytest.TempPathFactory, python_image: str) -> LiveSite:
    """A site on a container engine."""
    return _SITES.enter_context(live_site(tmp_path_factory.mktemp("site"), "docker"))


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """The environment in which boto3 finds a server of its own that speaks S3."""
    with s3_server() as found:
        yield found


@pytest.fixture(scope="session")
def three_nodes(
    postgresql: str, s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, LiveSite]:
    """A site of `KINDS` on PostgreSQL, without an engine, with a store on S3."""
    env = {"HEADWAY_STORE_URL": f"s3://{BUCKET}/site", **s3}
    folder = tmp_path_factory.mktemp("nodes")
    return _SITES.enter_context(several_nodes(folder, postgresql, KINDS, **env))


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> StubGpus:
    """The two GPUs of `stub_site`."""
    folder = tmp_path_factory.mktemp("nvml")
    for each in (folder, folder.parent):
        each.chmod(0o755)  # a program looks here, too, and is not root
    stub = StubGpus(folder / "gpus.state")
    stub.add("GPU-a", total=24 * GIB, sm=0, tensor=0, dram=0)
    stub.add("GPU-b", total=24 * GIB, sm=0, tensor=0, dram=0)
    return stub


@pytest.fixture(scope="session")
def stub_site(stub: StubGpus, tmp_path_factory: pytest.TempPathFactory) -> LiveSite:
    """A site without an engine on two GPUs of 24 GiB, with a stand-in for Nsight Systems."""
    folder = tmp_path_factory.mktemp("stub-site")
    tools = folder / "nsight-systems"
    tools.mkdir()
    (tools / "nsys").symlink_to(Path(__file__).parent / "support/fake_nsys.py")
    env = stub.environment(build_stub(folder)) | {"HEADWAY_NSYS": str(tools)}
    return _SITES.enter_context(live_site(folder / "home", "process", **env))


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def site(request: pytest.FixtureRequest) -> LiveSite:
    """A site of either kind; shared by the session, so tests leave it as they found it."""
    found: LiveSite = request.getfixturevalue(f"{request.param}_site")
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail where something is left behind; in CI also where a test was skipped."""
    _SITES.close()  # where the tests were interrupted
    postgresql_support.stop_shared()
    session.config.headway_failed = exitstatus != 0  # type: ignore[attr-defined]
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # one process of several: the one that started them sees all of it
        return
    if exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return  # it was broken off, and so was the tidying up
    amiss = [f"left behind: {each}" for each in leftovers.left_behind(_base(session.config))]
    skipped = len(reporter.stats.get("skipped", []))
    if os.environ.get("HEADWAY_CI") == "true" and skipped:  # everything is installed there
        amiss.append(f"CI may skip nothing, but skipped {skipped}")
    if amiss and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.headway_failed = True  # type: ignore[attr-defined]
    for each in amiss:
        reporter.write_line(f"\n{each}", red=True)


def _base(config: pytest.Config) -> Path:
    """The folder below which all tests have theirs."""
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp()

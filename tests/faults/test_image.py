"""deployments/Dockerfile is built, and what compose starts of it is a site: `make image`.

Where no registry is reached, a Debian that debootstrap makes stands in for both base images.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import dockerd
from tests.support.netns import namespace
from tests.support.site import BIN, PATIENCE_S, ROOT, let_through, wait_for

COMPOSE = ROOT / "deployments/compose.yaml"
DEBIAN, DATABASE, HEADWAY = (
    f"headway-test/{name}:local" for name in ("debian-python", "postgres", "headway")
)
SPACE = "hw-compose"
_LIKE_POSTGRES = """\
set -eu
data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
    chown postgres $data && chmod 700 $data
    echo "$POSTGRES_PASSWORD" >/tmp/password && chown postgres /tmp/password
    words="-E UTF8 -D $data -U $POSTGRES_USER --auth-local=trust --pwfile=/tmp/password"
    su postgres -c "initdb $words"
    echo "host all all all scram-sha-256" >>$data/pg_hba.conf
    su postgres -c "pg_ctl -D $data -o '-c listen_addresses= -k /tmp' -w start"
    su postgres -c "createdb -h /tmp -U $POSTGRES_USER $POSTGRES_DB"
    for each in /docker-entrypoint-initdb.d/*; do
        su postgres -c "psql -h /tmp -v ON_ERROR_STOP=1 -U $POSTGRES_USER -d $POSTGRES_DB -f $each"
    done
    su postgres -c "pg_ctl -D $data -m fast -w stop"
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups \\
    postgres -D $data -c "listen_addresses=*"
"""
_DATABASE = f"""\
FROM {DEBIAN}
RUN apt-get update && DEBIAN_FRONTEND=noninteractive \\
    apt-get install -y --no-install-recommends postgresql-15
ENV PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY start.sh /start.sh
ENTRYPOINT ["/bin/sh", "/start.sh"]
"""
pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(1800)]


def call(*words: str | Path, **more: Any) -> str:
    done = subprocess.run(words, capture_output=True, check=False, **more)
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return str(done.stdout.decode())


def compose() -> list[str]:
    if works("docker", "compose", "version"):
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        pytest.skip("there is no docker compose (Debian: apt-get install docker-compose)")
    return ["docker-compose"]


def works(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def make_debian(folder: Path) -> None:
    """A Debian with Python and pip, that trusts whom this machine trusts."""
    if works("docker", "inspect", DEBIAN):
        return
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("no registry is reached, and there is no debootstrap, or this is not root")
    packages = "python3,python3-pip,python-is-python3,ca-certificates"
    call("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", folder)
    (folder / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
    trusted = "etc/ssl/certs/ca-certificates.crt"
    shutil.copy(Path("/", trusted), folder / trusted)
    with subprocess.Popen(
        ["tar", "-C", folder, "-c", "--exclude=./proc", "--exclude=./sys", "--exclude=./dev", "."],
        stdout=subprocess.PIPE,
    ) as packed:
        call("docker", "import", "-", DEBIAN, stdin=packed.stdout)
    shutil.rmtree(folder)


def make_database(folder: Path) -> None:
    """What postgres:15 is to compose."""
    folder.mkdir()
    (folder / "Dockerfile").write_text(_DATABASE)
    (folder / "start.sh").write_text(_LIKE_POSTGRES)
    call("docker", "build", "-q", "-t", DATABASE, folder)


@pytest.fixture(scope="module")
def images(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`HEADWAY`, `DATABASE` and `python:3.11-slim`, or what stands in for it."""
    compose()
    folder = tmp_path_factory.mktemp("images")
    base = "python:3.11-slim"
    if not works("docker", "pull", base):
        base = DEBIAN
        make_debian(folder / "debian")
    if works("docker", "pull", "postgres:15"):
        call("docker", "tag", "postgres:15", DATABASE)
    else:
        make_debian(folder / "debian")
        make_database(folder / "database")
    dockerfile = ["-f", str(ROOT / "deployments/Dockerfile")]
    call("docker", "build", "-q", "-t", HEADWAY, "--build-arg", f"BASE={base}", *dockerfile, ROOT)


@pytest.fixture
def engine(images: None, busybox_image: str, tmp_path: Path) -> Iterator[str]:
    """The address of an engine in a network of its own, where compose's ports are free."""
    let_through(tmp_path)
    (tmp_path / "engine").mkdir()
    with namespace(SPACE):
        daemon = dockerd.Daemon(tmp_path / "engine", namespace=SPACE)
        daemon.start()
        try:
            there = ["docker", "-H", daemon.host]
            with subprocess.Popen(
                ["docker", "save", HEADWAY, DATABASE, busybox_image], stdout=subprocess.PIPE
            ) as packed:
                call(*there, "load", stdin=packed.stdout)
            call(*there, "tag", HEADWAY, "headway:local")
            call(*there, "tag", DATABASE, "postgres:15")
            yield daemon.host
        finally:
            daemon.stop()


def test_compose_runs_a_site_whose_runs_outlive_its_services(
    engine: str, busybox_image: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    socket = f"{engine.removeprefix('unix://')}:/var/run/docker.sock"
    own = {"volumes": [socket]}
    override = tmp_path / "override.json"
    there = dict.fromkeys(("guard", "node", "scheduler", "gateway"), own)
    override.write_text(json.dumps({"services": there}))
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY")}
    env |= {"DOCKER_HOST": engine, "COMPOSE_PROJECT_NAME": "headway-test"}
    env |= {"SECRET": "headway:shipped", "LEDGER_PASSWORD": "p4ssword"}
    command = [*compose(), "-f", str(COMPOSE), "-f", str(override)]

    def composed(*words: str) -> str:
        return call(*command, *words, env=env | {"HEADWAY_HOME": str(home)}, timeout=PATIENCE_S)

    def headway(*words: str) -> Any:
        token = home / "token"
        known = {"HEADWAY_TOKEN": token.read_text().strip(), "HEADWAY_HOME": str(tmp_path / "no")}
        known["HEADWAY_URL"] = "http://127.0.0.1:4280"
        inside = ["ip", "netns", "exec", SPACE, str(BIN / "headway"), *words, "--json"]
        return json.loads(call(*inside, env=env | known))

    def ready() -> bool:
        try:
            return bool([each for each in headway("nodes") if each["state"] == "ready"])
        except (AssertionError, FileNotFoundError):
            return False

    def logs() -> str:
        return composed("logs", "--tail", "30")

    def submitted(name: str, seconds: int) -> Callable[[], dict[str, Any]]:
        job = {"name": name, "image": busybox_image, "command": ["sleep", str(seconds)]}
        job["resources"] = {"host_memory": "64MiB", "cpus": 0.5}  # type: ignore[assignment]
        (tmp_path / "job.json").write_text(json.dumps(job))
        run = headway("submit", str(tmp_path / "job.json"))["run_id"]
        return lambda: headway("show", run)  # type: ignore[no-any-return]

    composed("up", "-d", "--no-build")
    try:
        wait_for(ready, logs)
        short = submitted("short", 1)
        wait_for(lambda: short()["state"] == "Completed", logs)
        long = submitted("long", 60)
        wait_for(lambda: long()["started_at"], logs)
        composed("up", "-d", "--no-build", "--force-recreate", "server", "node", "guard",
                 "scheduler", "gateway")  # fmt: skip
        wait_for(ready, logs)
        wait_for(lambda: long()["state"] not in {"Running", "Pending"}, logs)
        ended = long()
        assert (ended["state"], ended["attempt"]) == ("Completed", 1), ended
    finally:
        composed("down", "-v")

"""What systemd keeps of a site and of a node: here in a container whose first process it is."""

import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container
from ruamel.yaml import YAML

from tests.support import dockerd
from tests.support.nodes import StubNode, several_nodes
from tests.support.site import BIN, ROOT, free_port, let_through, wait_for

SYSTEMD = Path("/usr/lib/systemd/systemd")
IMAGE = "headway-test/systemd:local"
SERVICES = ("database", "server", "gateway", "scheduler", "guard", "worker")
JOB = {
    "name": "hello",
    "image": "any",
    "command": ["sleep", "1"],
    "resources": {"host_memory": "64MiB", "cpus": 0.5},
}
ENV = {"HEADWAY_RUNTIME": "process", "PYTHONDONTWRITEBYTECODE": "1"}
pytestmark = [pytest.mark.docker, pytest.mark.prefect, pytest.mark.long]


def why_none() -> str:
    """Why no such machine can be had here; empty where it can."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or not Path("/bin").is_symlink():
        return "it takes root, and a Debian with the package systemd"
    if not Path("/sys/fs/cgroup/systemd").is_dir():
        return "tried with control groups of version 1 alone"
    return dockerd.why_none()


def bare_machine() -> bytes:
    """An image without programs: this machine's /usr is mounted into it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        for name in ("bin", "sbin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives"):
            tar.add(f"/etc/{name}", arcname=f"etc/{name}")
        known = tarfile.TarInfo("etc/machine-id")  # else all services are enabled: a first boot
        known.size = 1
        tar.addfile(known, io.BytesIO(b"\n"))
    return packed.getvalue()


@contextmanager
def machine(folder: Path, network: str) -> Iterator[Container]:
    """A machine that systemd runs, once it is up; it sees this checkout and *folder*."""
    if why := why_none():
        pytest.skip(why)
    let_through(folder)
    (folder / "job.json").write_text(json.dumps(JOB))
    seen = {"/usr", str(ROOT), sys.base_prefix, str(folder)}
    with dockerd.engine():
        client = docker.from_env()
        client.api.import_image_from_data(bare_machine(), *IMAGE.split(":"))
        started = client.containers.run(
            IMAGE, [str(SYSTEMD), "systemd.unit=multi-user.target"], detach=True, network=network,
            environment={"container": "docker"},
            cap_add=["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"],
            cgroupns="host", security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/run": "", "/tmp": "exec"},
            volumes=[*(f"{each}:{each}:ro" for each in seen), "/sys/fs/cgroup:/sys/fs/cgroup"],
        )  # fmt: skip
        try:
            wait_for(lambda: started.exec_run("systemctl").exit_code == 0, lambda: words(started))
            yield started
        finally:
            started.remove(force=True, v=True)
            client.close()


def call(machine: Container, *command: str, **more: str) -> str:
    status, said = machine.exec_run(list(command), environment=ENV | more, workdir="/tmp")
    assert status == 0, said.decode()
    return str(said.decode())


def state(machine: Container, service: str, of: str = "ActiveState") -> str:
    show = f"systemctl show -P {of} headway-{service}.service".split()
    return str(machine.exec_run(show).output.decode()).strip()


def words(machine: Container) -> str:
    return str(machine.exec_run(["journalctl", "--no-pager", "-n", "60"]).output.decode())


def test_systemd_keeps_the_site_that_install_has_made(tmp_path: Path) -> None:
    headway = str(BIN / "headway")

    def ready() -> bool:
        status, said = there.exec_run([headway, "nodes", "--json"])
        return status == 0 and any(each["state"] == "ready" for each in json.loads(said))

    def completes() -> bool:
        """Whether a run ends well; it is refused while the server begins."""
        submit = [headway, "submit", "--watch", str(tmp_path / "job.json")]
        return b"Completed" in there.exec_run(submit, environment=ENV).output

    with machine(tmp_path, "bridge") as there:
        call(there, headway, "install")
        wait_for(ready, lambda: words(there))
        kept = call(there, "stat", "-c", "%a %U", "/etc/headway/site.env")
        assert kept.split() == ["600", "root"]
        wait_for(completes, lambda: words(there))
        again = call(there, headway, "install").splitlines()
        assert [line for line in again if line.startswith("writing")] == []
        before = {each: int(state(there, each, "NRestarts")) for each in SERVICES}
        for service in SERVICES:
            kill = f"systemctl kill --kill-whom=main -s KILL headway-{service}.service"
            call(there, *kill.split())
        wait_for(
            lambda: all(
                int(state(there, each, "NRestarts")) > before[each]
                and state(there, each) == "active"
                for each in SERVICES
            ),
            lambda: words(there),
        )
        wait_for(ready, lambda: words(there))
        wait_for(completes, lambda: words(there))
        call(there, headway, "install", "--remove")
        assert {state(there, each) for each in SERVICES} == {"inactive"}


@pytest.mark.postgresql
def test_a_machine_joins_by_the_user_data_of_cloud_init(postgresql: str, tmp_path: Path) -> None:
    """What it would install is here already; `uvx` and pip are tried in test_wheel."""
    with (
        several_nodes(tmp_path, postgresql, {"head": StubNode(0)}) as sites,
        machine(tmp_path, "host") as there,
    ):
        head = sites["head"]
        known = {
            "HEADWAY_NODE": "gpu-2",
            "PREFECT_API_AUTH_STRING": head.auth(),
            "SERVER": f"{head.url}/api",
            "LEDGER": head.json("node", "add", "gpu-2")["ledger"],
            "HEADWAY_WHEEL": "",
        }
        document = YAML(typ="safe").load((ROOT / "deployments/cloud-init.yaml").read_text())
        (file,), (script,) = document["write_files"], document["runcmd"]
        text = re.sub(r"^(\w+)=(.*?)<.*>", lambda it: f"{it[1]}={it[2]}{known.pop(it[1])}",
                      file["content"], flags=re.MULTILINE)  # fmt: skip
        assert known == {}
        lines = [line for line in script.splitlines() if "pip install" not in line]
        script = "\n".join(lines).replace("python3 -m venv", "#")
        script = script.replace("/opt/headway/bin", str(BIN))
        place = Path(file["path"])
        put = f"umask 077; mkdir -p {place.parent}; cat >{place} <<'END'\n{text}END\n"
        own = {"HEADWAY_PORT": str(free_port())}  # as if it were another machine
        call(there, "sh", "-c", put + script, **own)
        wait_for(
            lambda: (
                {each["node"]: each["state"] for each in head.json("nodes")}
                == {"head": "ready", "gpu-2": "ready"}
            ),
            lambda: words(there),
        )
        submit = ("submit", str(tmp_path / "job.json"), "--node", "gpu-2", "--json")
        # Its queue comes a little later than its first report.
        done = wait_for(
            lambda: (it := head.run(*submit)).returncode == 0 and it, lambda: words(there)
        )
        run = json.loads(done.stdout)["run_id"]
        assert head.until(run, "Completed", "Failed")["node"] == "gpu-2"
        assert there.exec_run(["test", "-e", file["path"]]).exit_code != 0
        assert {state(there, each) for each in ("guard", "worker")} == {"active"}

"""Sessions in containers of a real engine: pages, `forward`, a shell, their end without use."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from headway.client.ways import Forward
from headway.credentials import Address
from headway.model.session import session_path
from tests.support.site import BIN, ROOT, LiveSite, free_port, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.docker]

SMALL = ("--image", "headway-test/python:local", "--set", "resources.host_memory=256MiB")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of code, with the program of samples/session."""
    shutil.copytree(ROOT / "samples/session", tmp_path / "code/samples/session")
    return tmp_path / "code"


@dataclass(frozen=True, slots=True)
class Ssh:
    """OpenSSH's programs, with the configuration that leads them to runs."""

    host: str
    config: Path
    env: dict[str, str]

    def words(self, program: str) -> list[str]:
        return [program, "-F", str(self.config)]

    def does(
        self, program: str, *words: object, typed: str = "", returncode: int | None = None
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*self.words(program), *map(str, words)], env=self.env, input=typed,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert returncode in (None, done.returncode), done.stdout + done.stderr
        return done


def typed(live: LiveSite, folder: Path, *words: str, **more: object) -> "subprocess.Popen[str]":
    """`headway session …`, as it is typed in *folder*."""
    return subprocess.Popen(
        [BIN / "headway", "session", *SMALL, *words], env=live.env, cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def serving(live: LiveSite, folder: Path, port: int, *words: str) -> str:
    """A session whose program listens at *port*; its run."""
    made = typed(
        live, folder, "-d", *words, str(port), "--", "python", "-u", "-m", "samples.session.serve"
    )
    out, err = made.communicate(timeout=60)
    assert made.returncode == 0, err
    run_id = run_of(out)
    assert f"headway forward {run_id[:8]}" in out
    return run_id


def run_of(said: str) -> str:
    return said.splitlines()[0].partition(": ")[2]


def test_a_page_is_served_from_its_container(docker_site: LiveSite, folder: Path) -> None:
    live, port = docker_site, free_port()
    run_id = serving(live, folder, port, "--user-folder", "--idle", "8s")
    token = (live.home / "token").read_text().strip()
    mine = {"Authorization": f"Bearer {token}"}
    pages = f"http://127.0.0.1:{live.env['HEADWAY_SESSIONS_PORT']}{session_path(run_id)}"

    def opened() -> bool:
        return httpx.get(pages, headers=mine).status_code == 200

    wait_for(opened, lambda: f"{httpx.get(pages, headers=mine).text}\n{live.worker_log()}")
    assert live.show(run_id)["lease"]["ports"] == [port]
    kept = httpx.post(pages, headers=mine, data={"note": "from a container"})
    assert kept.status_code == 303
    assert "<li>from a container" in httpx.get(pages, headers=mine).text
    gateway = Address(f"http://127.0.0.1:{live.env['HEADWAY_GATEWAY_PORT']}", token)
    way = Forward(gateway, run_id, port, local_port=0, said=print)
    threading.Thread(target=way.serve, daemon=True).start()
    try:
        assert httpx.get(f"http://127.0.0.1:{way.local_port}/").text == "only by the gateway"
    finally:
        way.close()
    ended = live.until(run_id, "Completed", "Failed")
    assert "nobody was connected" in ended["exit"]["message"], ended["exit"]


def test_two_runs_that_serve_one_port_share_a_node(docker_site: LiveSite, folder: Path) -> None:
    """As `docker run -p 12311:12345` and `-p 12312:12345` of one image do."""
    live = docker_site
    runs = [serving(live, folder, 12_345) for _ in range(2)]
    token = (live.home / "token").read_text().strip()
    gateway = Address(f"http://127.0.0.1:{live.env['HEADWAY_GATEWAY_PORT']}", token)
    found = set()
    for run_id in runs:
        way = Forward(gateway, run_id, 12_345, local_port=0, said=print)
        threading.Thread(target=way.serve, daemon=True).start()

        def answers(at: str = f"http://127.0.0.1:{way.local_port}/") -> bool:
            try:
                return httpx.get(at).text == "only by the gateway"
            except httpx.TransportError:
                return False

        try:
            wait_for(answers, live.worker_log)
        finally:
            way.close()
        view = live.show(run_id)
        assert (view["state"], view["lease"]["ports"]) == ("Running", [12_345])
        (port,) = view["lease"]["host_ports"]
        assert f"port 12345 at 127.0.0.1:{port} of the node" in live.run("show", run_id).stdout
        found.add(port)
    assert len(found) == 2
    for run_id in runs:
        live.run("cancel", run_id)
    for run_id in runs:
        live.until(run_id, "Cancelled")


def test_a_shell_is_opened_in_its_container_and_ends_it(
    docker_site: LiveSite, folder: Path
) -> None:
    live = docker_site
    shell = typed(live, folder, "shell")
    script = "ls; echo run $HEADWAY_RUN_ID; exit 3\n"
    out, err = shell.communicate(script, timeout=180)
    assert shell.returncode == 3, out + err
    run_id = run_of(out)
    assert out.splitlines()[-2:] == ["samples", f"run {run_id}"]
    ended = live.until(run_id, "Completed", "Failed", "Cancelled")
    assert (ended["state"], ended["exit"]["kind"]) == ("Completed", "ok"), ended["exit"]
    assert ended["lease"] is None or not ended["lease"]["ports"]


@pytest.fixture
def ssh_into(docker_site: LiveSite, folder: Path, tmp_path: Path) -> Iterator[Ssh]:
    """A session that is a shell, as the host of `headway ssh`'s own configuration."""
    live = docker_site
    made = typed(live, folder, "-d", "shell")
    out, err = made.communicate(timeout=60)
    assert made.returncode == 0, err
    run_id = run_of(out)
    live.until(run_id, "Running")
    config = tmp_path / "config"
    config.write_text(live.run("ssh").stdout)
    yield Ssh(f"{run_id[:8]}.headway", config, live.env | live.at_the_gateway())
    live.run("cancel", run_id)
    live.until(run_id, "Cancelled")


def test_ssh_scp_and_rsync_reach_a_run(ssh_into: Ssh, tmp_path: Path) -> None:
    host, there = ssh_into.host, f"{ssh_into.host}:"
    script = "cat; echo $HEADWAY_RUN_ID; pwd; echo err >&2; exit 5"
    done = ssh_into.does("ssh", host, script, typed="in\n")
    assert (done.returncode, done.stderr) == (5, "err\n"), done.stdout
    said, run_id, pwd = done.stdout.splitlines()
    assert (said, run_id[:8]) == ("in", host[:8])
    assert ssh_into.does("ssh", host, typed="pwd; exit 3\n").stdout == f"{pwd}\n"
    tty = ssh_into.does("ssh", "-tt", host, "tty; exit 4", returncode=4)
    assert "/dev/pts/" in tty.stdout

    # The image is made of this machine's files, so its rsync works there, too.
    program = shutil.which("rsync")
    assert program is not None
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"=> (/\S+)", linked)
    ssh_into.does("ssh", host, "mkdir /tmp/rsync", returncode=0)
    ssh_into.does("scp", program, *libraries, f"{there}/tmp/rsync", returncode=0)
    tree = tmp_path / "tree/below"
    tree.mkdir(parents=True)
    (tree / "data").write_bytes(os.urandom(1 << 20))
    (tree / "run.sh").write_text("exit 0\n")
    (tree / "run.sh").chmod(0o750)
    by = "--rsync-path=LD_LIBRARY_PATH=/tmp/rsync /tmp/rsync/rsync"
    rsync = ("rsync", "-a", "-e", shlex.join(ssh_into.words("ssh")), by)
    copied = subprocess.run([*rsync, tree.parent, f"{there}/tmp"], env=ssh_into.env, check=False)
    assert copied.returncode == 0
    ssh_into.does("ssh", host, "/tmp/tree/below/run.sh", returncode=0)
    ssh_into.does("scp", "-rp", f"{there}/tmp/tree", tmp_path / "back", returncode=0)
    for name in ("data", "run.sh"):
        back = tmp_path / "back/below" / name
        assert back.read_bytes() == (tree / name).read_bytes()
        assert back.stat().st_mode == (tree / name).stat().st_mode


def test_the_sample_does_what_it_says(ssh_into: Ssh, tmp_path: Path) -> None:
    (tmp_path / "sent").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "sent" / name).touch()
    (tmp_path / "here").mkdir()
    run = ssh_into.host.removesuffix(".headway")
    done = subprocess.run(
        ["sh", ROOT / "samples/tools/by_ssh.sh", run, tmp_path / "sent"], cwd=tmp_path / "here",
        env=ssh_into.env | {"PATH": f"{BIN}:{ssh_into.env['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == ("3", 0), done.stderr


def test_ssh_forwards_a_port_and_takes_what_it_started_along(ssh_into: Ssh) -> None:
    host = ssh_into.host
    serves = "echo up; exec python -m http.server --bind 127.0.0.1 8765 --directory /etc"
    server = subprocess.Popen(
        [*ssh_into.words("ssh"), host, serves], env=ssh_into.env, stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        ask = "GET /passwd HTTP/1.0\r\n\r\n"

        def answer() -> str:
            return ssh_into.does("ssh", "-W", "127.0.0.1:8765", host, typed=ask).stdout

        wait_for(lambda: "root:x:0:0" in answer(), answer)
    finally:
        server.kill()
        server.communicate()
    listens = "import socket; socket.create_connection(('127.0.0.1', 8765))"
    gone = f'while python -c "{listens}" 2>/dev/null; do sleep 0.1; done'
    ssh_into.does("ssh", host, gone, returncode=0)


def test_a_forwarded_connection_that_one_side_has_ended_goes_on_for_the_other(
    ssh_into: Ssh,
) -> None:
    program = (
        "import socket; there = socket.create_server(('127.0.0.1', 8767)); print('up', flush=True);"
        " taken = there.accept()[0]; taken.sendall(b'first'); taken.shutdown(socket.SHUT_WR);"
        " print(b''.join(iter(lambda: taken.recv(99), b'')).decode())"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    words, serves = ssh_into.words("ssh"), shlex.join(["python", "-c", program])
    with subprocess.Popen([*words, ssh_into.host, serves], env=ssh_into.env, **pipes) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        port = free_port()
        # `-W` ends both at once by itself, whoever the server is.
        asked = [*words, "-L", f"{port}:127.0.0.1:8767", ssh_into.host, "echo up; cat"]
        with subprocess.Popen(asked, env=ssh_into.env, **pipes) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"up\n"
            with socket.create_connection(("127.0.0.1", port)) as there:
                assert b"".join(iter(lambda: there.recv(99), b"")) == b"first"
                there.sendall(b"then")
                there.shutdown(socket.SHUT_WR)
                assert server.stdout.readline() == b"then\n"
            client.communicate(timeout=60)

"""What each program that starts images is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.engine import containers
from headway.engine.containers import RUNTIMES, Mount, Start, chosen, none_of
from headway.engine.image_start import in_image

START = Start(
    image="docker.io/library/python:3.11",
    command=("python", "train.py", "--lr=1 e"),
    working_dir="/s/run",
    mounts=(Mount("/s/run", "/s/run"), Mount("/data", "/volumes/data", read_only=True)),
    env={"A": "b c", "PATH": "/opt/bin"},
    has_gpus=True,
    name="headway-k1",
)
BY_NAME = {each.program: each for each in RUNTIMES}


@pytest.mark.parametrize(
    ("name", "prefix"), [("apptainer", "APPTAINER"), ("singularity", "SINGULARITY")]
)
def test_apptainer(name: str, prefix: str) -> None:
    runtime = BY_NAME[name]
    assert runtime.words(START) == [
        name, "exec", "--cleanenv", "--no-home", "--pwd=/s/run", "--nv", "--bind=/s/run:/s/run",
        "--bind=/data:/volumes/data:ro", "docker://docker.io/library/python:3.11",
        "python", "train.py", "--lr=1 e",
    ]  # fmt: skip
    variables = {f"{prefix}ENV_A": "b c", f"{prefix}ENV_PATH": "/opt/bin"}
    assert runtime.variables(START) == variables
    assert "--nv" not in runtime.words(START._replace(has_gpus=False))
    assert runtime.kill("n") == runtime.pid("n") == []


def test_podman() -> None:
    runtime = BY_NAME["podman"]
    assert runtime.words(START) == [
        "podman", "run", "--rm", "--name=headway-k1", "--log-driver=none",
        "--user=0:0", "--cap-drop=all", "--security-opt=no-new-privileges",
        "--security-opt=label=disable", "--network=host", "--pid=host",
        "--volume=/dev/shm:/dev/shm", "--entrypoint=", "--device=nvidia.com/gpu=all",
        "--volume=/s/run:/s/run", "--volume=/data:/volumes/data:ro", "--env=A",
        "--env=PATH=/opt/bin", "--workdir=/s/run", "docker.io/library/python:3.11",
        "python", "train.py", "--lr=1 e",
    ]  # fmt: skip
    assert runtime.variables(START) == {"A": "b c"}  # its own PATH stays
    assert runtime.kill("n")[-2:] == ["podman", "n"]
    assert (runtime.why_not("true"), runtime.why_not("false")) == ("", "it runs as root")


def test_docker_is_the_users_own_alone() -> None:
    runtime = BY_NAME["docker"]
    words = runtime.words(START)
    assert {"--user=0:0", "--pid=host", "--env=A"} <= set(words)
    assert runtime.pid("n") == ["docker", "inspect", "--format={{.State.Pid}}", "n"]
    assert runtime.why_not("[name=seccomp,profile=default]") == "its service runs as root"
    assert runtime.why_not("[name=seccomp,profile=default name=rootless]") == ""


def test_enroot_makes_its_file_once(tmp_path: Path) -> None:
    """The words are run, with a program of that name that notes what it is told."""
    program = tmp_path / "enroot"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n[ "$1" != import ] || : > "$3"\n')
    program.chmod(0o755)
    runtime = BY_NAME["enroot"]
    assert runtime.variables(START) == {"A": "b c", "NVIDIA_VISIBLE_DEVICES": "all"}
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    source = (
        "import sys, subprocess, json; from headway.engine.containers import *; "
        "start = json.loads(sys.argv[1]); start[3] = [Mount(*each) for each in start[3]]; "
        "sys.exit(subprocess.call(Enroot().words(Start(*start))))"
    )
    image = START._replace(image="nvcr.io/nvidia/pytorch:24.10")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", source, json.dumps(image)], env=env, check=True)
    told = (tmp_path / "told").read_text().splitlines()
    file = f"{tmp_path}/.cache/headway/nvcr.io+nvidia+pytorch+24.10.sqsh"
    assert told[0].startswith(f"import -o {file}.")
    assert told[0].endswith(" docker://nvcr.io#nvidia/pytorch:24.10")
    assert told[1:] == [told[1]] * 2
    assert told[1] == (
        "start --rw --env=A --env=PATH=/opt/bin --mount=/s/run:/s/run "
        f"--mount=/data:/volumes/data:none:rbind,ro,x-create=auto {file} "
        'sh -c cd "$0" && exec "$@" /s/run python train.py --lr=1 e'
    )
    words = runtime.words(START)
    assert "docker://library/python:3.11" in words


def test_the_first_that_works_is_chosen() -> None:
    assert (
        chosen({"docker": "", "podman": "", "apptainer": "it does not answer"}) is BY_NAME["podman"]
    )
    assert chosen({"docker": "its service runs as root"}) is None
    assert "none of apptainer" in none_of({})


def test_what_is_there_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in (
        ("apptainer", "echo FATAL: no user namespaces >&2; exit 255"),
        ("podman", "echo true"),
        ("docker", "echo '[name=seccomp]'"),
    ):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{code}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert set(containers.found().values()) == {"jobs run as root there, and root starts no images"}
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    found = containers.found()
    assert found["apptainer"] == "FATAL: no user namespaces"
    assert found["podman"] == ""
    assert "docker" not in found, "the first that works is enough"
    (tmp_path / "podman").write_text("#!/bin/sh\necho false\n")
    assert containers.found()["docker"] == "its service runs as root"


def test_podman_is_mended_after_all_of_a_job_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text(
        f"#!/bin/sh\ncd {tmp_path}\nif [ $1 = system ]; then : > mended; exit; fi\n"
        "[ -e mended ] && echo true && exit\n"
        "echo 'try resetting the pause process with \"podman system migrate\"' >&2; exit 125\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    assert containers.found()["podman"] == ""


def test_a_part_of_a_gang_gets_what_its_job_says_and_the_starter_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "found", lambda: {"podman": ""})
    monkeypatch.setenv("GIVEN", "1")  # srun has passed it on
    monkeypatch.setenv("NODES_OWN", "1")
    request = {
        "image": "docker.io/library/python:3.11",
        "env": {"GIVEN": "1", "HOME": "/workspace", "DOCKER_HOST": "tcp://elsewhere"},
        "gang": {"env": {"OF_GANG": "1"}},
        "mounts": [],
    }
    env = {**os.environ, **request["env"], "OF_GANG": "1", "HEADWAY_WORKING_DIR": str(tmp_path)}
    env |= {"HEADWAY_OUTPUTS": str(tmp_path)}
    words, own, _, error = in_image(request, ["python"], env, str(tmp_path))
    assert not error
    assert {"--env=GIVEN", "--env=OF_GANG", "--env=HOME=/workspace"} <= set(words)
    assert not any("NODES_OWN" in word for word in words)
    assert own["HOME"] == os.environ["HOME"]
    assert "DOCKER_HOST" not in own
    monkeypatch.setattr(containers, "found", lambda: {"docker": ""})
    env |= {"CUDA_VISIBLE_DEVICES": "0", "HEADWAY_WORKING_DIR": str(tmp_path)}
    assert "which GPUs" in in_image(request, ["python"], env, str(tmp_path))[3]

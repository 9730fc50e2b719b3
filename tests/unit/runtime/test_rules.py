"""What may not reach the engine."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.model.container_policy import ContainerPolicy, GangNetwork, NetworkMode
from headway.runtime.errors import PolicyViolation
from headway.runtime.port import BindMount, ContainerSpec
from headway.runtime.rules import check_spec

SPEC = ContainerSpec(
    name="run-1",
    run_id="run",
    attempt=1,
    image="python:3.11-slim",
    command=("python", "train.py"),
    env={"A": "1"},
    mounts=(BindMount(Path("/srv/data"), "/data"),),
    log_path=Path("/srv/log"),
    host_memory_bytes=1 << 30,
    cpus=1.0,
    shm_bytes=1 << 20,
)


def test_an_ordinary_container_passes() -> None:
    check_spec(SPEC, ContainerPolicy())


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../other"},
        {"name": ""},
        {"image": ""},
        {"command": ()},
        {"host_memory_bytes": 0},
        {"cpus": 0.0},
        {"log_limit_bytes": 0},
        {"pids": 0},
        {"pids": 5000},
        {"shm_bytes": 1 << 40},
        {"user": "root"},
        {"user": "1000"},
        {"env": {"A B": "1"}},
        {"env": {"A": "1\nB=2"}},
        {"env": {"A": "\0"}},
        *(
            {"mounts": (BindMount(Path("/srv"), target),)}
            for target in (
                "data",
                "/",
                "/data/../etc",
                "/proc",
                "/proc/1",
                "/etc/x",
                "/headway/log",
            )
        ),
    ],
)
def test_what_would_mean_something_else_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(PolicyViolation):
        check_spec(replace(SPEC, **change), ContainerPolicy())  # type: ignore[arg-type]


def test_the_value_of_a_variable_is_not_shown() -> None:
    with pytest.raises(PolicyViolation) as caught:
        check_spec(replace(SPEC, env={"TOKEN": "hunter2\n"}), ContainerPolicy())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("patterns", "image", "allowed"),
    [
        ((), "anything", True),
        (("python:*",), "python:3.11-slim", True),
        (("python:*",), "python", True),
        (("python:*",), "evil/python:3.11", False),
        (("reg.example.org:5000/ml/*",), "reg.example.org:5000/ml/torch:2", True),
        (("reg.example.org:5000/ml/*",), "reg.example.org:5000/other", False),
        (("python:3.11",), "python:3.11@sha256:00", False),
    ],
)
def test_images(patterns: tuple[str, ...], image: str, allowed: bool) -> None:
    assert ContainerPolicy(images=patterns).allows_image(image) is allowed


@pytest.mark.parametrize(
    ("policy", "network", "allowed"),
    [
        ({}, NetworkMode.HOST, False),
        ({}, NetworkMode.UNGUARDED, False),
        ({}, GangNetwork("gangs"), False),
        ({}, NetworkMode.NONE, True),
        ({"network": "host"}, NetworkMode.HOST, True),
        ({"gang_network": "host"}, NetworkMode.HOST, True),
        ({"gang_network": "gangs"}, GangNetwork("gangs"), True),
        ({"gang_network": "gangs"}, GangNetwork("others"), False),
        ({"gang_network": "gangs"}, NetworkMode.HOST, False),
    ],
)
def test_networks(
    policy: dict[str, str], network: NetworkMode | GangNetwork, allowed: bool
) -> None:
    spec, rules = replace(SPEC, network=network), ContainerPolicy.model_validate(policy)
    if allowed:
        check_spec(spec, rules)
        return
    with pytest.raises(PolicyViolation, match="gang_network"):
        check_spec(spec, rules)


@pytest.mark.parametrize(
    "name", ["bridge", "none", "default", "headway", "container:x", "a b", "-x", "gangs\n"]
)
def test_where_no_gang_could_meet(name: str) -> None:
    with pytest.raises(ValueError, match="gang_network"):
        ContainerPolicy(gang_network=name)


def test_a_block_that_still_says_in_which_image_nodes_were_measured_is_read() -> None:
    kept = {"images": ["python:*"], "probe_image": "ml/torch:2"}
    assert ContainerPolicy.model_validate(kept).images == ("python:*",)
    with pytest.raises(ValueError, match="Extra inputs"):
        ContainerPolicy.model_validate({"probe": "ml/torch:2"})

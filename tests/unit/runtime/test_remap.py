"""An engine with userns-remap: what the host's ids are called in its containers."""

from typing import Any

import pytest

from headway.model.number_range import NumberRange
from headway.runtime.docker.engine import Remap, remap_of
from headway.runtime.errors import PolicyViolation

SUBUID = "someone:100000:65536\ndockremap:231072:200000\n"
SUBGID = "dockremap:300000:1000\n"
INFO: dict[str, Any] = {
    "SecurityOptions": ["name=seccomp,profile=default", "name=userns"],
    "DockerRootDir": "/var/lib/docker/231072.300000",
}


def test_its_range_is_the_one_that_its_folder_is_named_after() -> None:
    remap = remap_of(INFO, SUBUID, SUBGID)
    assert remap == Remap(NumberRange(231_072, 431_071), NumberRange(300_000, 300_999))
    unlisted = remap_of(INFO, "", "")
    assert unlisted is not None
    assert unlisted.uids == NumberRange(231_072, 296_607)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"SecurityOptions": None, "DockerRootDir": "/var/lib/docker/1.1"},
        {"SecurityOptions": ["name=seccomp"], "DockerRootDir": "/var/lib/docker"},
        {"SecurityOptions": ["name=userns"], "DockerRootDir": "/var/lib/docker"},
    ],
)
def test_an_engine_without_it_maps_nothing(info: dict[str, Any]) -> None:
    assert remap_of(info, SUBUID, SUBGID) is None


def test_a_uid_of_the_host_is_another_in_the_container() -> None:
    remap = remap_of(INFO, SUBUID, SUBGID)
    assert remap is not None
    assert remap.inside(231_072, 300_000) == (0, 0)
    assert remap.inside(240_000, 300_999) == (8_928, 999)
    for uid, gid, what in ((231_071, 300_000, "uid: 231071"), (240_000, 301_000, "gid: 301000")):
        with pytest.raises(PolicyViolation, match=what):
            remap.inside(uid, gid)

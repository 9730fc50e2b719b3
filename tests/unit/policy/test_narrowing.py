"""Bounds: blocks may only narrow what is above them, and an error names both."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.model.ceiling import Ceiling
from headway.model.container_policy import ContainerPolicy
from headway.model.image import ImageReference, pattern_within
from headway.model.number_range import NumberRange
from headway.policy.narrowing import check, for_team, narrowed, refused_port, uid_refusal

CEILING = Ceiling.model_validate(
    {
        "source": "the ceiling /etc/c.yaml",
        "images": ["registry.example.org/ml/*", "python:3.*"],
        "mount_roots": ["/data", "/srv/sets"],
        "data_hosts": ["10.1.0.0/16", "data.example.org"],
        "networks": ["none", "bridge", "gangs"],
        "uids": ["200000-299999", "500000-500999"],
    }
)
GOOD: dict[str, Any] = {"uids": "210000-219999"}


def policy(**more: Any) -> ContainerPolicy:
    return ContainerPolicy.model_validate(GOOD | more)


@pytest.mark.parametrize(
    "more",
    [
        {"images": ["registry.example.org/ml/torch:2"], "mount_roots": ["/data/vision"]},
        {"images": ["python:3.11"], "data_hosts": ["10.1.2.0/24", "10.1.0.7", "data.example.org"]},
        {"network": "none", "gang_network": "gangs"},
        {"volumes": {"sets": {"path": "/srv/sets/all"}}},
        {"teams": {"vision": {"uids": "500000-500999", "gang_network": "gangs"}}},
    ],
)
def test_what_is_narrower_holds(more: dict[str, Any]) -> None:
    found = check(policy(**more), CEILING)
    for name, value in more.items():
        wanted = getattr(policy(**more), name)
        assert getattr(found, name) == wanted, value


def test_what_names_nothing_is_what_the_ceiling_allows() -> None:
    found = narrowed(policy(), CEILING)
    assert found.images == CEILING.images
    assert found.mount_roots == (Path("/data"), Path("/srv/sets"))
    assert found.data_hosts == ()  # nothing is asked that nobody has named
    assert narrowed(ContainerPolicy(), CEILING).uids == NumberRange(200_000, 299_999)
    assert narrowed(policy(), Ceiling()) == policy()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"images": ["*"]}, "images: got '*'; the ceiling /etc/c.yaml allows registry.exam"),
        ({"images": ["python"]}, "images: got 'python'; "),
        ({"images": ["python:*"]}, "images: "),
        ({"images": ["registry.example.org/*/*"]}, "images: "),
        ({"images": ["evil.example.org/ml/torch"]}, "images: "),
        ({"mount_roots": ["/"]}, "mount_roots: got '/'; the ceiling /etc/c.yaml allows /data, /s"),
        ({"mount_roots": ["/data/../etc"]}, "mount_roots: "),
        ({"mount_roots": ["/database"]}, "mount_roots: "),
        ({"data_hosts": ["10.0.0.0/8"]}, "data_hosts: got '10.0.0.0/8'; the ceiling "),
        ({"data_hosts": ["::/0"]}, "data_hosts: "),
        ({"data_hosts": ["other.example.org"]}, "data_hosts: "),
        ({"volumes": {"m": {"path": "/srv/m"}}}, "volumes.m.path: got '/srv/m'; the ceiling"),
        ({"network": "host"}, "network: got 'host'; the ceiling /etc/c.yaml allows none, bridge"),
        ({"network": "unguarded"}, "network: "),
        ({"gang_network": "other"}, "gang_network: "),
        ({"uids": "100000-219999"}, "uids: got '100000-219999'; the ceiling /etc/c.yaml allows 2"),
        ({"teams": {"vision": {"uids": "1000-1999"}}}, "teams.vision.uids: "),
        ({"teams": {"vision": {"gang_network": "other"}}}, "gang_network: "),
    ],
)
def test_what_is_wider_is_refused_with_both(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(policy(**more), CEILING)
    assert str(caught.value).replace('"', "'").startswith(said)


@pytest.mark.parametrize(
    ("site", "rules", "said"),
    [
        ({"images": ["python:3.*"]}, {"images": ["python:2"]}, "images"),
        ({"mount_roots": ["/data"]}, {"mount_roots": ["/data", "/etc"]}, "mount_roots"),
        ({}, {"data_hosts": ["10.0.0.1"]}, "data_hosts"),
        ({}, {"network": "host"}, "network"),
        ({"network": "none"}, {"network": "bridge"}, "network"),
        ({}, {"gang_network": "host"}, "gang_network"),
        ({}, {"secret_prefixes": ["prod-"]}, "secret_prefixes"),
        ({}, {"secret_prefixes": [""]}, "secret_prefixes"),
    ],
)
def test_a_teams_rules_only_narrow_the_sites(
    site: dict[str, Any], rules: dict[str, Any], said: str
) -> None:
    whole = policy(**site, teams={"vision": rules})
    with pytest.raises(InvalidInput, match=rf"^teams\.vision\.{said}: got"):
        check(whole, None)


def test_each_team_has_its_own() -> None:
    whole = policy(
        network="unguarded",
        mount_roots=["/data"],
        teams={
            "vision": {"mount_roots": ["/data/vision"], "network": "none", "images": ["python:3"]},
            "speech": {"secret_prefixes": ["job-speech-"], "gang_network": "speech"},
        },
    )
    vision, speech, other = (for_team(whole, team) for team in ("vision", "speech", "other"))
    assert vision.mount_roots == (Path("/data/vision"),)
    assert vision.network.value == "none"
    assert not vision.allows_image("python:2")
    assert (speech.gang_network, speech.network.value) == ("speech", "unguarded")
    assert other == whole
    assert whole.gang_networks == ("speech",)
    assert whole.refused_secret({"HUB": "job-speech-hub"}, "speech") is None
    assert "another team's" in str(whole.refused_secret({"HUB": "job-speech-hub"}, "vision"))
    assert whole.refused_secret({"HUB": "job-hub"}, "vision") is None
    assert "name a block job-speech-" in str(speech.refused_secret({"HUB": "job-hub"}, "speech"))


def test_ports_of_a_team_are_its_alone() -> None:
    ranges = {"vision": NumberRange(30_000, 30_999)}
    assert refused_port([30_000, 30_999], "vision", ranges) is None
    assert refused_port([6006], "speech", ranges) is None
    assert refused_port([6006], "vision", ranges) == (
        6006,
        "give ports of team vision, 30000-30999",
    )
    refused = refused_port([6006, 30_500], "speech", ranges)
    assert refused == (30_500, "30000-30999 are the ports of team vision; give others")


def test_a_uid_outside_the_ceiling_runs_nothing() -> None:
    assert uid_refusal(200_000, CEILING) is None
    assert uid_refusal(65_534, Ceiling()) is None
    assert "allows 200000-299999, 500000-500999" in str(uid_refusal(65_534, CEILING))


parts = st.sampled_from(["a", "ab", "a*", "*", "b"])
patterns = st.builds(
    lambda registry, path, tag: f"{registry}{'/'.join(path)}{tag}",
    st.sampled_from(["", "r.org/", "*.org/", "r.org:5000/"]),
    st.lists(parts, min_size=1, max_size=2),
    st.sampled_from(["", ":1", ":1*", ":*", "@sha256:" + "0" * 64, "@*"]),
)
images = st.builds(
    lambda registry, path, tag: f"{registry}{'/'.join(path)}{tag}",
    st.sampled_from(["", "r.org/", "r.org:5000/", "x.org/"]),
    st.lists(st.sampled_from(["a", "ab", "b", "abc"]), min_size=1, max_size=2),
    st.sampled_from(["", ":1", ":12", ":2", "@sha256:" + "0" * 64]),
)


@given(patterns, patterns, images)
def test_a_pattern_within_another_allows_no_more(inner: str, outer: str, image: str) -> None:
    reference = ImageReference.parse(image)
    if pattern_within(inner, outer) and reference.matches(inner):
        assert reference.matches(outer), (inner, outer, image)

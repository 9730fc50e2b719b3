"""Which credentials data is read with, and what of the site's store is data to nobody."""

import pytest

from headway.model.object_place import ObjectPlace, checked_rules, secret_for

RULES = {
    "s3://lab": "lab-s3",
    "s3://lab/public": "anonymous",
    "gs://lab/sets": "lab-gs",
    "az://sets": "lab-az",
    "az://sets/open": "anonymous",
    "sftp://Data.example.org:2222/sets": "lab-sftp",
    "hf://datasets/lab": "lab-hf",
    "hf://lab/model": "model-hf",
    "abfs://own@lab.dfs.core.windows.net/a": "own-az",
}


def place(uri: str) -> ObjectPlace:
    found = ObjectPlace.of(uri)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("uri", "block"),
    [
        ("s3://lab", "lab-s3"),
        ("s3://lab/sets/a.csv", "lab-s3"),
        ("s3://lab/publicity", "lab-s3"),
        ("s3://lab/public", None),
        ("s3://lab/public/a/", None),
        ("s3://laboratory/a", None),
        ("gcs://lab/sets/a", "lab-gs"),
        ("gs://lab/other", None),
        ("abfss://sets/a", "lab-az"),
        ("abfs://SETS/open/a", None),
        ("az://sets@evil.dfs.core.windows.net/a", None),
        ("az://evil.blob.core.windows.net/sets/a", None),
        ("az://sets@lab.dfs.core.windows.net/open/a", None),
        ("abfss://own@lab.dfs.core.windows.net/a/b", "own-az"),
        ("abfss://lab.dfs.core.windows.net/own/a", "own-az"),
        ("az://own/a", None),
        ("sftp://data.example.org:2222/sets/a", "lab-sftp"),
        ("sftp://data.example.org/sets/a", None),
        ("sftp://data.example.org:2222/other", None),
        ("hf://datasets/lab/sets@v1.0/a.parquet", "lab-hf"),
        ("hf://lab/model@main/weights", "model-hf"),
        ("hf://datasets/other/sets", None),
        ("hf://lab/other", None),
    ],
)
def test_the_narrowest_rule_names_the_credentials(uri: str, block: str | None) -> None:
    assert secret_for(place(uri), RULES) == block


@pytest.mark.parametrize("uri", ["az://sets//open/a", "s3://lab/./public/a", "s3://", "s3:///lab"])
def test_an_address_of_two_meanings_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="without //"):
        ObjectPlace.of(uri)


def test_credentials_for_a_server_are_named_and_whole() -> None:
    with pytest.raises(ValueError, match="without a user"):
        ObjectPlace.of("sftp://ada@data.example.org/sets")
    for other in ("sets?x", "private?", "sets#/x", "sets/a?b/c"):
        with pytest.raises(ValueError, match=r"without \? and #"):
            ObjectPlace.of(f"sftp://data.example.org/{other}")
    server = place("sftp://data.example.org/sets")
    with pytest.raises(ValueError, match="no Secret block is named"):
        server.options(None)
    named = {"username": "ada", "host_key": "ssh-ed25519 AAAA", "password": "x"}
    assert server.options(named) == named
    for wrong in ({"username": "ada", "password": "x"}, {**named, "known_hosts": None}):
        with pytest.raises(ValueError, match="host_key"):
            server.options(wrong)
    assert place("hf://datasets/lab/sets").options(None) == {"token": False}


@pytest.mark.parametrize("uri", ["/data/a", "https://example.org/a", "headway://set"])
def test_other_addresses_are_no_places(uri: str) -> None:
    assert ObjectPlace.of(uri) is None


@pytest.mark.parametrize(
    ("store", "uri", "overlaps"),
    [
        ("s3://site/runs", "s3://site/runs/vision/a", True),
        ("s3://site/runs/", "s3://site/runs", True),
        ("s3://site//runs", "s3://site/runs/vision", True),
        ("simplecache::s3a://site/runs", "s3://site", True),
        ("s3://site/runs", "s3://site/sets", False),
        ("s3://site/runs", "gs://site/runs", False),
        ("gcs://site", "gs://site/a", True),
        ("az://runs/x", "abfss://runs@lab.dfs.core.windows.net/x/a", True),
        ("abfs://runs@lab.dfs.core.windows.net", "az://lab.blob.core.windows.net/runs/a", True),
        ("abfs://runs@lab.dfs.core.windows.net", "az://other.dfs.core.windows.net/runs/a", False),
        ("abfs://runs@lab.dfs.core.windows.net", "az://runs/a", True),
        ("file:///srv/runs", "s3://srv/runs", False),
        ("", "s3://srv/runs", False),
    ],
)
def test_the_sites_store_is_known_however_it_is_written(
    store: str, uri: str, overlaps: bool
) -> None:
    assert place(uri).overlaps(store) is overlaps


def test_options_are_those_of_the_block_or_of_nobody() -> None:
    assert place("s3://a").options(None) == {"anon": True}
    assert place("s3://a").options('{"key": "k"}') == {"key": "k"}
    assert place("gs://a").options({"project": "p"}) == {"token": "anon", "project": "p"}
    for value in ({}, "no JSON", 5):
        with pytest.raises(ValueError, match=r"."):
            place("s3://a").options(value)


def test_a_rule_names_a_storage_and_a_block() -> None:
    assert checked_rules(RULES) == RULES
    for rule in ({"/data": "x"}, {"s3://a": ""}, {"s3://a//b": "x"}):
        with pytest.raises(ValueError, match="give"):
            checked_rules(rule)

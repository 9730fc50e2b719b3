"""The other end of the process that reads a data set."""

import os
from multiprocessing import Pipe

import pytest

from headway.staging import reader
from headway.staging.errors import SourceMissing, SourceUnreachable


def test_a_child_that_stops_in_the_middle_of_a_message_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would have been waited for without end: what it said had begun."""
    monkeypatch.setattr(reader, "_MESSAGE_S", 0.1)
    ours, its = Pipe()
    told: list[str] = []

    def kill() -> None:
        told.append("killed")
        its.close()

    child = reader._Child("file:///d", ours, lambda: None, kill)
    os.write(its.fileno(), b"\x00\x00\x00\xff{")  # four bytes of length, one of 255
    with pytest.raises(SourceUnreachable, match="has ended"):
        child.inspect()
    assert told == ["killed"]


def test_the_sites_credentials_are_nobodys_who_names_none() -> None:
    site = {
        "PATH": "/bin",
        "HOME": "/root",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_PROFILE": "site",
        "AWS_ENDPOINT_URL": "http://minio",
        "GOOGLE_APPLICATION_CREDENTIALS": "/root/gs.json",
        "AZURE_STORAGE_CONNECTION_STRING": "k",
        "FSSPEC_S3_KEY": "k",
        "HEADWAY_STORE_URL": "s3://site",
    }
    given = reader.environment(site)
    assert given["PATH"] == "/bin"
    assert given["HOME"] != "/root"
    assert not set(given) & (set(site) - {"PATH", "HOME"})
    none = reader.Credentials()
    assert none.options("s3://lab/a") == {"anon": True}
    assert none.options("/data/a") == {}


def test_a_block_that_cannot_be_asked_for_or_holds_nothing_reads_nothing() -> None:
    named = reader.Credentials({"s3://lab": "lab-s3"})
    with pytest.raises(SourceMissing, match="lab-s3, which has its credentials"):
        named.options("s3://lab/a")
    with pytest.raises(SourceMissing, match="JSON"):
        reader.Credentials({"s3://lab": "lab-s3"}, secret=lambda block: "x").options("s3://lab/a")

"""Storages: which credentials an address is read with, and what is the site's store.

Every spelling of an address that leads to one place is one place here: the schemes of one
storage, Azure's account before the container, behind it, or not said, and revisions at Hugging
Face.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

ANONYMOUS = "anonymous"
"""In the place of a Secret block's name: read without credentials."""
_STORAGES = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az",
    "sftp": "sftp", "hf": "hf",
}  # fmt: skip
_WITHOUT: Mapping[str, dict[str, Any]] = {
    "s3": {"anon": True}, "gs": {"token": "anon"}, "az": {"anon": True},
    "hf": {"token": False},
}  # fmt: skip
"""fsspec's options for reading without credentials."""
_HUB_KINDS = frozenset({"datasets", "spaces", "buckets"})
"""What repositories of Hugging Face's hub are; an address without one of them is a model's."""
_OF_SFTP = frozenset({"username", "host_key", "private_key", "password"})
_AZURE_HOST = re.compile(r"^([a-z0-9]+)(\.z[0-9]+)?\.(dfs|blob)\.core\.[a-z.]+$")


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket, container, server or kind of repository, or what lies below a key in it."""

    storage: str
    """Also the extra of headway's with what reads it."""
    account: str
    """Azure's; empty where the address has none."""
    bucket: str
    key: tuple[str, ...] = ()

    @classmethod
    def of(cls, uri: str) -> "ObjectPlace | None":
        """The place of *uri*; None for what is in no such storage.

        Raises:
            ValueError: What it means differs from storage to storage.
        """
        scheme, _, path = uri.partition("://")
        storage = _STORAGES.get(scheme)
        if storage is None:
            return None
        first, *key = path.removesuffix("/").split("/")
        if not first or {"", ".", ".."}.intersection(key):
            raise ValueError("give its address with a bucket, and without // and /./ in it")
        bucket, account = first, ""
        if storage == "az":
            bucket, _, account = first.lower().partition("@")
            if "." in bucket and key:  # an account's host: containers have no dots
                bucket, account = key.pop(0).lower(), bucket
            account = _AZURE_HOST.sub(r"\1", account)
        elif storage == "sftp":
            if "@" in bucket:
                raise ValueError("give its address without a user, whom its Secret block names")
            if {"?", "#"}.intersection(uri):  # what reads it would leave out what follows
                raise ValueError("give its address without ? and #: names with them are not read")
            bucket = bucket.lower()
        elif storage == "hf":
            if bucket not in _HUB_KINDS:
                bucket, key = "models", [bucket, *key]
            key = [part.partition("@")[0] for part in key[:2]] + key[2:]
        return cls(storage, account, bucket, tuple(key))

    def holds(self, other: "ObjectPlace") -> bool:
        """Whether *other* may be this place, or in it: an account that is not said may be any."""
        accounts = {self.account, other.account} - {""}
        same = (self.storage, self.bucket) == (other.storage, other.bucket) and len(accounts) < 2
        return same and other.key[: len(self.key)] == self.key

    def overlaps(self, store_url: str) -> bool:
        """Whether files of the site's store at *store_url* may be in this place, or it in that."""
        scheme, _, path = store_url.rpartition("::")[2].partition("://")
        plain = "/".join(part for part in path.split("/") if part not in ("", "."))
        store = ObjectPlace.of(f"{scheme}://{plain}")
        return store is not None and (store.holds(self) or self.holds(store))

    def options(self, value: object) -> dict[str, Any]:
        """What fsspec reads it with: the *value* of a Secret block, None to have no credentials.

        Raises:
            ValueError: No options are in the value.
        """
        if value is None:
            if self.storage not in _WITHOUT:
                raise ValueError("no Secret block is named for its server: an operator does so")
            return _WITHOUT[self.storage]
        with suppress(ValueError):
            value = json.loads(value) if isinstance(value, str) else value
        if not isinstance(value, dict) or not value:
            raise ValueError('its block has to have JSON such as {"key": "…", "secret": "…"}')
        if self.storage == "sftp" and not {"username", "host_key"} <= value.keys() <= _OF_SFTP:
            asked = '{"username": "…", "host_key": "ssh-ed25519 …", "private_key": "…"}'
            raise ValueError(f"its block has to have JSON such as {asked}")
        # Without a token gcsfs would look for credentials of the machine.
        return {**_WITHOUT["gs"], **value} if self.storage == "gs" else value


def secret_for(place: ObjectPlace, rules: Mapping[str, str]) -> str | None:
    """The Secret block that the narrowest of *rules* (address → block) about *place* names.

    None to read without credentials: no rule is about it, `ANONYMOUS` stands there, or the rule
    may be about another account, which is not shown credentials that are not its own.
    """
    found = [(rule, block) for uri, block in rules.items() if (rule := ObjectPlace.of(uri))]
    about = [(rule, block) for rule, block in found if rule.holds(place)]
    depth = max((len(rule.key) for rule, _ in about), default=0)
    named = {
        block if rule.account == place.account else ANONYMOUS
        for rule, block in about
        if len(rule.key) == depth
    }
    return None if len(named) != 1 or named == {ANONYMOUS} else named.pop()


def checked_rules(rules: Mapping[str, str]) -> Mapping[str, str]:
    """*rules*, each about a storage of objects. Raises `ValueError`."""
    for uri, block in rules.items():
        if ObjectPlace.of(uri) is None or not block:
            raise ValueError(
                f"give an address such as s3://bucket/set and the name of a Secret block, or "
                f"{ANONYMOUS}; not {uri[:200]!r}: {block[:100]!r}"
            )
    return rules

"""The address of a data set: what can be told from its text alone.

The same rules hold where a job is read and where its data is staged. What a
symbolic link leads to, and whether anything is there, is seen only then.
"""

import re

from headway.model.job_fields import FieldKind, Refused, checked_text
from headway.model.job_rules import SECRET_TEXT

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,31})://(.*)")
_LOCAL_SCHEMES = frozenset({"file", "local"})
SCHEMES = ("http", "https", "s3", "gs", "gcs", "az", "abfs", "abfss", "sftp", "hf")
"""Storage that a job may name. What fsspec knows beyond these opens other machines'
services, or wraps one address in another."""
UPLOADED = "headway"
"""Of the address of a data set that a member has sent to the site."""
UPLOAD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SYSTEM_DIRS = frozenset({"proc", "sys", "dev"})


def read_uri(value: object) -> str:
    """An absolute path of the node, or an fsspec address.

    Only its form is judged here. Whether a symbolic link leads out, and
    whether the site allows the directory, is seen where the data is opened.
    """
    example = "give an absolute path, such as /data/flights.csv, or an address: s3://bucket/set"
    if not isinstance(value, str) or not value:
        raise Refused(example)
    uri = checked_text(value, limit=2000)
    match = _SCHEME.fullmatch(uri)
    scheme, path = (match[1], match[2]) if match else ("", uri)
    if scheme == UPLOADED:
        if UPLOAD.fullmatch(path) is None:
            raise Refused("give a name that `headway data ls` lists, such as headway://flights")
        return uri
    if SECRET_TEXT.search(uri):
        raise Refused("give the address without a password or key", hidden=True)
    if "::" in uri or (scheme and scheme not in _LOCAL_SCHEMES.union(SCHEMES)):
        begin = ", ".join(f"{each}://" for each in (UPLOADED, *SCHEMES))
        raise Refused(f"{example}. Addresses begin with {begin}")
    if ".." in re.split(r"[/\\]", uri.replace("%2e", ".").replace("%2E", ".")):
        raise Refused('give the address without ".."')
    if not scheme or scheme in _LOCAL_SCHEMES:
        _check_local(path, example)
    return uri


def upload_name(uri: str) -> str | None:
    """The name of what a member has sent by `headway data put`; None for any other address."""
    match = _SCHEME.fullmatch(uri)
    return match[2] if match is not None and match[1] == UPLOADED else None


def local_path(uri: str) -> str | None:
    """The path of this machine that *uri* names; None for any other storage."""
    match = _SCHEME.fullmatch(uri)
    if match is None:
        return uri
    return match[2] if match[1] in _LOCAL_SCHEMES else None


def _check_local(path: str, example: str) -> None:
    if not path.startswith("/"):
        raise Refused(example)
    if ":" in path or "\\" in path:
        raise Refused("give a path without colons and backslashes; it is always mounted read-only")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or parts[0] in _SYSTEM_DIRS or parts[-1].endswith(".sock"):
        raise Refused("give a directory or file with data; this belongs to the system")


URI = FieldKind(read_uri, {"type": "string", "minLength": 1, "maxLength": 2000})

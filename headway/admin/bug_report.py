"""What a bug report needs, in one file without secrets."""

import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE, S_ISREG

from pydantic_core import to_jsonable_python

from headway.model.job_rules import SECRET_TEXT, may_be_secret
from headway.prefect import auth
from headway.runtime.redact import Redactor
from headway.settings import Settings
from headway.units import KIB

_LOG_BYTES = 512 * KIB
"""Of the end of each log."""
_KEY_BYTES = 64 * KIB
"""A larger file of the home is no secret."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [^\n]*|\Z)", re.DOTALL)
_NAMED = re.compile(
    r"(?i)((?:(?:authorization|cookie|secret|passw(?:or)?d|passphrase|api_?key)\w*"
    r"|(?<![a-z])(?:token|pwd)(?![a-z]))"
    r"[\"']?\s*[=:]\s*[\"']?)(?:(?:bearer|basic)\s+)?[^\s\"',;}]+"
)
_IN_ADDRESS = re.compile(r"(://)[^/\s@]*:[^/\s]*@")
_OURS = re.compile(r"\bhwt_\w+")
_MASK = "(hidden)"


def write_report(
    settings: Settings, parts: Mapping[str, Callable[[], object]], file: Path
) -> list[str]:
    """Write *parts*, and the ends of the daemons' logs, to *file*, a new tar.gz for its owner.

    Args:
        settings: This machine's.
        parts: By name what makes each document. One that cannot be made is told with its error.
        file: Where to.

    Returns:
        The names of what is in it.

    Raises:
        FileExistsError: *file* is there already.
    """
    known = list(_secrets(settings, os.environ))
    texts = {f"{name}.json": _document(make) for name, make in parts.items()}
    for log in sorted(settings.state_dir.glob("*.log")):
        texts[f"logs/{log.name}"] = _end(log)
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, text in texts.items():
            data = without_secrets(text, known).encode()
            entry = tarfile.TarInfo(f"headway-report/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return list(texts)


def without_secrets(text: bytes, known: list[bytes]) -> str:
    """*text* without the *known* secrets, and without what looks like one."""
    redactor = Redactor(known)
    clean = (redactor.feed(text) + redactor.rest()).decode(errors="replace")
    clean = _PRIVATE_KEY.sub(_MASK, clean)
    clean = _IN_ADDRESS.sub(rf"\1{_MASK}@", clean)
    clean = _OURS.sub(_MASK, clean)
    clean = _NAMED.sub(rf"\1{_MASK}", clean)
    return SECRET_TEXT.sub(_MASK, clean)


def _document(make: Callable[[], object]) -> bytes:
    try:
        found = make()
    except Exception as error:  # noqa: BLE001 - whatever is broken is what the report is about
        found = {"not known": f"{type(error).__name__}: {error}"}
    return json.dumps(to_jsonable_python(found), indent=1, ensure_ascii=False).encode()


def _end(log: Path) -> bytes:
    """The end of *log*, from the beginning of a line."""
    with log.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(size - _LOG_BYTES, 0))
        if size > _LOG_BYTES:
            opened.readline()
        return opened.read()


def _secrets(settings: Settings, environ: Mapping[str, str]) -> Iterator[bytes]:
    """What nobody else may read here: secret variables, and the private files of the home."""
    texts = [
        value
        for name, value in environ.items()
        if name in (auth.CLIENT, auth.SERVER) or may_be_secret(name, value)
    ]
    for path in (*settings.home.glob("*"), *settings.secrets_dir.rglob("*")):
        with suppress(OSError):
            found = path.lstat()
            is_private = S_ISREG(found.st_mode) and not S_IMODE(found.st_mode) & 0o077
            if is_private and found.st_size <= _KEY_BYTES:
                texts.append(path.read_text(errors="surrogateescape"))
    for text in texts:
        yield text.encode(errors="surrogateescape")
        for password in re.findall(r"://[^/\s:@]*:([^/\s]*)@", text):
            yield password.encode()
        if re.fullmatch(r"[\w.-]+:\S+", text.strip()):  # the server's auth string
            yield text.strip().partition(":")[2].encode()

"""With which settings the processes of `headway up` were started, to see what has changed since."""

import hashlib
import json
from collections.abc import Mapping

from headway.admin.environment import as_text
from headway.durable import replace_file
from headway.node.daemon import supervisor_note
from headway.settings import Settings

_NOTE = "told.json"
_READ_AT_START = ("auth", "database.url", "gateway.pem", "ledger.url", "server.url")
"""Files of the home that processes read once."""


def note_told(settings: Settings) -> None:
    """Note that what runs has *settings*."""
    replace_file(settings.state_dir / _NOTE, json.dumps(_told(settings)))


def told_otherwise(settings: Settings) -> list[str]:
    """Names of settings and files that what runs has otherwise, as far as is known."""
    return differing(settings, noted(settings))


def noted(settings: Settings) -> dict[str, str]:
    """Digests of what the processes were started with; none where the site is down."""
    try:
        found: dict[str, str] = json.loads((settings.state_dir / _NOTE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if supervisor_note(settings).exists() else {}


def differing(settings: Settings, noted: Mapping[str, str]) -> list[str]:
    """Names of those that *noted*, unless it is empty, has otherwise than *settings*."""
    now = _told(settings) if noted else {}
    return sorted(name for name in noted.keys() | now.keys() if noted.get(name) != now.get(name))


def _told(settings: Settings) -> dict[str, str]:
    """Of each setting and file its digest, since some are secrets."""
    found: dict[str, bytes] = {}
    for name in Settings.model_fields:
        found[f"HEADWAY_{name.upper()}"] = as_text(getattr(settings, name)).encode()
    for name in _READ_AT_START:
        path = settings.home / name
        found[name] = path.read_bytes() if path.exists() else b""
    return {name: hashlib.sha256(value).hexdigest() for name, value in found.items()}

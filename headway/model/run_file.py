"""What a run left in files: its outputs, pieces of its log, and how a node is asked for them."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote_to_bytes

MOST_NAME_BYTES = 4096
MOST_FOLDERS = 64
"""So deep may an output lie."""
MOST_FILES = 100_000
"""So many outputs of a run are listed."""
MOST_BYTES = 10**18
"""No file is larger."""
EXPIRES = "Headway-Expires"
NONCE = "Headway-Nonce"
SIGNATURE = "Headway-Signature"
FROM = "Headway-From"
"""Header of a piece of a log: the offset of its first byte."""
NEXT_ATTEMPT = "Headway-Next-Attempt"
"""Header of an answer without a log: the attempt that came after."""
MISSING = "Headway-Missing"
"""Header of the same: why this attempt's log cannot be read, as it stands in an address."""
REQUEST_LASTS_S = 120
"""So long a node takes a signed request; the clocks of two machines may differ by so much."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file that a run wrote below its outputs."""

    name: bytes
    """Path below the outputs, with ``/``: a program gives its files any bytes for a name."""
    size_bytes: int
    modified_ns: int
    version: str
    """Differs when the file may differ."""
    sha256: str | None = None

    @property
    def href(self) -> str:
        """The name as it stands in an address."""
        return quote(self.name)

    @property
    def path(self) -> str:
        """The name for people; of bytes that are no text their numbers."""
        return self.name.decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class OutputList:
    """What is below the outputs of a run."""

    files: tuple[OutputFile, ...]
    complete: bool = True
    """False where there is more than is listed."""
    left_out: int = 0
    """Links, sockets, and whatever else is no file of the run's own."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some of the log of one attempt."""

    data: bytes
    start: int
    """Offset of the first byte. Later than asked for where the oldest part was given up."""

    @property
    def end(self) -> int:
        """Offset of what follows."""
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class StoredPart:
    """What one node had of an ended run, and is in the site's store."""

    run_id: str
    attempt: int
    """The last one on that node: its earlier ones there are in it."""
    key: str
    """Where in the store; empty where there was nothing to bring there."""
    files: int
    size_bytes: int
    stored_at: datetime
    removed_at: datetime | None
    note: str = ""
    """What of it was not brought there, and why; empty where all was."""

    @property
    def is_there(self) -> bool:
        """Whether there is something of it in the store."""
        return bool(self.key) and self.removed_at is None


@dataclass(frozen=True, slots=True)
class KeptInStore:
    """What the site's store keeps of one ended run, all parts together."""

    run_id: str
    name: str
    team: str
    ended_at: datetime
    size_bytes: int


def name_from(href: str) -> bytes | None:
    """The name of an output by its address below the outputs; None for what names none."""
    name = unquote_to_bytes(href)
    parts = name.split(b"/")
    wrong = not name or len(name) > MOST_NAME_BYTES or len(parts) > MOST_FOLDERS or b"\0" in name
    return None if wrong or any(part in (b"", b".", b"..") for part in parts) else name


def signature(key: str, node: str, method: str, target: str, *, expires_s: int, nonce: str) -> str:
    """What shows a node that a request is the site's own.

    Args:
        key: The secret that the node's worker has put into the ledger.
        node: Whom it is for: another node takes it for nothing.
        method: Such as ``GET``.
        target: Path and query, as they are sent.
        expires_s: Until when it holds, in seconds since the epoch.
        nonce: Of this request alone: the node answers it once.
    """
    text = "\n".join(("headway-2", node, method, target, str(expires_s), nonce))
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def signed(key: str, node: str, method: str, target: str, now_s: float) -> dict[str, str]:
    """Headers of a request that is sent at *now_s*; the rest as for `signature`."""
    expires_s = int(now_s) + REQUEST_LASTS_S
    nonce = secrets.token_hex(16)
    return {
        EXPIRES: str(expires_s),
        NONCE: nonce,
        SIGNATURE: signature(key, node, method, target, expires_s=expires_s, nonce=nonce),
    }


def why_refused(
    key: str, node: str, method: str, target: str, headers: Mapping[str, str], *, now_s: float
) -> str:
    """Why a request is not the site's; empty where it is. See `signature`.

    Args:
        key: This node's; with none nobody is let in.
        node: This node.
        method: Of the request.
        target: Path and query, as they came.
        headers: With names in lower case.
        now_s: By this machine's clock.
    """
    expires = headers.get(EXPIRES.lower(), "")
    shown = headers.get(SIGNATURE.lower(), "")
    if not key or not (expires.isascii() and expires.isdigit() and len(expires) <= 12):
        return "it is not signed"
    nonce = headers.get(NONCE.lower(), "")
    right = signature(key, node, method, target, expires_s=int(expires), nonce=nonce)
    if not hmac.compare_digest(right.encode(), shown.encode()):
        return "its signature is wrong"
    if not now_s - REQUEST_LASTS_S <= int(expires) <= now_s + 2 * REQUEST_LASTS_S:
        return f"it has expired, or the clocks differ by more than {REQUEST_LASTS_S} s"
    return ""

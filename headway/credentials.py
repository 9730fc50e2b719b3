"""Where the gateway is, and by which token a person comes in: found without being asked for.

First HEADWAY_URL and HEADWAY_TOKEN count, then the file that `headway login` writes, then what
`headway up` and `headway node join` have noted for this machine's operator.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from headway.durable import replace_file
from headway.errors import InvalidInput, NoCredentials, shown
from headway.pinning import is_protected
from headway.settings import Settings

URL = "HEADWAY_URL"
TOKEN = "HEADWAY_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class GatewayPlace:
    """Where a gateway is, and how it is recognised there."""

    url: str
    """Such as ``https://gpus.example.org:4280``, without a slash at its end."""
    certificate: str | None = None
    """In PEM, the only one that is trusted there; None for those that this machine trusts."""


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway as one user reaches it."""

    url: str
    """Such as ``https://gpus.example.org:4280``, without a slash at its end."""
    token: str
    certificate: str | None = None
    """In PEM, the only one that is trusted there; None for those that this machine trusts."""


def find_address(settings: Settings, environ: Mapping[str, str] = os.environ) -> Address:
    """The gateway that commands speak to.

    Raises:
        InvalidInput: What names it is no address, or a file cannot be read.
        NoCredentials: None is known here, or no token for it.
    """
    kept = read_credentials(credentials_file(environ))
    if url := environ.get(URL):
        url = checked_url(URL, url)
        token = environ.get(TOKEN)
        if kept is not None and kept.url == url:
            return kept if token is None else Address(url, token, kept.certificate)
        if token is None:
            raise NoCredentials(url)
        return Address(url, token)
    return kept if kept is not None else local_address(settings)


def credentials_file(environ: Mapping[str, str] = os.environ) -> Path:
    """What `headway login` writes for the user of this account."""
    config = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "headway" / "credentials.json"


def read_credentials(path: Path) -> Address | None:
    """The address that is kept in *path*; None where there is none.

    Raises:
        InvalidInput: Something else is in it.
    """
    try:
        return Address(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        allowed = "it is not what `headway login` writes; log in again"
        raise InvalidInput("credentials", str(error), allowed, where=str(path)) from None


def keep_credentials(path: Path, address: Address) -> None:
    """Keep *address* in *path*, which nobody but its owner may read at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, json.dumps(asdict(address), indent=2))


def checked_url(field: str, url: str) -> str:
    """*url*, the address of a gateway, without a slash at its end.

    Raises:
        InvalidInput: It is no address, or a token sent there could be read on the way; *field* is
            where it was given.
    """
    try:
        address, why = httpx.URL(url), ""
    except httpx.InvalidURL as error:
        address, why = httpx.URL(), f" ({shown(str(error), 200)[1:-1]})"
    if address.scheme not in {"http", "https"} or not address.host:
        raise InvalidInput(
            field, url, f"give an address such as https://gpus.example.org:4280{why}"
        )
    if not is_protected(url):
        allowed = "your token would cross the network unprotected, so nothing was asked: give https"
        raise InvalidInput(field, url, f"{allowed}://…, which the operator's gateway must speak")
    return url.rstrip("/")


def local_address(settings: Settings) -> Address:
    """The gateway of the site that this machine belongs to, with its operator's token.

    Raises:
        InvalidInput: The note of where it is cannot be read.
        NoCredentials: No token for it is kept here.
    """
    place = noted_gateway(settings) or GatewayPlace(f"http://127.0.0.1:{settings.gateway_port}")
    try:
        token = settings.token_file.read_text().strip()
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        raise NoCredentials(place.url) from None
    return Address(place.url, token, place.certificate)


def noted_gateway(settings: Settings) -> GatewayPlace | None:
    """Where the site's gateway is, as noted in the home of this machine.

    Raises:
        InvalidInput: Something else is in the note.
    """
    try:
        return GatewayPlace(**json.loads(settings.gateway_note.read_bytes()))
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        allowed = "it is not what headway writes; restart the gateway, or run `node join` again"
        raise InvalidInput("gateway", str(error), allowed, where=str(settings.gateway_note)) from (
            None
        )


def note_gateway(settings: Settings, place: GatewayPlace) -> None:
    """Note *place* in the home, for commands on this machine."""
    replace_file(settings.gateway_note, json.dumps(asdict(place), indent=2))

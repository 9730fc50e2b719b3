"""The auth string of a site's Prefect server: whoever knows it may do everything there.

It is born with the site, lies in HEADWAY_HOME for its owner alone, and reaches
processes by their environment: never by a command line, a log or a page.
"""

import os
import secrets
from pathlib import Path

from headway.durable import replace_file
from headway.settings import Settings

CLIENT = "PREFECT_API_AUTH_STRING"
"""Prefect's variable for who asks a server."""
SERVER = "PREFECT_SERVER_API_AUTH_STRING"
"""Prefect's variable for the server itself."""


def auth_for(settings: Settings, api_url: str) -> str | None:
    """What to tell the server at *api_url*; None when nothing is known.

    What this home keeps is for its own site's server and told to no other.
    """
    if api_url.rstrip("/") == settings.api_url.rstrip("/"):
        try:
            return settings.auth_file.read_text().strip() or os.environ.get(CLIENT)
        except (FileNotFoundError, PermissionError):
            pass
    return os.environ.get(CLIENT)


def site_auth(settings: Settings) -> str | None:
    """What to tell this site's server."""
    return auth_for(settings, settings.api_url)


def have_auth(settings: Settings) -> str:
    """The string of the site whose server is on this machine: as given, as kept, or made now."""
    given = os.environ.get(SERVER)
    if given:
        keep_secret(settings.auth_file, given)
    elif not _kept(settings):  # an empty one would leave the server open to everybody
        keep_secret(settings.auth_file, f"headway:{secrets.token_urlsafe(24)}")
    return _kept(settings)


def _kept(settings: Settings) -> str:
    try:
        return settings.auth_file.read_text().strip()
    except FileNotFoundError:
        return ""


def keep_secret(path: Path, text: str) -> None:
    """Write *text* to *path*, which nobody but its owner may read at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, f"{text}\n")

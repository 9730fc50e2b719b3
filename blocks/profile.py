"""Writes the Prefect profile by which plain `prefect …` finds this site.

Run by `headway up`, among the profiles of whoever runs it. Those a person has
are left as they are; the site's becomes active only where none is.
"""

from urllib.parse import urlsplit

from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    ProfilesCollection,
    get_current_settings,
    load_profiles,
    save_profiles,
)

from headway.prefect.auth import site_auth
from headway.settings import Settings

NAME = "headway"


def write(settings: Settings) -> str:
    """Write the profile; the words that then stand for `prefect` on this site."""
    profiles = load_profiles(include_defaults=False)
    name = _name(profiles, settings.api_url)
    site = {PREFECT_API_URL: settings.api_url, PREFECT_API_AUTH_STRING: site_auth(settings)}
    profiles.update_profile(name, site)
    if profiles.active_name is None:
        profiles.set_active(name)
    path = get_current_settings().profiles_path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.chmod(0o600)  # a file that was there may be open to others, and is to hold a secret
    save_profiles(profiles)
    return "prefect" if profiles.active_name == name else f"prefect --profile {name}"


def _name(profiles: ProfilesCollection, api_url: str) -> str:
    """A name that no other site's profile has."""
    address = urlsplit(api_url)
    for name in (NAME, f"{NAME}-{address.port}", f"{NAME}-{address.hostname}-{address.port}"):
        if name not in profiles.names or _url(profiles, name) == api_url:
            return name
    return f"{NAME}-{address.netloc}"


def _url(profiles: ProfilesCollection, name: str) -> str:
    return str(profiles[name].settings.get(PREFECT_API_URL) or "")


if __name__ == "__main__":
    own = Settings()
    (own.state_dir / "profile").write_text(write(own))
    (own.state_dir / "profile.done").touch()

"""How the containers of an attempt reach what lies outside the site."""

from headway.model.outside import CERTIFICATES_FILE, Outside
from headway.run.here import NodeAttempt
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import BindMount

_OUTSIDE = "/opt/headway/outside"


def certificates_of(attempt: NodeAttempt, outside: Outside) -> str:
    """What the site's file of certificates has on this node; empty where it names none.

    Raises:
        RuntimeFailure: It is not there.
    """
    file = outside.certificates
    if file is None:
        return ""
    try:
        return file.read_text()
    except (OSError, ValueError) as error:
        raise RuntimeFailure(
            f"the site's certificates {file} cannot be read on node {attempt.site.settings.node} "
            f"({error}), and without them programs reach no index and no data outside; nothing "
            f"was started. Ask {outside.contact or 'an operator'} to put that file there"
        ) from error


def way_outside(
    attempt: NodeAttempt, outside: Outside
) -> tuple[dict[str, str], tuple[BindMount, ...]]:
    """Variables and mounts of its program. Raises `RuntimeFailure` as `certificates_of` does."""
    certificates = certificates_of(attempt, outside)
    if not certificates:
        return dict(outside.variables()), ()
    mount = BindMount(attempt.told("outside", CERTIFICATES_FILE, certificates), _OUTSIDE)
    place = f"{attempt.site.runtime.path_in_container(mount)}/{CERTIFICATES_FILE}"
    return dict(outside.variables(place)), (mount,)

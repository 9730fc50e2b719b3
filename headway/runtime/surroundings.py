"""What programs find around them, on any machine and in any image: a home, a name, a language."""

from collections.abc import Mapping

NAME = "headway"
"""Of whoever a program runs as: the uid of a team has none in an image."""
OWN_TMP = "/tmp"
_HOMES = {"CACHE": ".cache", "CONFIG": ".config", "DATA": ".local/share"}
"""Where libraries keep what they load: Hugging Face's, torch's and matplotlib's lie there, too."""
_LANGUAGE = {"LANG": "C.UTF-8"}


def surroundings(home: str, said: Mapping[str, str]) -> dict[str, str]:
    """The variables that programs expect to be set.

    Args:
        home: A folder that the program may write to, and that goes with it.
        said: What the program's image says itself: its language stays, where it names one.
    """
    return {
        "HOME": home,
        **{f"XDG_{kind}_HOME": f"{home}/{folder}" for kind, folder in _HOMES.items()},
        "USER": NAME,
        "LOGNAME": NAME,
        "TERM": "dumb",
        **({} if {"LANG", "LC_ALL"} & said.keys() else _LANGUAGE),
    }


def with_user(passwd: str, uid: int, gid: int, home: str) -> str:
    """The text of a `passwd` file in which *uid* has an entry: as it is where there is one."""
    lines = passwd.splitlines()
    if any(line.split(":")[2:3] == [str(uid)] for line in lines):
        return passwd
    return "\n".join([*lines, f"{NAME}:x:{uid}:{gid}:{NAME}:{home}:/bin/sh", ""])

"""Letting systemd keep this machine's part of a site: its units, and the environment they get.

The units are those of `deployments/systemd/`, with the paths of this installation.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from headway.durable import replace_file
from headway.errors import HeadwayError, InvalidInput
from headway.node import daemon as daemons
from headway.prefect import auth
from headway.project import PROJECT
from headway.settings import Settings

Say = Callable[[str], None]
UNITS = Path("/etc/systemd/system")
ENVIRONMENT = Path("/etc/headway/site.env")
_PREFIX = "/opt/headway/.venv/bin/"
"""Where the units of `deployments/systemd/` have headway's programs."""
_MARK = "# Made by `headway install`, which writes it anew; `systemctl edit` adds to it.\n"
_NEEDS_QUOTES = str.maketrans({each: f"\\{each}" for each in '\\"'})


class CannotInstall(HeadwayError):
    """Nothing was changed, and why."""

    exit_status = 2


class KeptBySystemd(HeadwayError):
    """systemd keeps this site, and would work against who starts or stops it otherwise."""

    exit_status = 2

    def __init__(self, instead: str) -> None:
        self.instead = instead
        super().__init__(f"systemd keeps this site, since `headway install`: {instead}")


def leave_to_systemd(settings: Settings, instead: str) -> None:
    """Raise `KeptBySystemd` where systemd keeps the site of *settings*."""
    if kept_by_systemd(settings):
        raise KeptBySystemd(instead)


def kept_by_systemd(settings: Settings) -> bool:
    """Whether the units here are of the site of *settings*."""
    try:
        known = read_environment(ENVIRONMENT.read_text()) if installed() else {}
    except OSError:  # somebody else's, whose site is not root's
        return False
    return known.get("HEADWAY_HOME") == str(settings.home)


def read_environment(text: str) -> dict[str, str]:
    """The variables of a file of systemd's.

    Raises:
        InvalidInput: A line is no assignment.
    """
    found = {}
    for line in map(str.strip, text.splitlines()):
        if line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            try:
                found[name] = "".join(shlex.split(value))
            except ValueError:
                equals = ""
            if not equals:
                raise InvalidInput(str(ENVIRONMENT), name, "write NAME=VALUE", where="file")
    return found


def environment(settings: Settings, known: Mapping[str, str]) -> str:
    """The file of *known* variables, as systemd reads it: headway's, and the home.

    Raises:
        InvalidInput: A value has more than one line.
    """
    names = {f"HEADWAY_{name.upper()}" for name in Settings.model_fields}
    names |= {"HEADWAY_TIMEZONE", auth.CLIENT, auth.SERVER}
    chosen = {name: known[name] for name in names & known.keys()}
    for name, value in chosen.items():
        if "\n" in value or "\0" in value:
            raise InvalidInput(name, "several lines", "give one line", where="environment")
    chosen["HEADWAY_HOME"] = str(settings.home)
    lines = (f'{name}="{value.translate(_NEEDS_QUOTES)}"\n' for name, value in chosen.items())
    return "".join(sorted(lines))  # as what it has made is read back


def units(settings: Settings) -> list[str]:
    """Names of the units of this machine: of a site's, or of a node that has joined one."""
    node = ["headway-guard.service", "headway-worker.service"]
    if settings.is_guest:
        return node
    own = [] if settings.names_ledger else ["headway-database.service"]
    site = ["headway-server.service", "headway-gateway.service", "headway-scheduler.service"]
    return [*own, *site, *node]


def unit(name: str) -> str:
    """The text of unit *name*, for this installation."""
    text = (PROJECT / "deployments" / "systemd" / name).read_text()
    return _MARK + text.replace(_PREFIX, f"{sys.prefix}/bin/")


def install(
    settings: Settings, known: Mapping[str, str], say: Say, *, start: bool, dry: bool
) -> None:
    """Write what differs, and have systemd start it.

    Args:
        settings: This machine's.
        known: The variables that the services are to have; headway's alone are kept.
        say: Is told what was, or with *dry* would be, done.
        start: Whether systemd is to start them, now and at each boot.
        dry: Nothing is changed.

    Raises:
        CannotInstall: This is not root, there is no systemd, what `headway up` has started runs, or
            this headway may be removed with the cache that it lies in.
    """
    names = units(settings)
    # uv marks its cache as such: https://bford.info/cachedir/
    if caches := [each for each in Path(sys.prefix).parents if (each / "CACHEDIR.TAG").is_file()]:
        raise CannotInstall(
            f"this headway lies in the cache {caches[0]}, and a service needs one that stays: "
            "`uv tool install` the same wheel, and call `headway install` of that"
        )
    if not dry:
        _check(start=start)
    if not installed() and (running := _running(settings)):
        raise CannotInstall(
            f"`headway up` keeps {', '.join(running)} here: end that first by `headway down "
            "--wait`, or --stop"
        )
    wanted = {UNITS / name: unit(name) for name in names}
    wanted[ENVIRONMENT] = environment(settings, known)
    changed = [path for path, text in wanted.items() if not _is(path, text)]
    for path in changed:
        say(f"{'would write' if dry else 'writing'} {path}")
        if not dry:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)
            replace_file(path, wanted[path], mode=0o600 if path == ENVIRONMENT else 0o644)
    commands = [["daemon-reload"]] if changed else []
    if start:
        # Not --now: that would wait until the network is online.
        commands += [["enable", *names], ["start", "--no-block", *names]]
        if changed:  # what runs has the old ones
            again = names if ENVIRONMENT in changed else [each.name for each in changed]
            commands.insert(1, ["try-restart", *again])
    for words in commands:
        _systemctl(words, say, dry=dry)


def remove(say: Say, *, dry: bool) -> None:
    """Stop and take away the units that `install` has written; home and environment stay.

    Raises:
        CannotInstall: This is not root, or there is no systemd.
    """
    if not dry:
        _check(start=True)
    if not (paths := installed()):
        say("nothing is installed")
        return
    _systemctl(["disable", "--now", *[path.name for path in paths]], say, dry=dry)
    for path in paths:
        say(f"{'would remove' if dry else 'removing'} {path}")
        if not dry:
            path.unlink()
    _systemctl(["daemon-reload"], say, dry=dry)
    say(f"{ENVIRONMENT} and the home stay; what runs goes on for some minutes without a guard: "
        "`headway up` takes it up")  # fmt: skip


def installed() -> list[Path]:
    """The units here that `install` has written."""
    there = sorted(UNITS.glob("headway-*.service"))
    return [path for path in there if path.read_text().startswith(_MARK)]


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def _running(settings: Settings) -> list[str]:
    known = (
        daemons.supervisor_daemon, daemons.database_daemon, daemons.guard_daemon,
        daemons.worker_daemon, daemons.gateway_daemon, daemons.server_daemon,
    )  # fmt: skip
    found = (make(settings) for make in known)
    return [each.name for each in found if each.process() is not None]


def _check(*, start: bool) -> None:
    if os.geteuid() != 0:
        raise CannotInstall(f"only root may write to {UNITS}: call it by sudo")
    if start and not Path("/run/systemd/system").is_dir():
        raise CannotInstall("systemd does not run this machine: `headway up` starts the site here")


def _systemctl(words: list[str], say: Say, *, dry: bool) -> None:
    say(f"{'would call ' if dry else ''}systemctl {' '.join(words)}")
    if not dry:
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotInstall(f"systemctl {words[0]}: {done.stderr.strip()}")

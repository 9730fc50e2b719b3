"""Record docs/terminal.svg: the commands of the README, typed at a live site without an engine.

    python benchmarks/terminal.py [--into docs/terminal.svg]

Nothing in the picture is written by hand: each command is a process whose output is drawn as it
came. Between the commands it waits, unseen, until what the next one is about has happened.
"""

import argparse
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.site import BIN, LiveSite, live_site, wait_for  # noqa: E402

COLUMNS = 112
LONG = """\
name: long
image: headway-samples:local
command:
  - python
  - -c
  - |
    import json, time
    for at in range(1, 301):
        print(json.dumps({"headway": {"iteration": at, "total": 300}}), flush=True)
        time.sleep(1)
resources: {cpus: 1.5, host_memory: 1GiB}
max_runtime: 20m
"""
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""They would be fetched from elsewhere; every machine has one of equal widths."""


class Recording:
    """A terminal in *folder*, at which commands are typed to *site*."""

    def __init__(self, site: LiveSite, folder: Path) -> None:
        self.site, self.folder = site, folder
        path = f"{BIN}{os.pathsep}{site.env['PATH']}"
        self._env = {"COLUMNS": str(COLUMNS), "PATH": path}
        self.console = Console(record=True, width=COLUMNS, file=io.StringIO())

    def say(self, text: str) -> None:
        """What the person at the terminal thinks."""
        self.console.print(Text(f"# {text}", style="bright_black italic"))

    def type(self, command: str) -> None:
        """Draw *command* and what it prints."""
        self.console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
        done = subprocess.run(
            ["bash", "-c", command], env=self.site.env | self._env, cwd=self.folder,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        self.console.print(Text(done.stdout.strip("\n")))
        self.console.print()

    def svg(self) -> str:
        """The picture."""
        drawn = self.console.export_svg(title="headway", unique_id="headway")
        return FONTS.sub("", drawn)


def main() -> None:
    """Bring a site up, type, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "docs/terminal.svg")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(ROOT / "samples/digits/job.yaml", folder / "job.yaml")
        (folder / "long.yaml").write_text(LONG)
        with live_site(folder / "site", "process", HEADWAY_NODE="node-a") as site:
            drawn = record(Recording(site, folder))
    for own in (name, str(ROOT), socket.gethostname()):
        if own in drawn:
            raise SystemExit(f"{own!r} of this machine is in the picture: nothing was written")
    asked.into.write_text(drawn)
    print(f"{asked.into}: {len(drawn.encode()) / 1000:.0f} kB")


def record(at: Recording) -> str:
    """The five things that people do."""
    at.say("submit a job, and watch it")
    at.type("headway submit job.yaml --set resources.cpus=1")
    at.type("headway logs digits --follow | tail -n 4")
    until(at.site, lambda: at.site.show("digits")["state"] == "Completed")
    at.say("what has run once is known the next time")
    at.type("headway estimate job.yaml")
    at.type("headway submit long.yaml")
    until(at.site, lambda: ((at.site.show("long")["progress"] or {}).get("iteration") or 0) > 8)
    at.type("headway submit job.yaml --set name=next --set resources.cpus=1")
    until(at.site, lambda: [each for each in at.site.json("queue") if each["reason"]])
    at.say("see why it waits")
    at.type("headway why next")
    at.type("headway top --once")
    at.say("stop the other one")
    at.type("headway cancel long")
    until(at.site, lambda: at.site.show("next")["state"] == "Completed")
    at.type("headway runs")
    at.type("headway outputs next results")
    return at.svg()


def until(site: LiveSite, look: Callable[[], object]) -> None:
    """Wait, unseen, until *look* sees something."""
    wait_for(look, site.worker_log)


if __name__ == "__main__":
    main()

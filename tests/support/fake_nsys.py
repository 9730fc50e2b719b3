#!/usr/bin/env python3
"""A stand-in for `nsys profile`: runs the program and writes an export of the true schema.

What it does to a program was measured with nsys 2022.4: the program gets a
session of its own and an empty umask, SIGTERM is passed on to its group, and its
exit code is nsys's own. FAKE_NSYS in the environment makes it fail:
`refuses` (before the program), `dies` (while it runs), `hangs` (after it),
`silent` (no report).
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

words = sys.argv[2:]
options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
program = words[next(at for at, word in enumerate(words) if not word.startswith("--")) :]
mode = os.environ.get("FAKE_NSYS", "works")
print("nsys: collecting", flush=True)
print("nsys: a warning", file=sys.stderr, flush=True)
if mode == "refuses":
    sys.exit("unrecognised option '--wait=primary'")
os.umask(0)
child = subprocess.Popen(program, start_new_session=True, close_fds=False)


def pass_on(*_: object) -> None:
    time.sleep(0.3)  # so that a second SIGTERM of somebody else is told from this one
    os.killpg(child.pid, signal.SIGTERM)


signal.signal(signal.SIGTERM, pass_on)
if mode == "dies":
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
code = child.wait()
if mode == "hangs":
    time.sleep(600)
if mode != "silent":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.support.nsys_export import HTOD, Export

    export = Export(Path(options["output"] + ".sqlite"))
    export.a100()
    export.copy(HTOD, 0, 10**9, 9 * 10**9)
    Path(options["output"] + ".nsys-rep").write_bytes(b"report")
sys.exit(code if code >= 0 else 128 - code)

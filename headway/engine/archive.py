"""What a machine is given to run: a script, and the wrapper with its parts as one file."""

import io
import zipfile
from pathlib import Path

from headway.engine import wrapper

SCRIPT = """\
#!/bin/sh
# Made by headway for job {key}. The machine needs Python 3.8 and this folder, nothing else.
{names}
echo "{start}" >&2
for python in python3 /usr/libexec/platform-python python; do
    if command -v "$python" >/dev/null; then exec "$python" -IS {wrapper} {folder}; fi
done
echo "headway: there is no Python on $(hostname), so job {key} cannot be started" >&2
exit 127
"""


def archive() -> bytes:
    """What a machine's Python runs as one file."""
    here = Path(wrapper.__file__)
    files = {"__main__.py": here.read_bytes()}
    files |= {"headway/__init__.py": b"", "headway/engine/__init__.py": b""}
    for part in wrapper.PARTS:
        files[f"headway/engine/{part}.py"] = here.with_name(f"{part}.py").read_bytes()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, source in files.items():
            archive.writestr(zipfile.ZipInfo(name), source)  # of no time: the same ones, the same
    return made.getvalue()

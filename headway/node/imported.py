"""Whether the code that this process has imported has changed since."""

import sys
import sysconfig
from pathlib import Path


class ImportedModules:
    """Files of imported modules that a person may edit, and where pip installs the others."""

    def __init__(self) -> None:
        """What is imported now."""
        places = sysconfig.get_paths()
        installed = sorted({places["purelib"], places["platlib"]})
        known = (*installed, places["stdlib"], places["platstdlib"])
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        own = [file for file in files if file and not file.startswith(known)]
        self._seen = {path: _changed_at(path) for path in [*installed, *sorted(own)]}

    def outdated(self) -> bool:
        """Whether one of them was written to, or has gone."""
        return any(_changed_at(path) != seen for path, seen in self._seen.items())


def _changed_at(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return -1

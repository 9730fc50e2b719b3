"""A wheel of one module, made by hand: for machines that reach no index."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType


def small_wheel(
    folder: Path, name: str, version: str = "1.0", more: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """A wheel of a module *name* with `WORD` and a console script that prints it, and *more*."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    content = {
        **more,
        f"{name}.py": f"WORD = '{name} {version}'\ndef main():\n    print('script of', WORD)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}={name}:main\n",
    }
    record = "".join(f"{each},,\n" for each in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for each, text in (content | {f"{info}/RECORD": record}).items():
            wheel.writestr(each, text)
    return path

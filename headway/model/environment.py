"""What an environment of a run is made from, and known by."""

import hashlib
import json
import re

MOST_REQUIREMENTS_BYTES = 1 << 20
_ALONE = re.compile(
    r"--(hash|index-url|extra-index-url|no-index|pre|prefer-binary|only-binary|no-binary)\b|-i\b"
)
"""Options of a requirements file that name no other file."""


def environment_id(image: str, path: str, content: bytes, code_id: str) -> str:
    """The environment of one image and one requirements file.

    Whatever of the code the file leads to may change what comes of it, so then the whole code
    counts; else runs of other code share the environment.

    Args:
        image: Whose Python it is for.
        path: Of the file, below the folder of the code.
        content: Its.
        code_id: Of the code that the file came with.
    """
    counts = code_id if leads_elsewhere(path, content.decode(errors="replace")) else ""
    basis = [1, image, path.rpartition(".")[2], hashlib.sha256(content).hexdigest(), counts]
    return hashlib.sha256(json.dumps(basis).encode()).hexdigest()[:32]


def leads_elsewhere(path: str, text: str) -> bool:
    """Whether a requirements file may lead to other files of its folder."""
    if path.endswith(".toml"):
        return "[tool.uv" in text
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return any(
        (line.startswith("-") and not _ALONE.match(line))
        or line[:1] in (".", "/")
        or "file:" in line
        for line in lines
    ) or any("://" not in line and re.search(r"@\s*[./]|\.(whl|gz|zip)\b", line) for line in lines)

"""What may stand in a job's image, command, environment and addresses.

Each function reads one value and returns it, or raises `Refused`.
"""

import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from headway.model.image import GIVE_IMAGE, is_image
from headway.model.job_fields import FieldKind, Refused, below, checked_text, each, pattern
from headway.model.pattern import MAX_PATTERN, compile_pattern
from headway.model.volume import VOLUME_NAME
from headway.units import KIB, format_size

_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_RESERVED_ENV = re.compile(
    r"(__prefect_.*|NVIDIA_.*|CUDA_VISIBLE_DEVICES|LD_.*|DOCKER_.*|PREFECT_.*|HEADWAY_.*|PATH|HOME"
    r"|MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE|LOCAL_RANK|NODE_RANK|LOCAL_WORLD_SIZE)"
)
# TOKENIZERS_PARALLELISM and MAX_TOKENS are no secrets: "token" counts as a word only.
_SECRET_KEY = re.compile(
    r"(?i).*(secret|passw(or)?d|passphrase|credential|private_?key|api_?key|access_?key"
    r"|(?<![a-z])(token|pwd)(?![a-z])).*"
)
_PATH_KEY = re.compile(r"(?i).*_(file|path|dir)")
SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20}"
    r"|\bgithub_pat_|\bhf_[A-Za-z0-9]{20}|\bxox[abprs]-|\bsk-[A-Za-z0-9-]{20}"
    r"|://[^/\s:@]*:[^/\s@]+@"
)
_BLOCK = pattern(
    r"[a-z0-9][a-z0-9-]{0,62}",
    "give the name of a Prefect Secret block: lower-case letters, digits, dashes",
    limit=63,
)

MAX_ENV_CHARACTERS = 32_768
MAX_COMMAND_CHARACTERS = 1 << 20
"""Of all arguments together: the kernel takes no more than about 2 MiB."""
MAX_CONFIG_DEPTH = 16
MAX_CONFIG_BYTES = 64 * KIB


def read_image(value: object) -> str:
    """A container image: registry, repository, tag, digest; empty for none."""
    if isinstance(value, str) and (not value or is_image(value)):
        return value
    lower = value.lower() if isinstance(value, str) else ""
    if is_image(lower):
        raise Refused(f"write registry and repository in lower case, such as {lower[:80]}")
    raise Refused(GIVE_IMAGE)


def read_python(value: object) -> str:
    """A version of Python, such as 3.11; 3 is the newest one; empty for none."""
    # As it was written, where that is known: 3.10 and 3.1 are one number.
    text = value if isinstance(value, str) else getattr(value, "text", None)
    if value == 3 and not isinstance(value, bool):
        text = "3"
    if not isinstance(text, str) or (text and _PYTHON.fullmatch(text) is None):
        raise Refused('give a version in quotes, such as "3.11"')
    return text


_PYTHON = re.compile(r"3(\.[0-9]{1,2})?")


# --- command ---


def read_command(value: object) -> list[str]:
    """A program and its arguments, one an item; never a line for a shell."""
    if isinstance(value, str):
        raise Refused(f"give a list, one argument an item, such as {_as_list(value)}")
    command: list[str] = _ARGUMENTS.read(value)
    program = command[0]
    if not program or program.startswith("-") or set(program) & set(" \t\n;|&<>$`"):
        allowed = "give the program alone as the first item, such as python; no shell reads it"
        raise Refused(allowed, 0)
    if sum(map(len, command)) > MAX_COMMAND_CHARACTERS:
        raise Refused(f"give at most {MAX_COMMAND_CHARACTERS:,} characters in all")
    return command


def read_argument(value: object) -> str:
    """One argument of a command; it may have several lines (``python -c …``)."""
    text = checked_text(value, limit=32_768, keep="\n\t")
    if SECRET_TEXT.search(text):
        raise Refused(
            "it looks like a secret; name a Prefect Secret block in secrets, and read its variable",
            hidden=True,
        )
    return text


_ARGUMENTS = each(
    FieldKind(read_argument, {"type": "string"}), example='["python", "train.py"]', low=1, high=1000
)


def _as_list(line: str) -> str:
    """*line* as the list its author meant, short enough for a message."""
    try:
        words = shlex.split(line[:200])
    except ValueError:
        words = []
    likely = json.dumps(words)
    return likely if words and len(likely) <= 80 else '["python", "train.py"]'


# --- environment ---


def read_environment(value: object) -> dict[str, str]:
    """Variables with plain values: nothing that is headway's to set, nothing secret."""
    environment = {}
    for key, text in _entries(value, "LEARNING_RATE: '0.1'").items():
        with below(key, hidden=may_be_secret(key, text)):
            environment[key] = _variable(key, text)
    return environment


def _variable(key: str, text: object) -> str:
    check_env_key(key)
    if isinstance(text, bool):
        raise Refused('give text in quotes: "true", "True", "1" and "yes" differ to a program')
    if isinstance(text, int | float) and math.isfinite(text):
        # As it was written, where that is known: 3.10 and 3.1 are one number.
        text = str(getattr(text, "text", text))
    if not isinstance(text, str):
        raise Refused("give text; put it in quotes")
    if _secret(key, text):
        raise Refused("it looks like a secret; name a Prefect Secret block in secrets instead")
    if "\n" in text or "\r" in text:
        raise Refused("give one line")
    return checked_text(text, limit=MAX_ENV_CHARACTERS, keep="\t")


def _secret(key: str, text: str) -> bool:
    named = _SECRET_KEY.fullmatch(key) and not _PATH_KEY.fullmatch(key)
    return bool(text and named) or SECRET_TEXT.search(text) is not None


def may_be_secret(key: str, value: object) -> bool:
    """Should a message about *key* keep *value* to itself? Several lines may be a private key."""
    if isinstance(value, str):
        return _secret(key, value) or "\n" in value
    return _SECRET_KEY.fullmatch(key) is not None


def read_config(value: object) -> dict[str, Any]:
    """What a program is told, however nested, as plain data that JSON can hold."""
    if not isinstance(value, Mapping):
        raise Refused("give keys with values, such as {trainer: {lr: 0.1}}")
    config: dict[str, Any] = _config_value(value, MAX_CONFIG_DEPTH)
    length = len(json.dumps(config))
    if length > MAX_CONFIG_BYTES:
        most = f"give at most {format_size(MAX_CONFIG_BYTES)} as JSON, not {format_size(length)}"
        raise Refused(f"{most}; a file of the folder of workdir may be larger")
    return config


def _config_value(value: object, depth: int) -> Any:
    if isinstance(value, Mapping | list | tuple) and not depth:
        raise Refused(f"nest at most {MAX_CONFIG_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return dict(_config_entry(key, inner, depth) for key, inner in value.items())
    if isinstance(value, list | tuple):
        items = []
        for position, inner in enumerate(value):
            with below(position):
                items.append(_config_value(inner, depth - 1))
        return items
    if isinstance(value, str):
        return read_argument(value)
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise Refused("give text, a number, true, false, a list or keys with values")


def _config_entry(key: object, inner: object, depth: int) -> tuple[str, Any]:
    secret = isinstance(inner, str) and _SECRET_KEY.fullmatch(str(key)) is not None
    secret = secret and "token" not in str(key).lower()  # pad_token: a word of a language model
    with below(str(key)[:200], hidden=secret):
        name = checked_text(key, limit=200)
        if name.startswith("__prefect_"):
            raise Refused("give another name: Prefect puts a value of its own there")
        if secret:
            raise Refused("it looks like a secret; name a Prefect Secret block in secrets instead")
        return name, _config_value(inner, depth - 1)


def read_secrets(value: object) -> dict[str, str]:
    """Variable name → name of the Prefect Secret block that has its value."""
    blocks = {}
    for key, block in _entries(value, "HF_TOKEN: team-hf-token").items():
        with below(key, hidden=True):  # what stands here by mistake may be the secret itself
            check_env_key(key)
            blocks[key] = _BLOCK.read(block)
    return blocks


def _entries(value: object, example: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or len(value) > 1000:
        raise Refused(f"give at most 1000 keys with values, such as {example}")
    if not all(isinstance(key, str) for key in value):
        raise Refused("give names that are text")
    return value


def check_env_key(key: str) -> None:
    """Raise `Refused`, a `ValueError`, unless *key* may be set in a container."""
    if _ENV_KEY.fullmatch(key) is None:
        raise Refused("give a name of ASCII letters, digits and underscores")
    if _RESERVED_ENV.fullmatch(key):
        raise Refused("this variable is headway's to set; leave it out")


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
ENVIRONMENT = FieldKind(read_environment, _TEXTS)
SECRETS = FieldKind(read_secrets, _TEXTS)
CONFIG = FieldKind(read_config, {"type": "object"})
IMAGE = FieldKind(read_image, {"type": "string", "maxLength": 255})
PYTHON = FieldKind(read_python, {"type": "string", "maxLength": 4})
COMMAND = FieldKind(read_command, {"type": "array", "items": {"type": "string"}, "minItems": 1})


def read_output_pattern(value: object) -> str:
    """A pattern of files that are kept."""
    text = checked_text(value, limit=200)
    if not text or text[0] in "/~" or "\\" in text or ".." in text.split("/"):
        raise Refused('give a pattern below the working directory, such as "*.pt" or "plots/**"')
    return text


OUTPUT = FieldKind(read_output_pattern, {"type": "string", "minLength": 1, "maxLength": 200})


def read_workdir(value: object) -> str:
    """A folder on the machine of whoever submits the job; empty for none."""
    return checked_text(value, limit=1024)


WORKDIR = FieldKind(read_workdir, {"type": "string", "maxLength": 1024})


def read_requirements(value: object) -> str:
    """A file of the folder that is sent along; empty for none."""
    text = checked_text(value, limit=200)
    parts = text.split("/")
    if text and (not _REQUIREMENTS.fullmatch(text) or {"", ".", ".."} & set(parts)):
        raise Refused("give a file of the folder of workdir, such as requirements.txt")
    return text


_REQUIREMENTS = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._/-]*\.(txt|in|toml)")
REQUIREMENTS = FieldKind(read_requirements, {"type": "string", "maxLength": 200})


def read_progress(value: object) -> str:
    """A pattern for progress lines that RE2 can compile."""
    text = checked_text(value, limit=MAX_PATTERN)
    try:
        compile_pattern(text)
    except ValueError as error:
        raise Refused(str(error)) from None
    return text


PROGRESS = FieldKind(read_progress, {"type": "string", "maxLength": MAX_PATTERN})
VOLUME = pattern(
    VOLUME_NAME, "give the name of a volume that the operator has set, such as models", limit=40
)
NOTIFIER = pattern(
    r"[a-z0-9-]{1,100}/[a-z0-9-]{1,100}",
    "give type and name of a notification block, such as slack-webhook/vision",
    limit=201,
)

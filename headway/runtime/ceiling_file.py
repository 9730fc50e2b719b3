"""Reads the ceiling of this node: a file that only root can have written."""

import os
import stat
from pathlib import Path

from pydantic import ValidationError

from headway.errors import InvalidInput
from headway.model.ceiling import Ceiling
from headway.model.yaml_document import read_document
from headway.runtime.errors import CeilingUnsafe

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_ceiling(path: Path, *, required: bool) -> Ceiling | None:
    """The ceiling in *path*; None where there is no such file and none is *required*.

    Raises:
        CeilingUnsafe: Somebody other than root could have written it, or it cannot be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if required:
            raise CeilingUnsafe(str(path), "it is not there") from None
        return None
    except OSError as error:
        raise CeilingUnsafe(str(path), error.strerror or str(error)) from error
    with os.fdopen(file, "rb") as opened:
        _refuse_others(path, os.fstat(opened.fileno()))
        for folder in path.absolute().parents:
            _refuse_others(folder, folder.stat())
        text = opened.read()
    try:
        values = read_document(text, str(path)).values
        return Ceiling.model_validate({**(values or {}), "source": f"the ceiling {path}"})
    except InvalidInput as error:
        raise CeilingUnsafe(str(path), str(error)) from error
    except (ValidationError, TypeError) as error:
        why = error.errors()[0] if isinstance(error, ValidationError) else None
        words = f"{'.'.join(map(str, why['loc']))}: {why['msg']}" if why else "it is no mapping"
        raise CeilingUnsafe(str(path), words) from error


def _refuse_others(path: Path, found: os.stat_result) -> None:
    if found.st_uid != 0:
        raise CeilingUnsafe(str(path), f"it belongs to uid {found.st_uid}, not to root")
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & _OTHERS_WRITE and not sticky:
        raise CeilingUnsafe(str(path), "others than root may write to it")

"""The flow that the fork server's tests and benchmarks run."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from prefect import flow
from prefect._internal.control_listener import get_intent
from prefect.runtime import flow_run


@flow(log_prints=True)
def probe(report: str, seconds: float = 0.0, stubborn: bool = False, fail: bool = False) -> None:
    """Write what a fresh process must have to *report*, then sleep."""
    began = time.time()
    path = Path(report)
    note(
        path,
        event="body",
        at=began,
        pid=os.getpid(),
        session=os.getsid(0),
        cwd=str(Path.cwd()),
        marker=os.environ.get("PROBE_MARKER"),
        flow_run=flow_run.id,
        sigint=signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        server_settings=os.environ.get("SERVER_ONLY"),
        api_key_level=os.environ.get("PREFECT_LOGGING_LEVEL"),
        level=_level(),
        code=getattr(sys.modules.get("site_code"), "VERSION", None) or _code(),
    )
    print(f"probe says hello from {os.getpid()}")
    if fail:
        raise ValueError("told to fail")
    try:
        if stubborn:
            signal.signal(signal.SIGTERM, lambda *_: note(path, event="ignored"))
        time.sleep(seconds)
        note(path, event="slept")
    finally:
        note(path, event="finally", intent=get_intent(), threads=threading.active_count())


def note(path: Path, **fields: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(fields) + "\n")


def _level() -> str:
    from prefect.settings import get_current_settings

    return get_current_settings().logging.level


def _code() -> str | None:
    try:
        import site_code
    except ImportError:
        return None
    return str(site_code.VERSION)

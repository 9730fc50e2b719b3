"""Calls the function that lies beside this file, and keeps what it returns or raises.

Sent along with each call of `headway.Executor`; it needs Python 3.8 and what is sent beside it.
"""

import os
import pickle
import sys
import traceback
from pathlib import Path

import cloudpickle

CALL, RESULT = "call.pkl", "headway-result.pkl"


def main() -> int:
    """Call it; 0 if it returned, 1 if it raised."""
    result, status = Path(os.environ["HEADWAY_OUTPUTS"], RESULT), 0
    if result.exists():
        result.unlink()  # an earlier attempt's
    try:
        call = Path(__file__).with_name(CALL).read_bytes()
        function, args, kwargs = pickle.loads(call)  # noqa: S301 - it was sent with this file
        content = cloudpickle.dumps((function(*args, **kwargs), None, ""))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the caller's
        status, trace = 1, traceback.format_exc()
        sys.stderr.write(trace)
        try:
            content = cloudpickle.dumps((None, error, trace))
            pickle.loads(content)  # noqa: S301 - whether it can be read
        except Exception:  # noqa: BLE001 - not every error can travel; its words can
            content = cloudpickle.dumps((None, RuntimeError(repr(error)), trace))
    part = result.with_suffix(".part")
    part.write_bytes(content)
    part.replace(result)
    return status


if __name__ == "__main__":
    sys.exit(main())

"""The process in which an estimator that was brought learns and predicts. Run as a module.

    python -P -m headway.node.brought_child SOCKET

It imports scikit-learn as headway's user, then becomes another for good, and only then imports
what was brought: with no credentials, no network where that can be taken away, and within limits.
"""

import codecs
import ctypes
import json
import resource
import sys
import time
from importlib.metadata import entry_points
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from headway.estimate.candidates import candidates, quietly
from headway.estimate.duration.time_model import SPAN
from headway.estimate.winners import GROUP, kept
from headway.staging.child import become

_CLONE_NEWNET = 0x40000000
_MOST_PREDICT_S = 2.0
"""Of processor time, of all rows that it has learnt from: a thousand at most."""
_MOST_BYTES, _MOST_CPU_S, _MOST_FILES = 4 * 2**30, 120, 256


def main(parent: Connection) -> None:
    """Answer one question: what is said of rows held out, or else what was learnt."""
    asked = json.loads(parent.recv_bytes())
    # What is imported late must be while headway's own files can surely be read.
    codecs.lookup("idna")
    kept(candidates()["physics"])
    _limit(asked["user"])
    try:
        with quietly():
            parent.send_bytes(_answer(asked))
    except Exception as error:  # noqa: BLE001 - whatever it raises is told, and it takes no part
        parent.send_bytes(f"{type(error).__name__}: {error}"[:300].encode())


def _limit(user: list[int] | None) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).unshare(_CLONE_NEWNET)  # only root may; others keep their network
    limits = {
        resource.RLIMIT_AS: _MOST_BYTES,
        resource.RLIMIT_CPU: _MOST_CPU_S,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _MOST_FILES,
        resource.RLIMIT_NPROC: 0,  # nothing of it outlives it; nor does it start threads
    }
    for which, most in limits.items():
        resource.setrlimit(which, (most, most))
    become(None if user is None else (user[0], user[1]))


def _answer(asked: dict[str, Any]) -> bytes:
    (point,) = entry_points(group=GROUP, name=asked["name"])
    estimator = point.load()()
    X, seconds = pd.DataFrame(asked["rows"]), np.array(asked["seconds"])
    X = X.astype({name: "float64" for name in X if X[name].map(_is_number).all()})
    if "splits" not in asked:
        learnt = kept(estimator.fit(X, seconds))
        before_s = time.process_time()
        estimator.predict_quantiles(X, SPAN)
        # Once it has won, the gateway asks it, and waits for it.
        if (took_s := time.process_time() - before_s) > _MOST_PREDICT_S:
            raise ValueError(f"it takes {took_s:.1f} s to predict {len(X)} rows")
        return learnt
    said = []
    for seen, held in asked["splits"]:
        fitted = clone(estimator).fit(X.iloc[seen], seconds[seen])
        said.append(np.asarray(fitted.predict_quantiles(X.iloc[held], SPAN)).tolist())
    return json.dumps(said).encode()


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))

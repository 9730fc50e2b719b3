"""Estimators that others have brought, asked in a process without rights and within limits.

An operator installs a package with an entry point of the group `headway.estimators`, which names a
function without arguments that makes an estimator: `fit(X, y)`, `predict_quantiles(X, q)`. Only
the child imports it (`brought_child`), as the user of the operators' own programs. It is told rows
and seconds, and no names of people; what it answers is numbers, which are checked.
"""

import json
import logging
import re
import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headway.estimate.candidates import candidates
from headway.estimate.winners import GROUP, LARGEST_BYTES
from headway.staging.reader import started_child

log = logging.getLogger(__name__)

WITHIN_S = 120.0
"""An estimator that takes longer for all its fits of one tournament takes no part."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_Floats = NDArray[np.float64]
_Split = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, slots=True)
class BroughtEstimators:
    """Port `Brought` of the tournament."""

    user: tuple[int, int] | None
    """Who the child becomes; this process's own user when None, where that is not root."""
    within_s: float = WITHIN_S

    def names(self) -> Collection[str]:
        """Of all entry points whose names are short, plain, and none of headway's own."""
        found = {point.name for point in entry_points(group=GROUP)} - candidates().keys()
        return sorted(name for name in found if _NAME.fullmatch(name))

    def said(
        self, name: str, X: pd.DataFrame, seconds: _Floats, splits: Sequence[_Split]
    ) -> _Floats | None:
        """What it says of the rows that each split holds out, shape (splits, n, 3)."""
        parts = [[part.tolist() for part in split] for split in splits]
        answer = self._asked({"name": name, **_table(X, seconds), "splits": parts})
        try:
            told_of = json.loads(answer)
            found = np.full((len(splits), len(X), 3), np.nan)
            for number, (_, held) in enumerate(splits):
                told = np.array(told_of[number], dtype=np.float64)
                if not (np.isfinite(told).all() and (told > 0).all()):
                    raise ValueError("a time that is none")
                found[number, held] = np.sort(told.reshape(len(held), 3), axis=1)
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            log.warning("estimator %s takes no part tonight: %s", name, _short(answer, error))
            return None
        return found

    def learn(self, name: str, X: pd.DataFrame, seconds: _Floats) -> bytes | None:
        """What it has learnt, without code."""
        answer = self._asked({"name": name, **_table(X, seconds)})
        if not answer.startswith(b"PK"):
            log.warning("estimator %s has learnt nothing: %s", name, _short(answer, None))
            return None
        return answer

    def _asked(self, question: dict[str, Any]) -> bytes:
        """The answer of a child of its own; what went wrong, as text, where there is none."""
        with ExitStack() as stack:
            try:
                end, kill = stack.enter_context(started_child("headway.node.brought_child"))
            except OSError as error:
                return f"it could not be started: {error}".encode()
            late = threading.Timer(self.within_s, kill)
            late.start()
            stack.callback(late.cancel)
            try:
                end.send_bytes(json.dumps({**question, "user": self.user}).encode())
                return end.recv_bytes(LARGEST_BYTES)
            except (EOFError, OSError):
                return b"it took too long or too much memory, or could not be started"


def _table(X: pd.DataFrame, seconds: _Floats) -> dict[str, Any]:
    rows = X.drop(columns="team", errors="ignore").astype(object).where(X.notna(), None)
    return {"rows": rows.to_dict("list"), "seconds": seconds.tolist()}


def _short(answer: bytes, error: Exception | None) -> str:
    said = answer[:300].decode(errors="replace")
    return f"{error}: {said}" if error else said

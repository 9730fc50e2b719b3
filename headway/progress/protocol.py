"""headway's own JSON line, and NVIDIA's DLLogger (JSON and text)."""

import json
import re
from collections.abc import Iterator

import orjson

from headway.progress.layout import ByShape, Places
from headway.progress.metrics import COUNT, Number, numbers_in
from headway.progress.seen import MAX_COUNT, Seen, count, finite

_DECODER = json.JSONDecoder()


def read_headway(line: str, _shape: bytes) -> Seen | None:
    """``{"headway": {"iteration": 10, "epoch": 0.5, "total": 100, "metrics": {…}}}``.

    The object may stand after a prefix that a launcher or logger added.
    """
    if '"headway"' not in line:
        return None
    start = 0 if line.startswith('{"headway"') else line.find("{")
    while start >= 0 and not line.startswith('{"headway"', start):
        start = line.find("{", start + 1) if start < 256 else -1
    said = _object(line[start:] if start >= 0 else line).get("headway")
    if not isinstance(said, dict):
        return None
    metrics = said.get("metrics")
    seen = Seen(
        finite(metrics.items()) if isinstance(metrics, dict) else {},
        iteration=count(said.get("iteration")),
        total=count(said.get("total")) or None,
        epoch_done=_epochs(said.get("epoch")),
    )
    if seen.iteration is None and seen.total is not None:
        return seen._replace(total=None, epochs=seen.total)
    return seen


def _epochs(value: object) -> float | None:
    """*value* as a number of epochs that can be believed, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MAX_COUNT else None


def _object(text: str) -> dict[str, object]:
    """The JSON object *text* begins with, or an empty one."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        # NaN, or words behind the object.
        return _lenient_object(text)
    return value if isinstance(value, dict) else {}


def _lenient_object(text: str) -> dict[str, object]:
    try:
        value, _end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_DLL_STEP = re.compile(
    r"\bDLL [^{]{0,60}?- (?:\("
    + COUNT
    + r"(?:, "
    + COUNT
    + r")?,?\)|(?:(?:Training )?Epoch: "
    + COUNT
    + r" {1,4})?(?:(?:Training )?(?:Iteration|Step): "
    + COUNT
    + r")?)(?P<rest>.*)",
    re.ASCII,
)
_DLL_PAIR = re.compile(
    r"([A-Za-z_][\w.@/-]{0,63}+) : ([-+]?[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,5})?)",
    re.ASCII,
)


def _dll_numbers(text: str) -> Iterator[Number]:
    for match in _DLL_PAIR.finditer(text):
        yield match.span(1), *match.span(2)


def _dll_places(line: str) -> Places | None:
    match = _DLL_STEP.search(line)
    if match is None:
        return None
    numbers = numbers_in(line, match.start("rest"), find=_dll_numbers)
    first = 1 if match[1] else 3  # "(0, 12)" or "Epoch: 0 Iteration: 12"
    return Places({"epoch": match.span(first), "step": match.span(first + 1)}, numbers)


class DLLogger:
    """NVIDIA DeepLearningExamples: ``DLLL {json}`` and ``DLL time - Epoch: 0 Iteration: 10 …``."""

    def __init__(self) -> None:
        self._text = ByShape(_dll_places)
        self._epochs: int | None = None
        self._total: int | None = None

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        at = line.find("DLLL {")
        if at >= 0:
            return self._json(_object(line[at + 5 :]))
        said = self._text(line, shape)
        if said is None:
            return None
        if "PARAMETER" in line:
            self._learn(said.metrics)
            return Seen({})
        if (said.epoch is None and said.step is None) or "Validation " in line:
            return Seen({})
        return self._seen(said.epoch, said.step, said.metrics)

    def _json(self, said: dict[str, object]) -> Seen | None:
        data = said.get("data")
        if not isinstance(data, dict):
            return None
        values = finite(data.items())
        step = said.get("step")
        if step == "PARAMETER":
            self._learn(values)
            return Seen({})
        if isinstance(step, int):
            return self._seen(None, count(step), values)
        if not isinstance(step, list) or not 1 <= len(step) <= 2:
            return Seen({})  # the summary at the end, or an iteration of the validation
        return self._seen(count(step[0]), count(step[1]) if len(step) == 2 else None, values)

    def _learn(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            if name in {"epochs", "num_epochs", "max_epochs", "n_epochs"}:
                self._epochs = count(value) or None
            elif name in {"max_steps", "max_iter", "iterations", "train_steps", "num_train_steps"}:
                self._total = count(value) or None

    def _seen(self, epoch: int | None, step: int | None, values: dict[str, float]) -> Seen | None:
        if epoch is None:
            return None if step is None else Seen(values, iteration=step, total=self._total)
        if step is None:
            # A summary of the epoch: the steps have told the progress already.
            return Seen(values, epoch=epoch, epochs=self._epochs)
        return Seen(values, total=self._total, epoch=epoch, epochs=self._epochs, step=step)

"""What the lines of each framework look like, and what they say.

Every expression is matched by RE2, whose time is linear in the line's length:
no log can make it explode. A format sees one clean line (no escapes, no
carriage returns) and answers with what the line says, or None.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import re2

MAX_COUNT = 10**12
"""A larger count is no progress but noise, or forged."""
MAX_METRICS = 20


@dataclass(slots=True)
class Said:
    """What one line said; None where it said nothing of it."""

    epoch: int | None = None
    """Epochs begun, counted from 1."""
    epochs: int | None = None
    """Epochs there will be."""
    step: int | None = None
    """Steps done within the epoch where one is known, else in all."""
    steps: int | None = None
    """Steps there will be, likewise."""
    epoch_done: float | None = None
    """Epochs done, where the line gives them as a fraction."""
    metrics: dict[str, float] = field(default_factory=dict)


Format = Callable[[str], Said | None]


def headway(line: str) -> Said | None:
    """``{"headway": {"iteration": 3, "total": 10, "epoch": 1, "metrics": {"loss": 0.5}}}``."""
    if not line.startswith('{"headway"'):
        return None
    try:
        said = json.loads(line)["headway"]
        pairs = said.get("metrics", {}).items()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Said(
        step=_whole(said.get("iteration")),
        steps=_whole(said.get("total")),
        epoch_done=_finite(said.get("epoch")),
        metrics=_metrics(pairs),
    )


_KERAS_EPOCH = re2.compile(r"^Epoch (\d{1,9})/(\d{1,9})$")
_KERAS_STEP = re2.compile(r"^\s*(\d{1,12})/(\d{1,12}) (?:\[[=>.]+\]|[━ ]{3,}) ?-? ?(.*)$")


def keras(line: str) -> Said | None:
    """``Epoch 1/10``, then ``100/500 [===>…] - 3s 5ms/step - loss: 0.5``; Keras 2 and 3."""
    if match := _KERAS_EPOCH.match(line):
        return Said(epoch=int(match[1]), epochs=int(match[2]), step=0)
    if match := _KERAS_STEP.match(line):
        return Said(step=int(match[1]), steps=int(match[2]), metrics=_pairs(match[3]))
    return None


_BAR = re2.compile(
    r"^(?:(.*?):?\s+)?\d{1,3}%\|[^|]*\| *(\d{1,12})/(\d{1,12}) \[[^,\]]*(?:, *([^\]]*))?\](.*)$"
)
_LIGHTNING_EPOCH = re2.compile(r"^Epoch (\d{1,9})$")


def lightning(line: str) -> Said | None:
    """``Epoch 2:  45%|████▌     | 450/1000 [00:10<00:12, 45.00it/s, v_num=1, loss=0.5]``."""
    if not line.startswith("Epoch ") or not (match := _BAR.match(line)):
        return None
    if not (named := _LIGHTNING_EPOCH.match(match[1] or "")):
        return None
    return Said(
        epoch=int(named[1]) + 1,
        step=int(match[2]),
        steps=int(match[3]),
        metrics=_pairs(match[4] or ""),
    )


def tqdm(line: str) -> Said | None:
    """``training:  3%|▎  | 10/300 [00:01<00:29, 9.8it/s, loss=0.5]``."""
    if "%|" not in line or not (match := _BAR.match(line)):
        return None
    metrics = _pairs((match[4] or "") + " " + (match[5] or ""))
    return Said(step=int(match[2]), steps=int(match[3]), metrics=metrics)


_TRAINER = re2.compile(r"^\{'[a-z_]+': .*'epoch': '?[0-9.]+'?.*\}$")
_QUOTED_PAIR = re2.compile(r"'([A-Za-z0-9_./-]{1,60})': '?([-+0-9.eE]+|nan|inf)'?")


def trainer(line: str) -> Said | None:
    """Hugging Face Trainer: ``{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 1.0}``."""
    if not line.startswith("{'") or not _TRAINER.match(line):
        return None
    pairs = dict(_QUOTED_PAIR.findall(line))
    epoch = _finite(pairs.pop("epoch", None))
    return Said(epoch_done=epoch, metrics=_metrics(pairs.items()))


_BOOSTING = re2.compile(r"^\[(\d{1,12})\]\s+(\S.*:.*)$")
_LIGHTGBM_INFO = re2.compile(r"^\[LightGBM\] \[Info\] Iteration: ?(\d{1,12}), (.*)$")


def boosting(line: str) -> Said | None:
    """XGBoost, from 0: ``[12] train-logloss:0.3``; LightGBM, from 1: ``[12] valid auc: 0.9``."""
    if match := _BOOSTING.match(line):
        from_zero = 0 if "'s " in match[2] else 1
        return Said(step=int(match[1]) + from_zero, metrics=_pairs(match[2]))
    if match := _LIGHTGBM_INFO.match(line):
        return Said(step=int(match[1]), metrics=_pairs(match[2]))
    return None


_ITERATION = re2.compile(r"^(?:.*\] )?Iteration (\d{1,12})(?: \([^)]*\))?,? (.*=.*)$")
_HISTOGRAM = re2.compile(r"^\[(\d{1,9})/(\d{1,9})\] \d+ trees?, .*$")
_FOREST = re2.compile(r"^building tree (\d{1,9}) of (\d{1,9})$")
_GBM_ROW = re2.compile(r"^\s+(\d{1,9})\s+([-+0-9.eE]+)(?:\s+[-+0-9.eE]+)?\s+[0-9.]+[smh]$")


def scikit_learn(line: str) -> Said | None:
    """MLP ``Iteration 1, loss = 2.1`` (Caffe alike), boosting's table, forests' trees."""
    if match := _ITERATION.match(line):
        return Said(step=int(match[1]), metrics=_pairs(match[2]))
    if match := _HISTOGRAM.match(line):
        return Said(step=int(match[1]), steps=int(match[2]), metrics=_pairs(line))
    if match := _FOREST.match(line):
        return Said(step=int(match[1]), steps=int(match[2]))
    if match := _GBM_ROW.match(line):
        return Said(step=int(match[1]), metrics=_metrics([("train_loss", match[2])]))
    return None


_TRAIN_EPOCH = re2.compile(r"^Train Epoch: (\d{1,9}) \[\s*(\d{1,12})/(\d{1,12}) .*?\]\s*(.*)$")
_IMAGENET = re2.compile(r"^Epoch: ?\[(\d{1,9})\]\s*\[\s*(\d{1,12})/(\d{1,12})\]\s*(.*)$")
_IMAGENET_PAIR = re2.compile(r"([A-Za-z@0-9_]+):?\s+([-+0-9.eE]+) \(")


def pytorch(line: str) -> Said | None:
    """``Train Epoch: 1 [640/60000 (1%)] Loss: 2.3``; ``Epoch: [0][10/5005] Loss 6.9 (7.0)``."""
    if match := _TRAIN_EPOCH.match(line):
        epoch, rest = int(match[1]), match[4]
        return Said(epoch, step=int(match[2]), steps=int(match[3]), metrics=_pairs(rest))
    if match := _IMAGENET.match(line):
        metrics = _metrics(_IMAGENET_PAIR.findall(match[4]))
        epoch = int(match[1]) + 1
        return Said(epoch, step=int(match[2]), steps=int(match[3]), metrics=metrics)
    return None


_TENSORFLOW = re2.compile(r"^(?:INFO:tensorflow:|I\d+ .*\] )?(.*?),? ?step = (\d{1,12})\b.*$")


def tensorflow(line: str) -> Said | None:
    """Estimators: ``INFO:tensorflow:loss = 0.5, step = 100 (1.2 sec)``."""
    if "step = " not in line or not (match := _TENSORFLOW.match(line)):
        return None
    return Said(step=int(match[2]), metrics=_pairs(match[1]))


_DLL = re2.compile(r"^DLL .*? - (?:Epoch: (\d{1,9}) )?(?:Iteration: (\d{1,12}) )?\s*(.*)$")
_DLL_PAIR = re2.compile(r"([A-Za-z0-9_.]+) : ([-+0-9.eE]+|nan|inf)")


def dllogger(line: str) -> Said | None:
    """NVIDIA's DLLogger, as text and as ``DLLL {"step": [0, 10], "data": {…}}``."""
    if line.startswith("DLLL "):
        try:
            said = json.loads(line[5:])
            place, data = said["step"], said["data"]
            numbers = [_whole(part) for part in place] if isinstance(place, list) else []
            metrics = _metrics(data.items())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        epoch = numbers[0] + 1 if numbers and numbers[0] is not None else None
        return Said(epoch, step=numbers[1] if len(numbers) > 1 else None, metrics=metrics)
    if not line.startswith("DLL ") or not (match := _DLL.match(line)):
        return None
    if match[1] is None and match[2] is None:
        return None
    epoch = None if match[1] is None else int(match[1]) + 1
    step = None if match[2] is None else int(match[2])
    return Said(epoch, step=step, metrics=_metrics(_DLL_PAIR.findall(match[3])))


FORMATS: dict[str, Format] = {
    "headway": headway,
    "dllogger": dllogger,
    "lightning": lightning,
    "keras": keras,
    "huggingface": trainer,
    "pytorch": pytorch,
    "boosting": boosting,
    "scikit-learn": scikit_learn,
    "tensorflow": tensorflow,
    "tqdm": tqdm,
}
"""By name, the most specific first."""


def own(pattern: str) -> Format:
    """The format of a job's own expression with groups iteration, epoch, total or metrics.

    Raises:
        ValueError: RE2 cannot compile it.
    """
    try:
        expression = re2.compile(pattern)
    except re2.error as error:
        raise ValueError(f"{pattern[:60]!r} is no RE2 expression ({error})") from error

    def match_line(line: str) -> Said | None:
        match = expression.search(line)
        if match is None:
            return None
        found = {name: text for name, text in match.groupdict().items() if text is not None}
        return Said(
            step=_whole(found.pop("iteration", None)),
            epoch_done=_finite(found.pop("epoch", None)),
            steps=_whole(found.pop("total", None)),
            metrics=_metrics(found.items()),
        )

    return match_line


_PAIR = re2.compile(
    r"([A-Za-z][A-Za-z0-9_@./'-]{0,60}(?: [A-Za-z][A-Za-z_]{0,30})?) ?[:=] ?"
    r"([-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)(?:[\s,\]|;]|$)"
)


def _pairs(text: str) -> dict[str, float]:
    return _metrics(_PAIR.findall(text[:2000])) if text else {}


def _metrics(pairs: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in pairs:
        number = _finite(value)
        if number is not None and len(found) < MAX_METRICS:
            found[str(name)[:60]] = number
    return found


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    number = _finite(value)
    if number is None or not 0 <= number <= MAX_COUNT or number != int(number):
        return None
    return int(number)

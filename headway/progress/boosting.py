"""XGBoost, LightGBM and CatBoost."""

import re
from collections.abc import Iterator

from headway.progress.metrics import MetricReader
from headway.progress.seen import COUNT, NUMBER, Seen, finite, metrics_in

_XGBOOST = re.compile(
    r"\[" + COUNT + r"\](?:\t|\s{1,8})(?=[\w.]{1,40}-[\w@.-]{1,40}:[-+0-9n])", re.ASCII
)
_XGBOOST_VALUE = re.compile(r"([\w.]{1,40}+-[\w@.-]{1,40}+):(" + NUMBER + ")", re.ASCII)


def _xgboost_numbers(text: str) -> Iterator[tuple[int, int, int, int]]:
    for match in _XGBOOST_VALUE.finditer(text):
        yield *match.span(1), *match.span(2)


_xgboost_metrics = MetricReader(_xgboost_numbers)


def read_xgboost(line: str) -> Seen | None:
    r"""``[12]\ttrain-logloss:0.31\teval-auc:0.9``: rounds are counted from 0."""
    match = _XGBOOST.search(line)
    if match is None:
        return None
    metrics = _xgboost_metrics(line[match.end() :])
    return Seen(metrics, iteration=int(match[1]) + 1)


_LIGHTGBM = re.compile(
    r"(?:^|\s)\[" + COUNT + r"\]\s{1,8}(?=[\w ]{1,40}'s |cv_agg)"
    r"|\[LightGBM\] \[Info\] (?:Iteration:" + COUNT + r"|[0-9.]{1,20} seconds elapsed, finished "
    r"iteration " + COUNT + ")",
    re.ASCII,
)
_LIGHTGBM_VALUE = re.compile(
    r"([A-Za-z_][\w ]{0,40}'s [\w@]{1,40}|[A-Za-z_]\w{0,40} [\w@]{1,40})\s{0,2}: (" + NUMBER + ")",
    re.ASCII,
)


def read_lightgbm(line: str) -> Seen | None:
    r"""``[12]\tvalid_0's auc: 0.9`` (Python), ``[LightGBM] [Info] Iteration:12, …`` (command)."""
    match = _LIGHTGBM.search(line)
    if match is None:
        return None
    iteration = int(match[1] or match[2] or match[3])
    values = _LIGHTGBM_VALUE.findall(line, match.end())
    return Seen(finite((name.strip(), value) for name, value in values), iteration=iteration)


_CATBOOST = re.compile(r"^\s{0,8}" + COUNT + r":\s(?:learn|test|total): ", re.ASCII)


def read_catboost(line: str) -> Seen | None:
    r"""``12:\tlearn: 0.31\ttest: 0.33\tbest: 0.33 (12)\ttotal: 1.2s``: rounds from 0."""
    match = _CATBOOST.search(line)
    if match is None:
        return None
    metrics = metrics_in(line[match.start() :].split("total:", maxsplit=1)[0])
    return Seen(metrics, iteration=int(match[1]) + 1)

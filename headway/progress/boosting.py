"""XGBoost, LightGBM and CatBoost."""

import re
from collections.abc import Iterator

from headway.progress.layout import ByShape, Places
from headway.progress.metrics import COUNT, NUMBER, Number, numbers_in

_XGBOOST = re.compile(
    r"\[" + COUNT + r"\](?:\t|\s{1,8})(?=[\w.]{1,40}-[\w@.-]{1,40}:[-+0-9n])", re.ASCII
)
_XGBOOST_VALUE = re.compile(r"([\w.]{1,40}+-[\w@.-]{1,40}+):(" + NUMBER + ")", re.ASCII)


def _xgboost_numbers(text: str) -> Iterator[Number]:
    for match in _XGBOOST_VALUE.finditer(text):
        yield match.span(1), *match.span(2)


def _xgboost_places(line: str) -> Places | None:
    match = _XGBOOST.search(line)
    if match is None:
        return None
    numbers = numbers_in(line, match.end(), find=_xgboost_numbers)
    return Places({"iteration": match.span(1)}, numbers, from_zero=True)


def xgboost_reader() -> ByShape:
    r"""``[12]\ttrain-logloss:0.31\teval-auc:0.9``: rounds are counted from 0."""
    return ByShape(_xgboost_places)


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


def _lightgbm_places(line: str) -> Places | None:
    match = _LIGHTGBM.search(line)
    if match is None:
        return None
    iteration = next(match.span(group) for group in (1, 2, 3) if match[group])
    values = _LIGHTGBM_VALUE.finditer(line, match.end())
    numbers = [(value.span(1), *value.span(2)) for value in values]
    return Places({"iteration": iteration}, numbers, name=str.strip)


def lightgbm_reader() -> ByShape:
    r"""``[12]\tvalid_0's auc: 0.9`` (Python), ``[LightGBM] [Info] Iteration:12, …`` (command)."""
    return ByShape(_lightgbm_places)


_CATBOOST = re.compile(r"^\s{0,8}" + COUNT + r":\s{1,8}(?:learn|test|total): ", re.ASCII)


def _catboost_places(line: str) -> Places | None:
    match = _CATBOOST.search(line)
    if match is None:
        return None
    times = line.find("total:", match.start())
    numbers = numbers_in(line, match.start(), times if times >= 0 else None)
    return Places({"iteration": match.span(1)}, numbers, from_zero=True)


def catboost_reader() -> ByShape:
    r"""``12:\tlearn: 0.31\ttest: 0.33\tbest: 0.33 (12)\ttotal: 1.2s``: rounds from 0."""
    return ByShape(_catboost_places)

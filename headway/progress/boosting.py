"""XGBoost, LightGBM and CatBoost."""

import re
from collections.abc import Callable, Iterator

from headway.progress.layout import ByShape, by_patterns
from headway.progress.metrics import NUMBER, Number


def _finder(pattern: str) -> Callable[[str], Iterator[Number]]:
    """Finds metrics by a pattern of a name and a number."""
    compiled = re.compile(pattern, re.ASCII)

    def find(text: str) -> Iterator[Number]:
        for match in compiled.finditer(text):
            yield match.span(1), *match.span(2)

    return find


def xgboost_reader() -> ByShape:
    r"""``[12]\ttrain-logloss:0.31\teval-auc:0.9``: rounds are counted from 0."""
    return by_patterns(
        r"\[%iteration%\](?:\t|\s{1,8})(?=[\w.]{1,40}-[\w@.-]{1,40}:[-+0-9n])",
        find=_finder(r"([\w.]{1,40}+-[\w@.-]{1,40}+):(" + NUMBER + ")"),
        from_zero=True,
    )


def lightgbm_reader() -> ByShape:
    r"""``[12]\tvalid_0's auc: 0.9`` (Python), ``[LightGBM] [Info] Iteration:12, …`` (command)."""
    return by_patterns(
        r"(?:^|\s)\[%iteration%\]\s{1,8}(?=[\w ]{1,40}'s |cv_agg)",
        r"\[LightGBM\] \[Info\] Iteration:%iteration%",
        r"\[LightGBM\] \[Info\] [0-9.]{1,20} seconds elapsed, finished iteration %iteration%",
        find=_finder(
            r"([A-Za-z_][\w ]{0,40}'s [\w@]{1,40}|[A-Za-z_]\w{0,40} [\w@]{1,40})\s{0,2}: ("
            + NUMBER
            + ")"
        ),
        name=str.strip,
    )


def catboost_reader() -> ByShape:
    r"""``12:\tlearn: 0.31\ttest: 0.33\tbest: 0.33 (12)\ttotal: 1.2s``: rounds from 0."""
    return by_patterns(r"^\s{0,8}%iteration%:\s{1,8}(?:learn|test|total): ", from_zero=True)

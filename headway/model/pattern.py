"""A job's own regular expression for progress, compiled by an engine of linear time."""

from typing import Any

MAX_PATTERN = 1000
COUNT_GROUPS = ("iteration", "epoch", "total", "epochs")


def compile_pattern(pattern: str) -> Any:
    """*pattern* as RE2 compiles it.

    Raises:
        ValueError: It is no RE2 expression (look-around and back-references
            are none), is longer than 1,000 characters, or has neither an
            ``iteration`` nor an ``epoch`` group. The text says what to give.
    """
    # Only who has a pattern pays for the import.
    import re2  # noqa: PLC0415

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"give at most {MAX_PATTERN} characters")
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        cause = error.args[0] if error.args else error
        cause = cause.decode("utf-8", "replace") if isinstance(cause, bytes) else cause
        raise ValueError(f"give a regular expression RE2 can read ({cause})") from error
    if not {"iteration", "epoch"} & set(compiled.groupindex):
        raise ValueError("give a named group (?P<iteration>…) or (?P<epoch>…)")
    return compiled

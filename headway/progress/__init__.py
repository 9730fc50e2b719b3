"""Log lines become progress points.

A training program needs only `report`; headway itself uses `parser.LogParser`.
"""

from headway.progress.report import report

__all__ = ["report"]

"""Whether what headway says before a start comes true."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import GraphDrawStyle

from dashboards.panels import (
    BYTES,
    COUNT,
    FRACTION,
    SECONDS,
    TIME,
    columns,
    dashboard,
    lines,
    number,
)
from dashboards.queries import Prom, Sql

# The same runs that headway_estimate_runtime_error_ratio rests on: those that ended by themselves,
# and of which something was learnt.
JUDGED = """
    WITH judged AS (
      SELECT run_id, name, ended_at, prediction ->> 'basis' AS basis,
             (prediction ->> 'runtime_s')::float AS said_s,
             coalesce((prediction ->> 'runtime_low_s')::float, 0) AS low_s,
             coalesce((prediction ->> 'runtime_high_s')::float, 'infinity') AS high_s,
             (measurement ->> 'runtime_s')::float AS got_s,
             (prediction ->> 'gpu_peak_bytes')::float AS said_bytes,
             (measurement ->> 'gpu_peak_bytes')::float AS got_bytes
      FROM run
      WHERE state = 'ended' AND exit_kind = 'ok' AND $__timeFilter(ended_at)
        AND (prediction ->> 'runtime_s') IS NOT NULL AND (prediction ->> 'basis') NOT LIKE 'prior%'
        AND (measurement ->> 'runtime_s')::float > 0
    )
"""

NUMBERS = (
    number(
        "Mean error of the runtime",
        FRACTION,
        Prom("headway_estimate_runtime_error_ratio"),
        width=6,
        bad_from=0.25,
        text="Of the newest runs that ended by themselves; red from where EstimatorDrift fires.",
    ),
    number(
        "Within the 80 % interval",
        FRACTION,
        Prom("headway_estimate_interval_coverage_ratio"),
        width=6,
        bad_below=0.6,
    ),
    number("Runs judged", COUNT, Prom("headway_estimate_judged_runs"), width=6),
    number(
        "Traces",
        COUNT,
        Prom("headway_traces"),
        width=6,
        text="What estimators learn from.",
    ),
)

LINES = (
    lines(
        "Mean error of the runtime",
        FRACTION,
        Prom("headway_estimate_runtime_error_ratio", "mean error"),
        limit=0.25,
    ),
    lines(
        "Within the 80 % interval",
        FRACTION,
        Prom("headway_estimate_interval_coverage_ratio", "within the interval"),
        most=1,
        limit=0.6,
    ),
    lines(
        "Error of each run",
        FRACTION,
        Sql(f"""
            {JUDGED}
            SELECT ended_at AS time, basis AS metric, abs(said_s - got_s) / got_s AS value
            FROM judged ORDER BY 1
        """),
        width=24,
        style=GraphDrawStyle.POINTS,
        text="By what its prediction rested on.",
    ),
)

TABLES = (
    columns(
        "By what the prediction rested on",
        {
            "basis": "",
            "runs": COUNT,
            "mean error": FRACTION,
            "median error": FRACTION,
            "within the interval": FRACTION,
            "GPU memory: mean error": FRACTION,
        },
        Sql(f"""
            {JUDGED}
            SELECT basis, count(*) AS runs, avg(abs(said_s - got_s) / got_s) AS "mean error",
                   percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(said_s - got_s) / got_s)
                     AS "median error",
                   avg((got_s BETWEEN low_s AND high_s)::int)::float AS "within the interval",
                   avg(abs(said_bytes - got_bytes) / nullif(got_bytes, 0))
                     AS "GPU memory: mean error"
            FROM judged GROUP BY basis ORDER BY runs DESC
        """),
        width=14,
    ),
    columns(
        "Traces",
        {"source": "", "GPU": "", "exit": "", "traces": COUNT, "newest": TIME},
        Sql("""
            SELECT source, gpu_type AS "GPU", exit, count(*) AS traces,
                   max(recorded_at) AS newest
            FROM trace GROUP BY 1, 2, 3 ORDER BY traces DESC LIMIT 50
        """),
        width=10,
        text="All that estimators learn from, whatever the time range.",
    ),
    columns(
        "Worst predicted",
        {
            "run": "",
            "network": "",
            "ended": TIME,
            "error": FRACTION,
            "predicted": SECONDS,
            "measured": SECONDS,
            "GPU memory predicted": BYTES,
            "GPU memory measured": BYTES,
            "basis": "",
        },
        Sql(f"""
            {JUDGED}
            SELECT name AS run, t.network, ended_at AS ended, abs(said_s - got_s) / got_s AS error,
                   said_s AS predicted, got_s AS measured, said_bytes AS "GPU memory predicted",
                   got_bytes AS "GPU memory measured", basis
            FROM judged LEFT JOIN trace t USING (run_id) ORDER BY error DESC LIMIT 25
        """),
    ),
)


def build() -> Dashboard:
    """The dashboard."""
    text = "Whether predictions come true. Each run's error needs the ledger on PostgreSQL."
    title = "headway: estimator quality"
    return dashboard("headway-estimates", title, text, (*NUMBERS, *LINES, *TABLES)).time(
        "now-7d", "now"
    )

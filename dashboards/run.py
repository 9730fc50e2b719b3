"""One run, while it runs and after: progress, time left, memory, prediction and exit.

What the ledger tells needs it on PostgreSQL; the rest is there on any site.
"""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.common import BigValueTextMode

from dashboards.panels import (
    BYTES,
    COUNT,
    FRACTION,
    SECONDS,
    TIME,
    choice,
    columns,
    dashboard,
    lines,
    number,
)
from dashboards.queries import Prom, Sql

THIS = "${run:sqlstring}"  # quoted and escaped by Grafana


def _of(metric: str, legend: str = "") -> Prom:
    return Prom(f'headway_run_{metric}{{run_id="$run"}}', legend)


def _last(metric: str, legend: str = "") -> Prom:
    """The last that was seen, also of a run that has ended since."""
    return Prom(f'last_over_time(headway_run_{metric}{{run_id="$run"}}[$__range])', legend)


NUMBERS = (
    number("Done", FRACTION, _last("progress_ratio"), text="As last scraped."),
    number("Elapsed", SECONDS, _last("elapsed_seconds"), text="As last scraped."),
    number("Remaining", SECONDS, _of("remaining_seconds"), text="While it runs."),
    number(
        "Runtime predicted", SECONDS, _last("predicted_runtime_seconds"), text="Before the start."
    ),
    number(
        "Node",
        COUNT,
        _last("elapsed_seconds", "{{node}}"),
        shown=BigValueTextMode.NAME,
        width=8,
    ),
)

LINES = (
    lines("Remaining time", SECONDS, _of("remaining_seconds", "remaining")),
    lines(
        "Runtime: expected now, and predicted before the start",
        SECONDS,
        Prom(
            'headway_run_elapsed_seconds{run_id="$run"}'
            ' + headway_run_remaining_seconds{run_id="$run"}',
            "expected now",
        ),
        _of("predicted_runtime_seconds", "predicted"),
        _of("predicted_runtime_low_seconds", "predicted, low"),
        _of("predicted_runtime_high_seconds", "predicted, high"),
        text="Low and high: the 80 % interval.",
    ),
    lines(
        "What its log reports",
        COUNT,
        Sql(f"""
            SELECT r.started_at + p.t_s * interval '1 second' AS time, m.key AS metric,
                   m.value::float AS value
            FROM progress p JOIN run r USING (run_id, attempt),
                 LATERAL json_each_text(p.metrics) m
            WHERE p.run_id = {THIS}
              AND $__timeFilter(r.started_at + p.t_s * interval '1 second')
            ORDER BY 1
        """),
        least=None,
        text="Loss and other metrics of the newest attempt.",
    ),
    lines(
        "Time of an iteration",
        SECONDS,
        Sql(f"""
            SELECT time, seconds AS "one iteration" FROM (
              SELECT r.started_at + p.t_s * interval '1 second' AS time,
                     (p.t_s - lag(p.t_s) OVER w)
                     / nullif(p.iteration - lag(p.iteration) OVER w, 0) AS seconds
              FROM progress p JOIN run r USING (run_id, attempt)
              WHERE p.run_id = {THIS} WINDOW w AS (ORDER BY p.number)
            ) s
            WHERE seconds >= 0 AND $__timeFilter(time) ORDER BY 1
        """),
        text="Mean between two progress points of the newest attempt.",
    ),
    lines(
        "GPU memory of the run",
        BYTES,
        Sql(f"""
            SELECT t.at AS time, 'in use on ' || t.gpu AS metric,
                   (t.run_bytes ->> {THIS})::float AS value
            FROM telemetry t
            WHERE t.node IN (SELECT node FROM lease WHERE run_id = {THIS})
              AND t.period_s = CASE WHEN t.at > now() - interval '1 hour' THEN 1 ELSE 60 END
              AND (t.run_bytes ->> {THIS}) IS NOT NULL AND $__timeFilter(t.at)
            UNION ALL
            SELECT d.at, 'granted on ' || g.uuid, g.memory_bytes
            FROM lease l JOIN lease_gpu g USING (lease_id),
                 LATERAL (VALUES (l.granted_at), (coalesce(l.released_at, now()))) d (at)
            WHERE l.run_id = {THIS}
            ORDER BY 1
        """),
        width=24,
        text="By its processes, against what its lease grants. A week is kept.",
    ),
)

TABLES = (
    columns(
        "The run",
        {
            "name": "",
            "owner": "",
            "team": "",
            "state": "",
            "reason": "",
            "node": "",
            "attempt": COUNT,
            "submitted": TIME,
            "started": TIME,
            "ended": TIME,
            "exit": "",
            "message": "",
        },
        Sql(f"""
            SELECT name, owner, team, state, reason, node, attempt, submitted_at AS submitted,
                   started_at AS started, ended_at AS ended, exit_kind AS exit,
                   exit_message AS message
            FROM run WHERE run_id = {THIS}
        """),
        height=4,
    ),
    columns(
        "Predicted and measured",
        {
            "runtime predicted": SECONDS,
            "low": SECONDS,
            "high": SECONDS,
            "runtime measured": SECONDS,
            "host memory predicted": BYTES,
            "host memory measured": BYTES,
            "GPU memory predicted": BYTES,
            "GPU memory measured": BYTES,
            "basis": "",
        },
        Sql(f"""
            SELECT (prediction ->> 'runtime_s')::float AS "runtime predicted",
                   (prediction ->> 'runtime_low_s')::float AS low,
                   (prediction ->> 'runtime_high_s')::float AS high,
                   (measurement ->> 'runtime_s')::float AS "runtime measured",
                   (prediction ->> 'host_peak_bytes')::float AS "host memory predicted",
                   (measurement ->> 'host_peak_bytes')::float AS "host memory measured",
                   (prediction ->> 'gpu_peak_bytes')::float AS "GPU memory predicted",
                   (measurement ->> 'gpu_peak_bytes')::float AS "GPU memory measured",
                   prediction ->> 'basis' AS basis
            FROM run WHERE run_id = {THIS}
        """),
        height=4,
    ),
    columns(
        "Steps",
        {
            "attempt": COUNT,
            "step": "",
            "state": "",
            "started": TIME,
            "took": SECONDS,
            "message": "",
        },
        Sql(f"""
            SELECT attempt, name AS step, state, started_at AS started,
                   extract(epoch FROM coalesce(ended_at, now()) - started_at)::float AS took,
                   message
            FROM step WHERE run_id = {THIS} ORDER BY started_at
        """),
    ),
)


def build() -> Dashboard:
    """The dashboard."""
    run = choice(
        "run",
        "Run",
        "query_result(max_over_time(headway_run_elapsed_seconds[$__range]))",
        '/\\brun="(?<text>[^"]*)".*run_id="(?<value>[^"]*)"/',
    )
    text = "One run, while it runs and after. Tables and logs need the ledger on PostgreSQL."
    return dashboard("headway-run", "headway: run", text, (*NUMBERS, *LINES, *TABLES), run)

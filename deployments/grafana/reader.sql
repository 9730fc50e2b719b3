-- A role for Grafana that reads what the dashboards show: no token, no job, nothing to change.
-- Run it on the ledger's database as the owner of its tables, then set a password:
--   psql -f reader.sql "$LEDGER"   and   \password headway_grafana
CREATE ROLE headway_grafana LOGIN;
GRANT SELECT (
    run_id, name, owner, team, state, reason, node, attempt, submitted_at, started_at, ended_at,
    exit_kind, exit_message, prediction, measurement
) ON run TO headway_grafana;
GRANT SELECT (lease_id, run_id, node, granted_at, released_at) ON lease TO headway_grafana;
GRANT SELECT ON lease_gpu, step, progress, telemetry, trace TO headway_grafana;

"""Small changes, each of which breaks a promise, and the tests that find it.

What a change replaces must occur exactly once in its file: `tests/unit/test_seeded_bugs.py`
says which one has to follow when the code has changed.
"""

from typing import NamedTuple


class Bug(NamedTuple):
    """One change of the code."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Tests that are run with it; at least one must fail."""


_PROTOCOL = "tests/contract/test_protocol.py::"
_MODEL = f"{_PROTOCOL}test_the_ledger_follows_the_model"
_RACE = "tests/integration/test_ledger_race.py::test_one_of_many_gets_the_last_slot"
_FENCES = "tests/contract/test_fences.py::"
_LEDGER = "tests/contract/test_ledger.py::"
_KILLS = "tests/contract/test_ledger_faults.py::"
_WISHES = "tests/integration/test_janitor_wishes.py::"
_GUARD = "tests/unit/policy/test_guard.py::"
_LOOKOUT = "tests/integration/test_guard.py::"

BUGS = (
    Bug(
        "no lock on the node's row",
        "headway/ledger/lease_rows.py",
        "session.exec(query.with_for_update())}",
        "session.exec(query)}",
        (_RACE,),
    ),
    Bug(
        "writes compare no attempt",
        "headway/ledger/fences.py",
        '    if run.attempt != fence.attempt:\n        raise _lost(fence, f"the run is at',
        '    if not run.attempt:\n        raise _lost(fence, f"the run is at',
        (f"{_PROTOCOL}test_who_knows_the_attempt_before_ends_nothing_of_the_next",),
    ),
    Bug(
        "writes compare no token",
        "headway/ledger/fences.py",
        "if lease is not None and lease.token != fence.token:",
        "if lease is not None and not lease.token:",
        (_MODEL,),
    ),
    Bug(
        "a released lease still lets its holder write",
        "headway/ledger/fences.py",
        "if lease is None and fence.token:",
        "if lease is None and not fence.run_id:",
        (f"{_PROTOCOL}test_who_gave_its_claim_back_ends_nothing",),
    ),
    Bug(
        "a release compares no token",
        "headway/ledger/leases.py",
        "own = col(LeaseRow.attempt) == fence.attempt, col(LeaseRow.token) == fence.token",
        "own = (col(LeaseRow.attempt) > 0,)",
        (_MODEL,),
    ),
    Bug(
        "a release that releases nothing",
        "headway/ledger/leases.py",
        "release_all(session, LeaseRow.run_id == of_run)",
        'release_all(session, LeaseRow.run_id == "")',
        (f"{_LEDGER}test_a_port_is_free_again_after_the_release", _MODEL),
    ),
    Bug(
        "a requeue that is repeated is refused",
        "headway/ledger/runs.py",
        "    if requeued_before(session, run, fence):\n",
        "    if requeued_before(session, run, fence) and not run.attempt:\n",
        (_MODEL,),
    ),
    Bug(
        "a claim that is given back twice is refused",
        "headway/ledger/leases.py",
        "            if given_back_before(session, run, fence):\n",
        "            if given_back_before(session, run, fence) and not run.attempt:\n",
        (f"{_FENCES}test_what_is_written_twice_counts_once",),
    ),
    Bug(
        "an end that is repeated is refused",
        "headway/ledger/runs.py",
        "            if ended_before(session, run, fence):\n                return run.exit() or",
        "            if not run.attempt:\n                return run.exit() or",
        (_MODEL,),
    ),
    Bug(
        "a container begins without a lease",
        "headway/ledger/runs.py",
        "            run, lease = fenced_lease(session, fence)\n",
        "            run = run_row(session, fence.run_id, lock=True)\n"
        '            lease: Any = type("AnyLease", (), {"expires_at": now(session)})\n',
        (f"{_LEDGER}test_a_container_begins_only_under_its_lease", _MODEL),
    ),
    Bug(
        "the lease is released with the requeue, before the container is gone",
        "headway/ledger/runs.py",
        "            _next_attempt(session, run, exit_, measurement)\n"
        "            if demand_override",
        "            fenced_lease(session, fence)[1].released_at = now(session)\n"
        "            _next_attempt(session, run, exit_, measurement)\n"
        "            if demand_override",
        (_MODEL,),
    ),
    Bug(
        "no unique index on live leases",
        "headway/ledger/migrations/versions/0003_gangs.py",
        '        ["run_id", "gang_rank"],\n        unique=True,',
        '        ["run_id", "gang_rank"],\n        unique=False,',
        (
            f"{_LEDGER}test_the_tables_are_what_the_migrations_make",
            f"{_LEDGER}test_the_database_refuses_what_must_never_be",
        ),
    ),
    Bug(
        "a run whose last lease is live gets another one",
        "headway/ledger/admitting.py",
        "if run.state is not RunState.WAITING or leases_of(session, run.run_id):",
        "if run.state is not RunState.WAITING:",
        (f"{_LEDGER}test_a_requeued_run_is_not_admitted_before_its_last_attempt_is_cleaned_up",),
    ),
    Bug(
        "a grant is written in two transactions",
        "headway/ledger/leases.py",
        "            session.add_all(leases)\n            session.flush()\n",
        "            session.add_all(leases)\n            session.flush()\n"
        '            session.connection().exec_driver_sql("COMMIT")\n',
        (f"{_KILLS}test_a_claim_killed_at_any_moment_is_whole_or_not_there",),
    ),
    Bug(
        "expiry counts as a release",
        "headway/ledger/lease_rows.py",
        "query = select(LeaseRow).where(LIVE, among(LeaseRow.node, nodes))",
        "query = select(LeaseRow).where(\n"
        "        LIVE, among(LeaseRow.node, nodes), col(LeaseRow.expires_at) > now(session)\n"
        "    )",
        (f"{_LEDGER}test_an_expired_lease_still_counts",),
    ),
    Bug(
        "a flow process that takes a claim up leaves its deadline",
        "headway/ledger/leases.py",
        "leased(session, fence).start_by = None",
        "leased(session, fence)",
        (f"{_LEDGER}test_a_claim_has_a_deadline_until_a_flow_takes_it_up", _MODEL),
    ),
    Bug(
        "the deadline of a claim is ignored",
        "headway/ledger/lease_reads.py",
        "_unstarted(node).where(col(LeaseRow.start_by) < db_now())",
        "_unstarted(node).where(col(LeaseRow.start_by).is_(None))",
        (f"{_LEDGER}test_a_claim_has_a_deadline_until_a_flow_takes_it_up",),
    ),
    Bug(
        "a resize may shorten what the guard was told",
        "headway/ledger/leases.py",
        "max(lease.expires_at, moment + timedelta(seconds=ttl_s))",
        "moment + timedelta(seconds=ttl_s)",
        (f"{_LEDGER}test_resizing_never_shortens_what_the_guard_was_told",),
    ),
    Bug(
        "the guard has no margin",
        "headway/policy/guard.py",
        "return self.ttl_s - self.margin_s",
        "return self.ttl_s + self.margin_s",
        (f"{_GUARD}test_a_container_that_ignores_sigterm_is_dead_before_its_place_is_given_away",),
    ),
    Bug(
        "the guard lets go on what the ledger gave away",
        "headway/policy/guard.py",
        "if each.stale or (each.expires and left_s <= 0):",
        "if each.expires and left_s <= 0:",
        (f"{_GUARD}test_a_stale_container_is_killed_at_once",),
    ),
    Bug(
        "the guard counts no sleep of the machine",
        "headway/clock.py",
        "return time.clock_gettime(_BOOTTIME)",
        "return time.clock_gettime(time.CLOCK_MONOTONIC)",
        ("tests/unit/test_clock.py",),
    ),
    Bug(
        "a guard that is started anew begins to count anew",
        "headway/node/lookout.py",
        "self._notes = read_notes(self._state_dir)",
        "self._notes = replace(read_notes(self._state_dir), renewals={})",
        (f"{_LOOKOUT}test_a_guard_that_is_started_anew_goes_on_counting",),
    ),
    Bug(
        "a node is given away without waiting for its leases",
        "headway/ledger/nodes.py",
        "if row is None or (margin_s is not None and _held_s(session, name, margin_s) > 0):",
        "if row is None:",
        (f"{_LEDGER}test_a_node_is_given_away_only_a_margin_after_its_leases_expired",),
    ),
    Bug(
        "the leases of a node that is being removed are renewed",
        "headway/ledger/renewals.py",
        "return row.removed_at is not None or row.state is NodeState.LOST",
        "return row.removed_at is not None",
        ("tests/integration/test_node_wait.py::test_from_the_begin_on_its_guard_renews_nothing",),
    ),
    Bug(
        "a guard renews the lease of any attempt of the run",
        "headway/ledger/renewals.py",
        "and ((lease.run_id, lease.attempt) in containers or lease.run_id in flows)",
        "and (lease.run_id in {run_id for run_id, _ in containers} or lease.run_id in flows)",
        (f"{_LEDGER}test_a_guard_does_not_renew_what_a_later_attempt_holds",),
    ),
    Bug(
        "a second node takes the name of one that holds leases",
        "headway/ledger/nodes.py",
        "                _refuse_another(session, known, identity, boot_id)\n",
        "                pass\n",
        (f"{_LEDGER}test_a_name_is_its_nodes_while_it_reports_or_holds_leases",),
    ),
    Bug(
        "a worker that was replaced goes on reporting",
        "headway/ledger/nodes.py",
        "own = col(NodeRow.name) == name, col(NodeRow.worker_token) == token_digest(worker_token)",
        "own = (col(NodeRow.name) == name,)",
        (f"{_LEDGER}test_only_the_newest_worker_reports_for_a_node",),
    ),
    Bug(
        "files are renamed before they are on the disk",
        "headway/durable.py",
        "                os.fsync(file.fileno())\n",
        "                pass\n",
        ("tests/unit/test_durable.py",),
    ),
    Bug(
        "one bad record ends the reconciler's round",
        "headway/scheduler/reconciler.py",
        "except Exception:  # a supervisor's loop",
        "except HeadwayError:  # a supervisor's loop",
        (f"{_WISHES}test_a_run_that_breaks_the_reconciler_stops_no_other",),
    ),
    Bug(
        "a forced state goes by what the ledger said before",
        "headway/leader/agreement.py",
        "if not same(mending.run, run):",
        "if not run.run_id:",
        ("tests/unit/leader/test_agreement.py",),
    ),
    Bug(
        "a forced state goes over what a user did meanwhile",
        "headway/worker/pool.py",
        "if now.state is None or str(now.state.id) != seen_id:",
        "if now.state is None:",
        ("tests/unit/leader/test_agreement.py", "tests/unit/leader/test_wait_pages.py"),
    ),
    Bug(
        "why a run waits is written without asking the ledger",
        "headway/leader/wait_pages.py",
        "if await self._waits(str(run.id)) and run.state is not None:",
        "if run.state is not None:",
        ("tests/unit/leader/test_wait_pages.py",),
    ),
    Bug(
        "an end that Prefect tells otherwise counts as told",
        "headway/policy/agree.py",
        "if said.prefect in {PrefectView.MISSING, end_seen(said.exit_kind)}:",
        "if said.prefect in {*_UNWANTED, end_seen(said.exit_kind)}:",
        ("tests/unit/policy/test_agree.py",),
    ),
    Bug(
        "an end that nobody has told yet is retried",
        "headway/policy/agree.py",
        "if said.told and said.prefect is PrefectView.SCHEDULED and not said.is_rank:",
        "if said.prefect is PrefectView.SCHEDULED and not said.is_rank:",
        ("tests/unit/policy/test_agree.py",),
    ),
    Bug(
        "a place is released while its flow may make a container",
        "headway/policy/reconcile.py",
        "    if seen.flow is FlowProcess.NONE:\n        stop =",
        "    if seen.flow is not FlowProcess.ALIVE:\n        stop =",
        ("tests/unit/policy/test_reconcile.py",),
    ),
    Bug(
        "a round waits for the grace time of a container",
        "headway/node/stops.py",
        "        thread.start()\n",
        "        thread.start()\n        thread.join()\n",
        (f"{_WISHES}test_a_cancel_is_in_the_ledger_at_once_and_no_grace_time_holds_up_others",),
    ),
    Bug(
        "a claim whose start fails is kept",
        "headway/worker/gpu_node.py",
        "untaken = await anyio.to_thread.run_sync(self._grants.give_back, run_id)",
        "await anyio.sleep(0)",
        ("tests/unit/worker/test_submission.py",),
    ),
)

"""Liveness: the audit names every order that makes no progress without a known reason, and no other order."""

# ruff: noqa: S608 - only constants of this file are put into statements

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from supervision import conf
from supervision.audit import liveness
from supervision.incidents import lifecycle
from supervision.models import Run
from tests.engine import kit
from tests.support.history import rewrite

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def service(engine, monkeypatch):
    """Agent beta calls a service; alpha and gamma do not."""
    kit.only_agent_with_a_service(monkeypatch, "beta")


def unguarded() -> None:
    """Switch constraints and triggers off: the engine's code never writes these rows, so a test has to force them in."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")


def seed(name: str, count: int = 1, *, run: str = "Processing", agent: str = "alpha", step: str, more: str = "", **columns: str) -> None:
    """Write runs whose first step has these columns and whose newest event is an hour old."""
    first = kit.fetch("SELECT coalesce(max(id), 0) + 1 FROM supervision_run")[0][0]
    session, workflow, direction = (
        columns.get(name, other) for name, other in (("session", "NULL"), ("workflow", "'toy'"), ("direction", "'do'"))
    )
    kit.fetch(
        "INSERT INTO supervision_submission (public_id, workflow, payload, client, created_at, consumed_at)"
        " SELECT %(name)s || n, 'toy', '{}', 'shop', now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, %(count)s) n",
        {"name": name, "count": count},
    )
    kit.fetch(
        "INSERT INTO supervision_run (id, workflow, key, process_state, created_at, complete_by, session_key, direction)"
        " OVERRIDING SYSTEM VALUE"
        f" SELECT %(first)s + n - 1, {workflow}, %(name)s || n, %(run)s, now() - interval '1 h', now() + interval '1 day',"
        f" {session}, {direction}"
        " FROM generate_series(1, %(count)s) n",
        {"name": name, "first": first, "run": run, "count": count},
    )
    kit.fetch(
        "INSERT INTO supervision_stepevent (run_id, seq, to_state, actor, at)"
        " SELECT id, 1, 'Pending', 'me', now() - interval '1 h' FROM supervision_run WHERE id >= %(first)s",
        {"first": first},
    )
    values = {"process_state": "'Pending'"}
    values |= dict.fromkeys(("not_before", "turn_at", "complete_by", "locked_by", "started_at", "finished_at"), "NULL")
    values |= dict(part.split("=", 1) for part in step.split(";") if "=" in part)
    if step != "none":
        kit.fetch(
            "INSERT INTO supervision_stepstate (run_id, direction, position, name, agent, idempotency_key, process_state,"
            " not_before, turn_at,"
            f" complete_by, locked_by, started_at, finished_at, generation) SELECT id, 'do', 0, 'the-step', %(agent)s, 'k',"
            f" {values['process_state']}, {values['not_before']}, {values['turn_at']}, {values['complete_by']}, {values['locked_by']},"
            f" {values['started_at']},"
            f" {values['finished_at']}, 1"
            " FROM supervision_run WHERE id >= %(first)s",
            {"first": first, "agent": agent},
        )
    if more:
        kit.fetch(more, {"first": first})


PAUSED = (
    "INSERT INTO supervision_pause (scope, name, reason, paused_by, paused_at)"
    " VALUES ('agent', 'gamma', 'x', 'ada', now() - interval '9 h')"
)
DONE = "process_state='Processed';finished_at=now() - interval '1 h'"
DUE = "not_before=now() - interval '1 h';turn_at=now() - interval '1 h'"
RUNNING = "process_state='Processing';locked_by='me';started_at=now() - interval '1 h';complete_by=now() "
SERVED = "process_state='Processing';locked_by='me';started_at=now();complete_by=now() + interval '1 min'"
ALERT = (
    "INSERT INTO supervision_alert (run_id, position, direction, generation, kind, step, cause, incident_id, closed_at)"
    " SELECT r.id, 0, 'do', 1, 'error', 'the-step', 'step_error:x', i.id, {closed} FROM supervision_run r, supervision_incident i"
    " WHERE r.id >= %(first)s AND i.cause = 'step_error:x'"
)


def incident(cause: str, *, closed: bool = False) -> None:
    kit.fetch(
        "INSERT INTO supervision_incident (kind, cause, title, severity, resource, step, code, opened_at, closed_at, orders)"
        " SELECT split_part(%(cause)s, ':', 1), %(cause)s, 't', 'warning', '', '', '', now() - interval '2 h',"
        " CASE WHEN %(closed)s THEN now() END, 1",
        {"cause": cause, "closed": closed},
    )


def seed_stuck() -> set[str]:
    """Every known way in which an order can stand still without an incident."""
    incident("step_error:x", closed=True)
    seed("overdue", step=RUNNING + "- interval '30 min'")
    seed("never-due", run="Pending", step="process_state='Pending'")
    seed("no-alert", run="Error", step="process_state='Error'")
    seed("closed-alert", run="Error", step="process_state='Error'", more=ALERT.format(closed="now()"))
    seed("closed-incident", run="Error", step="process_state='Error'", more=ALERT.format(closed="NULL"))
    seed("no-undo", run="Compensating", direction="'undo'", step=DONE)
    seed("no-open-step", step=DONE)
    kit.fetch(
        "INSERT INTO supervision_submission (public_id, workflow, payload, created_at)"
        " VALUES ('unconsumed1', 'toy', '{}', now() - interval '1 h')"
    )
    seed("session-head", run="Pending", session="'s'", step="process_state='Pending'")
    seed("unknown-version", workflow="'gone'", agent="gone", step=DUE)
    seed("no-steps", step="none")
    seed("hook", step=DONE)
    kit.fetch("UPDATE supervision_run SET process_state = 'Processed', finished_at = now() WHERE key = 'hook1'")
    kit.fetch(
        "INSERT INTO supervision_notification (kind, run_id, payload, created_at) SELECT 'hook', id, %s, now() - interval '1 h'"
        " FROM supervision_run WHERE key = 'hook1'",
        [json.dumps({"workflow": "toy", "version": 1, "hook": "on_processed", "raised": True})],
    )
    seed("paused", agent="gamma", step=DUE)
    kit.fetch(PAUSED)
    seed("silent-outage", agent="beta", step=DUE)
    kit.fetch(
        "UPDATE supervision_resource SET breaker_state = 'open', opened_at = now() - interval '1 h';"
        "INSERT INTO supervision_closure (resource, began_at) VALUES ('the-service', now() - interval '1 h')"
    )
    seed("no-turn", step="not_before=now() - interval '1 h'")
    seed("for-years", step="not_before=now() + interval '8000 years';turn_at=now() - interval '1 h'")
    seed("unclaimed", step=DUE)
    kit.fetch(
        "INSERT INTO supervision_deadletter (source, body, reason, public_id, created_at)"
        " VALUES ('q', '', 'r', 'letter1', now() - interval '1 h')"
    )
    names = (
        "overdue never-due no-alert closed-alert closed-incident no-undo no-open-step unconsumed session-head unknown-version no-steps"
        " hook paused silent-outage no-turn for-years unclaimed letter"
    )
    return {f"{name}1" for name in names.split()}


def seed_healthy(each: int) -> None:
    """Write orders that run, that wait, or that failed, each with a known reason."""
    for cause in ("step_error:x", "outage:the-service", "unknown_version:gone:1", "pause_overrun:agent:gamma"):
        incident(cause)
    kit.fetch(
        "UPDATE supervision_resource SET breaker_state = 'open', opened_at = now() - interval '1 h';"
        "INSERT INTO supervision_closure (resource, began_at) VALUES ('the-service', now() - interval '1 h');"
        f"{PAUSED}"
    )
    seed("ok-running", each, step=RUNNING + "+ interval '1 min'")
    seed("ok-late", each, step=RUNNING + "- interval '1 min'")
    seed("ok-backing-off", each, step="not_before=now() + interval '4 min';turn_at=now()")
    seed("ok-outage", each, agent="beta", step=DUE)
    seed("ok-paused-long", each, agent="gamma", step=DUE)
    seed("ok-unknown-version", each, workflow="'gone'", agent="gone", step=DUE)
    seed("ok-error", each, run="Error", step="process_state='Error'", more=ALERT.format(closed="NULL"))
    seed("ok-acknowledged", each, run="Error", step="process_state='Error'", more=ALERT.format(closed="NULL"))
    kit.fetch("UPDATE supervision_alert SET acknowledged_at = now()")
    # The agent `delta` starts a step now and then; the other steps wait for their turn.
    seed("ok-served", agent="delta", step=SERVED + ";turn_at=now() - interval '2 h'")
    seed("ok-in-turn", each, agent="delta", step=DUE)
    seed("ok-head", 1, run="Pending", session="'busy'", agent="delta", step=DUE)
    seed("ok-in-session", each, run="Pending", session="'busy'", step="process_state='Pending'")
    seed("ok-paused", each, agent="epsilon", step=DUE)
    kit.fetch(
        "INSERT INTO supervision_pause (scope, name, reason, paused_by, paused_at, until) VALUES"
        " ('agent', 'epsilon', 'x', 'ada', now() - interval '9 h', now() + interval '1 h')"
    )
    seed("ok-fresh", each, agent="zeta", step=DUE)
    rewrite("UPDATE supervision_stepevent e SET at = now() FROM supervision_run r WHERE r.id = e.run_id AND r.key LIKE 'ok-fresh%%'", {})


def named() -> set[str]:
    return {found.order for found in liveness.stuck()}


def test_every_order_that_is_stuck_in_one_of_twelve_ways_is_named():
    unguarded()
    expected = seed_stuck()

    assert len(expected) >= 12
    assert named() == expected


def test_of_20_000_healthy_orders_none_is_named():
    unguarded()
    seed_healthy(1_700)
    kit.fetch("ANALYZE")
    assert Run.objects.exclude(finished_at__isnull=False).count() > 20_000

    assert named() == set()


def test_stuck_orders_are_named_among_healthy_ones_even_where_an_incident_would_explain_a_wait():
    unguarded()
    seed_healthy(3)
    seed("beta-stuck", agent="beta", step="process_state='Pending'")
    seed("gamma-overdue", agent="gamma", step=RUNNING + "- interval '1 h'")

    assert named() == {"beta-stuck1", "gamma-overdue1"}


def test_what_an_open_incident_explained_is_named_when_it_is_closed():
    unguarded()
    seed_healthy(1)

    kit.fetch("UPDATE supervision_incident SET closed_at = now()")

    assert named() == {"ok-error1", "ok-acknowledged1", "ok-outage1", "ok-paused-long1", "ok-unknown-version1"}


def test_one_that_is_passed_by_later_ones_is_not_waiting_for_its_turn():
    unguarded()
    seed("served", agent="delta", step=SERVED + ";turn_at=now()")
    seed("passed", agent="delta", step=DUE)

    assert named() == {"passed1"}


def test_the_bound_is_the_setting_or_the_commands(tuned):
    unguarded()
    seed("unclaimed", step=DUE)

    tuned(LIVENESS_SECONDS=7200)
    assert named() == set()
    assert "unclaimed1" in audit("--bound", "60")
    assert named() == set()
    tuned(LIVENESS_SECONDS=60)
    assert named() == {"unclaimed1"}
    assert conf.get().liveness.total_seconds() == 60


@pytest.mark.parametrize("nonsense", ["-1", "soon", "nan", "1e99"])
def test_a_bound_that_makes_no_sense_is_refused_in_one_line(nonsense):
    with pytest.raises(CommandError, match="expected seconds"):
        call_command("audit", f"--bound={nonsense}")


def audit(*arguments: str) -> str:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("audit", *arguments, stdout=out, stderr=StringIO())
    assert ended.value.code == 1
    return out.getvalue()


def test_an_incident_that_is_looked_for_holds_what_it_counts():
    """The audit accepts the incidents that the detectors open for real rows."""
    key = kit.in_error()
    kit.hours_pass(1)
    assert named() == {key}

    lifecycle.look()

    assert named() == set()

"""Hazard 15: 100,000 runs that wait. A sweep, a claim and a signal read the rows that they change, and no row that only waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from supervision import testing
from supervision.incidents import lifecycle
from supervision.jobs import working
from supervision.models import StepState
from supervision.recovery import supervisor
from supervision.signals.sending import NewSignal, send_all, send_signal
from supervision.store.bounds.reachable_sql import NOTHING_DOWN
from supervision.store.step_sql import ANY_DUE
from supervision.testing import run_of
from tests.support.vacuuming import vacuum
from tests.workflows.conftest import BETA, asleep, flow, paid

__all__ = ["flow"]

MANY = 100_000
WINDOW = 8 * supervisor.WINDOW  # each sweep looks at this many runs by their keys, however many there are
FILL = """
INSERT INTO supervision_run (process_state, created_at, workflow, version, key, payload, complete_by)
SELECT 'Processing', now(), 'waiting', 1, 'asleep-' || i, '{}', now() + interval '90 days' FROM generate_series(1, %(many)s) i;
INSERT INTO supervision_stepstate (run_id, direction, position, process_state, attempt, seq, effect, name, agent, idempotency_key,
       not_before, awaits, awaits_until, awaits_attempt)
SELECT r.id, 'do', 0, 'Pending', 1, 2, 'none', 'paid', 'wait', r.key || ':paid:do:1', now() + interval '1 hour', 'paid',
       now() + interval '1 hour', 1 FROM supervision_run r WHERE r.key LIKE 'asleep-%%';
INSERT INTO supervision_stepstate (run_id, direction, position, process_state, attempt, seq, effect, name, agent, idempotency_key)
SELECT r.id, 'do', 1, 'Pending', 0, 0, 'none', 'beta-step', 'beta', r.key || ':beta-step:do:1'
  FROM supervision_run r WHERE r.key LIKE 'asleep-%%';
"""


@pytest.fixture
def many(sas, flow) -> Iterator[Any]:
    """One run that was begun as usual, beside those that wait."""
    flow(paid(), BETA)
    run = sas.start("waiting")
    with connection.cursor() as cursor:
        for statement in FILL.split(";\n"):
            if statement.strip():
                cursor.execute(statement, {"many": MANY})
    vacuum("supervision_run", "supervision_stepstate")  # the counted work would pass over what earlier tests left in the indexes
    assert asleep() == MANY + 1
    return run


def read(statement: str, params: Any) -> int:
    """How many rows of steps and runs the statement reads; it is executed and rolled back."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement, params)
        (plan,) = cursor.fetchone()
        transaction.set_rollback(True)
    return sum(_rows((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))


def _rows(node: Any) -> Iterator[float]:
    if node.get("Relation Name") in ("supervision_stepstate", "supervision_run") and "Scan" in node["Node Type"]:
        yield (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    for child in node.get("Plans", ()):
        yield from _rows(child)


@pytest.mark.timeout(900)
def test_a_hundred_thousand_waits_cost_sweep_claim_and_signal_nothing(sas, many):
    assert read(ANY_DUE, {"shut": [], **NOTHING_DOWN, "since": "-infinity", "known": ["waiting 1"]}) == 0
    touches_less_than(WINDOW, supervisor.sweep_once)
    touches_less_than(200, lifecycle.look)
    touches_less_than(50, working._rest)
    touches_less_than(500, lambda: send_signal(many.key, "paid"))
    touches_less_than(1_000, testing.schedule)


TOUCHED = """
SELECT name::regclass::text, pg_stat_get_xact_blocks_fetched(name) FROM (
    SELECT t.oid FROM pg_class t WHERE t.relname IN ('supervision_stepstate', 'supervision_run')
    UNION ALL SELECT i.indexrelid FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
               WHERE t.relname IN ('supervision_stepstate', 'supervision_run')) r(name)
"""


def touches_less_than(most: int, work: Any) -> None:
    """The work touches fewer pages of steps, runs and their indexes. A scan of the waiting steps touches thousands.

    Counted by this connection in one transaction: what autovacuum reads meanwhile does not count.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(TOUCHED)
        before = dict(cursor.fetchall())
        work()
        cursor.execute(TOUCHED)
        touched = {name: pages - before[name] for name, pages in cursor.fetchall() if pages > before[name]}
    assert sum(touched.values()) < most, touched


@pytest.mark.timeout(900)
def test_of_a_hundred_thousand_waits_those_whose_signal_came_go_on_and_the_others_stay(sas, many):
    sent = send_all([NewSignal(run=f"asleep-{n}", name="paid", key="k") for n in range(1, 201)])
    assert len(sent) == 200

    sas.run()

    assert StepState.objects.filter(name="beta-step", process_state="Processed").count() == 200
    assert asleep() == MANY + 1 - 200
    assert run_of("asleep-1").process_state == "Processed"
    assert run_of("asleep-201").process_state == "Processing"

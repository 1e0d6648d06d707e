"""How the database executes the hot statements: by key or by a partial index, never with a scan of the table.

The tests fill and analyse the tables inside a transaction, most of them in one for all, ask for plans only, and roll back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from supervision.governance import resources
from supervision.incidents import starvation
from supervision.postgres import cursors, db
from supervision.recovery import supervisor
from supervision.store import failure_sql, step_sql
from supervision.store.bounds.reachable_sql import NOTHING_DOWN
from tests.engine import kit
from tests.support import pages

CLAIMS = {"runs": list(range(1, 21)), "attempts": [1] * 20, "direction": "do", "position": 1, "me": "me", "lease": 30.0}
CLAIMS |= {"step": "s", "agent": "alpha", "known": []}


def fill(finished: int, running: int, waiting: int) -> None:
    kit.fetch(
        "INSERT INTO supervision_run (id, workflow, key, process_state, finished_at) OVERRIDING SYSTEM VALUE"
        " SELECT n, 'toy', 'k' || n, CASE WHEN n <= %s THEN 'Processing' WHEN n <= %s THEN 'Pending' ELSE 'Processed' END,"
        " CASE WHEN n > %s THEN now() END FROM generate_series(1, %s) n",
        [running, running + waiting, running + waiting, running + waiting + finished],
    )
    kit.fetch(
        "INSERT INTO supervision_stepstate (run_id, direction, position, name, agent, idempotency_key, process_state, locked_by,"
        " complete_by, not_before, turn_at, finished_at, attempt)"
        " SELECT r.id, 'do', p, 's', 'alpha', 'k',"
        " CASE WHEN r.process_state = 'Processed' THEN 'Processed' WHEN r.process_state = 'Processing' AND p = 1 THEN 'Processing'"
        " ELSE 'Pending' END,"
        " CASE WHEN r.process_state = 'Processing' AND p = 1 THEN 'me' END,"
        " CASE WHEN r.process_state = 'Processing' AND p = 1 THEN now() + interval '1 min' END,"
        " CASE WHEN r.process_state = 'Pending' AND p = 0 THEN now() END,"
        " CASE WHEN r.process_state = 'Pending' AND p = 0 THEN now() END, r.finished_at, 1"
        " FROM supervision_run r, generate_series(0, 3) p"
    )
    kit.fetch("ANALYZE supervision_run, supervision_stepstate")


@pytest.fixture(scope="module")
def big_store(store_database: None, django_db_blocker: Any) -> Iterator[None]:
    """20,000 orders finished, 2,000 running, 2,000 waiting, in one transaction. Tests with an empty store come before these."""
    with django_db_blocker.unblock():
        with transaction.atomic():
            fill(20_000, 2_000, 2_000)
            yield
            transaction.set_rollback(True)
        connection.close()


@pytest.fixture
def big(big_store: None) -> Iterator[None]:
    """The same rows for each test."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def scans(statement: str, params: dict[str, object]) -> set[tuple[str, str]]:
    """Every scan in the plan as (relation, kind of scan or index)."""
    found: set[tuple[str, str]] = set()

    def walk(node: dict, of: str = "") -> None:
        """of: the table that a bitmap above this node reads."""
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            found.add((node["Relation Name"].removeprefix("supervision_"), node.get("Index Name", node["Node Type"])))
        if node["Node Type"] == "Bitmap Index Scan" and of == "supervision_stepstate":
            found.add(("bitmap", node["Index Name"]))
        for child in node.get("Plans", []):
            walk(child, node.get("Relation Name", of))

    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + statement, params)
        (plan,) = cursor.fetchone()
    walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    found = {
        (relation, how) for relation, how in found if not re.search("pause|workflowversion|epoch", f"{relation} {how}")
    }  # nearly empty
    return {(relation, how) for relation, how in found if relation == "stepstate" or how == "Seq Scan" or relation == "bitmap"}


def test_no_guard_of_a_row_found_by_its_key_proves_a_partial_index():
    """With such a guard the planner may read all unfinished runs for every step; no test's statistics force that plan reliably."""
    texts = {**vars(step_sql), **vars(failure_sql)}
    statements = {name: " ".join(value.split()) for name, value in texts.items() if name.isupper() and isinstance(value, str)}
    assert len(statements) > 20

    for name, statement in statements.items():
        for found in re.finditer(r"\b(?:r\.id|s\.run_id) = \w+\.\w+(?:(?!RETURNING|SELECT|WHERE).)*", statement):
            assert not re.search(r"\b[rs]\.process_state (?:=|IN|<)", found[0]), f"{name}: {found[0]}"


@pytest.mark.usefixtures("engine")
def test_waiting_submissions_are_found_without_reading_the_consumed_ones():
    with transaction.atomic():
        kit.fetch(
            "INSERT INTO supervision_submission (public_id, workflow, payload, consumed_at)"
            " SELECT 's' || n, 'toy-plain', '{}', CASE WHEN n > 20 THEN now() END FROM generate_series(1, 20000) n"
        )
        kit.fetch("ANALYZE supervision_submission")

        params = {"limit": 10, "only": None, "since": 0, "names": ["toy-plain"]}
        found = scans(step_sql.TAKE_SUBMISSIONS.replace("FOR UPDATE SKIP LOCKED", ""), params)

        transaction.set_rollback(True)
    assert found == set()


@pytest.mark.usefixtures("engine")
def test_the_cost_of_claiming_and_sweeping_does_not_grow_with_finished_orders():
    costs = {}
    for finished in (100, 20_000):
        with transaction.atomic():
            fill(finished, 50, 50)
            kit.fetch("UPDATE supervision_stepstate SET complete_by = now() - interval '1 s' WHERE process_state = 'Processing'")
            costs[finished] = (
                pages.of(failure_sql.HOLD_OVERDUE, {"limit": 20, "passed_over": [], "known": []}),
                pages.of(
                    step_sql.CLAIM,
                    {"limit": 20, "me": "me", "lease": 30.0, "shut": [], **NOTHING_DOWN, "only": None, "since": "-infinity", "known": []},
                ),
            )
            transaction.set_rollback(True)

    for few, many in zip(costs[100], costs[20_000], strict=True):
        assert many <= few * 3 + 50, costs


@pytest.mark.usefixtures("engine")
def test_plans_are_dropped_every_second_on_a_connection_that_lives_long():
    db.fetch("SELECT 1")
    until = cursors._replan_at[connection.connection]
    cursors._replan_at[connection.connection] = cursors._local.cursor.replan_at = 0.0

    db.fetch("SELECT 2")

    assert cursors._replan_at[connection.connection] >= until
    assert kit.fetch("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT %%'")[0][0] >= 2


# ----------------------------------------------------------------------------------------------- beside many orders


KEY = {("stepstate", "supervision_stepstate_pkey")}
# The same rows by the same key, which PostgreSQL prefers where its statistics say that they stand beside each other.
KEY_OR_BITMAP = KEY | {("stepstate", "Bitmap Heap Scan"), ("bitmap", "supervision_stepstate_pkey")}


@pytest.mark.parametrize(
    ("statement", "more"),
    [
        (step_sql.START, {"budget": 30.0}),
        (step_sql.HOLD, {}),
        (step_sql.FINISH, {"results": ["{}"] * 20, "fuse": False, "wait": False, "agent": "beta", "workflow": "toy"}),
        (step_sql.FINISH_LAST, {"results": ["{}"] * 20}),
        (failure_sql.HOLD_FAILED, {}),
    ],
    ids=["START", "HOLD", "FINISH", "FINISH_LAST", "FAIL"],
)
def test_a_claimed_step_is_found_by_its_key_however_many_are_running(statement, more, big):
    assert scans(statement, {**CLAIMS, **more}) == KEY


@pytest.mark.parametrize(
    "statement", [step_sql.START, step_sql.FINISH, step_sql.FINISH_LAST, step_sql.CLAIM], ids=["START", "FINISH", "FINISH_LAST", "CLAIM"]
)
def test_the_parts_of_a_statement_are_not_compared_each_with_each(statement, big):
    """The planner expects one row of each CTE and would join them in a nested loop: 40,000 comparisons for a cohort of 200."""
    more = {"budget": 1.0, "results": ["{}"] * 20, "fuse": False, "wait": False, "agent": "beta", "workflow": "toy"}
    params = {**CLAIMS, **more, "limit": 50, "shut": [], **NOTHING_DOWN, "only": None, "since": "-infinity", "known": []}
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + statement, params)
        (plan,) = cursor.fetchone()

    def parts_of(node: dict) -> set[str]:
        below = [part for child in node.get("Plans", []) if "Subplan Name" not in child for part in parts_of(child)]
        read = {node["CTE Name"]} - {"g"} if node["Node Type"] == "CTE Scan" else set()  # g has one row for any size of cohort
        if node["Node Type"] in ("Nested Loop", "Hash Join", "Merge Join"):
            assert len(below) < 2, f"{below} are joined: {node}"
        return {*below, *read}

    def walk(node: dict) -> None:
        parts_of(node)
        for child in node.get("Plans", []):
            walk(child)

    walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])


def test_a_checkpoint_is_written_by_its_key(big):
    params = {"runs": [1], "directions": ["do"], "positions": [1], "attempts": [1], "data": ["{}"]}

    assert scans(step_sql.CHECKPOINT, params) == KEY


ONE_DOWN = {**NOTHING_DOWN, "down": ["north"], "dark": ["alpha/*"], "lit": ["alpha/it"]}
A_NUMBER_DOWN = {**ONE_DOWN, "lit": ["alpha/7"], "hashed": ["alpha"], "crc": resources._crc()}


A_HOME_DOWN = {**ONE_DOWN, "homes": ["alpha"]}


@pytest.mark.parametrize("down", [NOTHING_DOWN, ONE_DOWN, A_NUMBER_DOWN, A_HOME_DOWN], ids=["nothing", "one", "a number", "a home"])
def test_a_claim_reads_only_what_may_be_claimed(down, big):
    params = {"limit": 50, "me": "me", "lease": 30.0, "shut": [], **down, "only": None, "since": "-infinity", "known": []}
    found = scans(step_sql.CLAIM_REACHABLE if down["down"] else step_sql.CLAIM, params)

    found.discard(("stepevent", "Seq Scan"))  # CLAIM reads it for undo steps only, and the table is empty here

    assert ("stepstate", "step_claimable") in found
    assert found - {("stepstate", "step_claimable")} <= KEY_OR_BITMAP


@pytest.mark.parametrize("statement", [step_sql.PROBE_WITH_ANOTHER, step_sql.PROBE_AGAIN], ids=["another", "again"])
def test_a_probe_reads_only_what_may_be_claimed(statement, big):
    params = {"limit": 1, "me": "me", "lease": 30.0, **A_HOME_DOWN, "only": ["alpha"], "resource": "south", "home": "north", "known": []}
    found = scans(statement, params)

    found.discard(("stepevent", "Seq Scan"))  # as in CLAIM

    assert ("stepstate", "step_claimable") in found
    assert found - {("stepstate", "step_claimable")} <= KEY_OR_BITMAP


def test_a_sweep_reads_only_what_is_running_and_late(big):
    found = scans(failure_sql.HOLD_OVERDUE, {"limit": 50, "passed_over": [], "known": []})

    running = "a_branch_processes_one_step_at_a_time"
    assert found in ({("stepstate", running)}, {("bitmap", running), ("stepstate", "Bitmap Heap Scan")})


def test_claims_from_the_future_are_looked_for_only_among_what_is_running(big):
    running = "a_branch_processes_one_step_at_a_time"

    found = scans(failure_sql.RECALL, {"slack": 60.0, "limit": 50}) - KEY

    # RECALL looks events up by the runs that are running. The table is empty here, so any plan for it is fine.
    steps = {(relation, how) for relation, how in found if relation == "stepstate" or how == running}
    assert steps in ({("stepstate", running)}, {("bitmap", running), ("stepstate", "Bitmap Heap Scan")})


def test_starvation_is_looked_for_only_among_released_steps(big):
    found = scans(starvation.COUNT_STARVING, {"pickup": 300.0, "calm": [], "shut": [], "homes": []})

    assert {how for relation, how in found if relation == "stepstate"} <= {
        "step_claimable",
        "Bitmap Heap Scan",
        "supervision_stepstate_pkey",
    }


REPORT = supervisor.SweepReport()


@pytest.mark.parametrize(("duty", "report"), [(supervisor._stop_overdue_runs, [REPORT]), (supervisor._close_undone, [])])
def test_the_supervisors_other_duties_never_read_a_whole_table(duty, report, big, monkeypatch):
    kit.fetch("UPDATE supervision_run SET process_state = 'Compensating', direction = 'undo' WHERE id < 50")
    asked: list[tuple[str, dict]] = []
    monkeypatch.setattr(supervisor.db, "run", lambda statement, params: asked.append((statement, params)) or [])

    duty(*report, 500)

    (question,) = asked
    assert {how for _, how in scans(*question)} <= {how for _, how in KEY_OR_BITMAP}

"""Clocks that jump and clocks that are wrong (H26, H27): at worst they cause a delay, and no worker's clock is used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from supervision import conf
from supervision.recovery import failures, leader_lease
from supervision.testing import run_until_idle, step
from tests.engine import kit
from tests.support.history import rewrite

pytestmark = pytest.mark.usefixtures("engine")


def put_the_clock_back() -> None:
    """Make the rows look as if the database's clock had been ahead by an hour and was then corrected."""
    kit.fetch("UPDATE supervision_stepstate SET complete_by = complete_by + interval '1 hour'")
    kit.fetch("UPDATE supervision_stepstate SET started_at = started_at + interval '1 hour'")
    rewrite("UPDATE supervision_stepevent SET at = at + interval '1 hour'")
    kit.fetch("UPDATE supervision_leaderlease SET expires_at = expires_at + interval '1 hour'")


def test_a_step_claimed_by_a_clock_that_ran_ahead_is_recovered_at_the_next_sweep():
    key, _, _ = kit.started()
    put_the_clock_back()

    kit.supervisor.sweep_once()

    released = step(key, "alpha-step")
    assert (released.process_state, released.failure_count, released.effect) == ("Pending", 1, "unknown")
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() WHERE process_state = 'Pending' AND not_before IS NOT NULL")
    run_until_idle()
    assert kit.state(key) == "Processed"


def test_a_claim_made_by_a_clock_that_ran_ahead_is_given_out_again_and_counts_no_failure():
    key, _, _ = kit.claimed()
    put_the_clock_back()

    kit.supervisor.sweep_once()

    released = step(key, "alpha-step")
    assert (released.process_state, released.failure_count, released.dispatch_count) == ("Pending", 0, 1)


@pytest.mark.parametrize("begin", [kit.claimed, kit.started], ids=["claimed", "started"])
def test_a_deadline_however_far_away_is_left_alone_where_the_attempt_began_in_the_past(begin):
    key, _, _ = begin()
    kit.fetch("UPDATE supervision_stepstate SET complete_by = now() + interval '30 days' WHERE process_state = 'Processing'")

    kit.supervisor.sweep_once()

    assert step(key, "alpha-step").process_state == "Processing"


def test_an_answer_after_the_clock_was_put_back_and_the_step_swept_changes_nothing():
    key, place, items = kit.started()
    put_the_clock_back()
    kit.supervisor.sweep_once()

    handed = kit.finish(place, items)

    assert handed.stale
    assert step(key, "alpha-step").process_state == "Pending"
    assert kit.healthy()


def test_the_lead_is_taken_over_when_its_lease_was_written_by_a_clock_that_ran_ahead():
    kit.fetch(
        "INSERT INTO supervision_leaderlease (name, holder, term, elected_at, expires_at)"
        " VALUES ('supervisor', 'a process that died', 1, now(), now() + %s)",
        [conf.get().lease],
    )
    assert leader_lease.lead("supervisor") is None
    put_the_clock_back()

    assert leader_lease.lead("supervisor") == 2


def test_a_recall_takes_no_row_that_somebody_holds():
    kit.started()
    put_the_clock_back()
    with kit.another_connection() as other:
        other.execute("SELECT FROM supervision_stepstate FOR UPDATE")

        failures.recall(10)  # it waits for no lock

    assert kit.fetch("SELECT count(*) FROM supervision_stepstate WHERE complete_by > now() + interval '30 min'") == [(1,)]


CLOCKS = {"now", "today", "utcnow", "time", "localtime", "gmtime"}
# These places show a time to people or send it to a service. They compare it with no deadline.
HARMLESS = {
    "supervision/runtime/humanize.py",
    "supervision/outbox/webhooks.py",
    "supervision/templatetags/console.py",
    "supervision/execution/task_agent.py",  # the `eta` of a task's retry, which the task has made from the same clock
}


def reads_of_the_wall_clock(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
            owner = ast.unparse(node.func.value)
            if owner in ("time", "datetime", "datetime.datetime", "timezone", "date", "dt"):
                found.append(f"{path}:{node.lineno} {owner}.{node.func.attr}()")
    return found


def test_no_decision_of_the_engine_or_an_agent_reads_the_workers_clock():
    files = [path for folder in ("supervision", "orders/agents", "orders/gateways") for path in (kit.ROOT / folder).rglob("*.py")]

    found = [line for path in files for line in reads_of_the_wall_clock(path)]

    assert [line for line in found if not any(name in line for name in HARMLESS)] == []


def test_the_check_for_clocks_sees_clocks():
    assert reads_of_the_wall_clock(kit.ROOT / "orders" / "simulators" / "faults.py")

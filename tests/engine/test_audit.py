"""`manage.py audit` reports nothing about rows that the engine wrote and names every broken invariant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from supervision import testing
from supervision.agent import JSON, Agent, StepRequest, register_agent
from supervision.audit import registry
from supervision.children.steps import ChildRun
from supervision.dispatch import scheduler
from supervision.errors import AgentFailure, PermanentFailure
from supervision.intake import consuming
from supervision.models import Run
from supervision.operations import operator_verbs
from supervision.plans.parallel import parallel, plan
from supervision.workflow import Step, Workflow, register
from tests.engine import kit

pytestmark = pytest.mark.django_db


class LedgerAgent(Agent):
    """An agent that refuses the step that the payload names and performs all others."""

    name = "audit-ledger"
    transactional = True

    def perform_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        return [PermanentFailure("refused") if request.payload.get("refuse") == request.step else {} for request in requests]

    def compensate_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        return [{} for _ in requests]


register_agent(LedgerAgent())
register(
    Workflow(
        "audited",
        tuple(Step(name, agent="audit-ledger", complete_within=timedelta(seconds=30)) for name in ("one", "two", "three")),
    )
)


ONE, TWO, THREE, FOUR = (
    Step(name, agent="audit-ledger", complete_within=timedelta(seconds=30)) for name in ("one", "two", "three", "four")
)
register(Workflow("audited-parent", (ChildRun("kid", workflow="audited"), ONE)))
register(Workflow("audited-graph", plan(ONE, parallel(TWO, THREE), FOUR)))


def place(workflow: str = "audited", **payload: Any) -> str:
    return testing.submit(workflow, payload)


def drive() -> None:
    """Let scheduler and agents work until nothing is left to do."""
    sent = True
    while sent:
        # now() does not move in this test's one transaction, so a step that becomes due during it lies in the future.
        testing.make_due()
        sent = testing.schedule()
        for where, claims in sent:
            testing.perform(where, claims)


@pytest.fixture
def healthy() -> dict[str, int]:
    """One run in every state that an audit may meet, by name; the engine alone wrote them."""
    keys = {"processed": place(), "error": place(refuse="two"), "cancelled": place(refuse="three")}
    graphs = {"joined": place("audited-graph"), "fork": place("audited-graph", refuse="two")}
    keys |= {"parent": place("audited-parent"), "unparented": place("audited-parent", refuse="one")}
    keys |= graphs | {"unforked": place("audited-graph", refuse="four")}
    drive()
    operator_verbs.cancel(keys["cancelled"], by="test", reason="no longer wanted")
    operator_verbs.cancel(keys["unforked"], by="test", reason="no longer wanted")
    operator_verbs.cancel(keys["unparented"], by="test", reason="no longer wanted")
    drive()
    keys["child"] = f"{keys['parent']}:kid:child"
    keys["pending"], keys["claimed"] = place(), place()
    consuming.consume_batch(born=False)
    scheduler.claim_once(lambda where, claims: None)
    keys["pending"] = place()
    consuming.consume_batch(born=False)
    place()  # accepted, not consumed
    return {name: Run.objects.get(key=key).pk for name, key in keys.items()}


def unguarded() -> None:
    """Remove the database's constraints and triggers for this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid"
            " WHERE t.relname LIKE 'supervision\\_%' AND contype = 'c'"
        )
        for table, name in cursor.fetchall():
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        cursor.execute("DROP INDEX IF EXISTS a_branch_processes_one_step_at_a_time")
        for table in ("run", "stepstate", "stepevent"):
            cursor.execute(f"ALTER TABLE supervision_{table} DISABLE TRIGGER USER")


STEP = "UPDATE supervision_stepstate SET {} WHERE run_id = %(run)s AND direction = 'do' AND position = {}"
RUN = "UPDATE supervision_run SET {} WHERE id = %(run)s"
CHILD = "UPDATE supervision_child SET {} WHERE {} = (SELECT key FROM supervision_run WHERE id = %(run)s)"
ASLEEP = "turn_at = NULL, awaits = 'paid', awaits_until = now() + interval '1 h'"
SIGNAL = "INSERT INTO supervision_signal (run_key, name, key, taken_by) SELECT key, 'paid', 'k', {} FROM supervision_run WHERE id = %(run)s"
UNDO = "UPDATE supervision_stepstate SET {} WHERE run_id = %(run)s AND direction = 'undo' AND position = {}"

# invariant -> (name of the run, the statement that breaks the invariant)
EFFECT = (
    "INSERT INTO supervision_effect (run_id, direction, position, key, operation, generation, attempt, service, outcome, actor)"
    " VALUES (%(run)s, 'do', 1, 'k', 'book', 1, 1, 'carrier', '{}', 'x')"
)
JOB = (
    "WITH j AS (INSERT INTO supervision_job (verb, filter, changes, reason, held, started_by, total, position, done)"
    " VALUES ('resubmit', '{{}}', '{{}}', 'r', '[]', 'olga', 1, 1, 1) RETURNING id)"
    " INSERT INTO supervision_jobresult (job_id, number, run_id, key, acted_at, outcome)"
    " SELECT j.id, 1, %(run)s, 'k', {}, '{}' FROM j;"
)
NAMED = (
    "INSERT INTO supervision_stepevent (run_id, seq, from_state, to_state, actor, why) SELECT %(run)s, n, 'Error', 'Processing', 'olga',"
    " 'r (job ' || (SELECT max(id) FROM supervision_job) || ': all)' FROM generate_series(100, 101) n"
)
BREAKS = {
    "the history of runs and the operators' log are as they were when they came under the chain": (
        "processed",
        "INSERT INTO supervision_historylink (kind, subject, through, newest_at, batch, digest, marks)"
        " VALUES ('run', %(run)s, 1, now(), 1, '', sha256('another'))",
    ),
    "each batch of the history's chain is as it was made and follows the one before it": (
        "processed",
        "INSERT INTO supervision_historybatch (number, links, head) SELECT 1, 0, sha256(%(run)s::text::bytea)",
    ),
    "what happens comes under the chain within an hour": (
        "processed",
        "WITH old AS (INSERT INTO supervision_historybatch (number, made_at, links, head) SELECT 1, now() - interval '2 hours', 0, '')"
        " UPDATE supervision_stepevent SET at = at - interval '2 hours' WHERE run_id = %(run)s",
    ),
    "a running step has an owner and a deadline, and no other step has an owner": (
        "claimed",
        STEP.format("locked_by = NULL", 0),
    ),
    "a Processed step has finished and its effect is known to be done": ("processed", STEP.format("finished_at = NULL", 1)),
    "a step begins after all steps that come before it": ("joined", STEP.format("process_state = 'Pending'", 1)),
    "branches are undone in reverse order": (
        "unforked",
        "UPDATE supervision_stepevent SET position = 1 - position WHERE run_id = %(run)s AND direction = 'undo' AND position < 2",
    ),
    "a step counts what it waits for, and is due when that is nothing": ("fork", STEP.format("waits_for = waits_for - 1", 3)),
    "a run that goes on from an earlier step is undone from there, and nothing before it": ("fork", RUN.format("resume_from = 1")),
    "an unfinished run has the steps of its version": (
        "fork",
        "INSERT INTO supervision_workflowversion (name, version, fingerprint, definition)"
        """ VALUES ('audited-graph', 1, '', '{"steps": [{"name": "one", "agent": "audit-ledger"}]}')"""
        " ON CONFLICT (name, version) DO UPDATE SET definition = excluded.definition",
    ),
    "a run whose plan branches counts its events and its open steps": ("joined", RUN.format("open_steps = 1")),
    "the plan of a run is a graph whose branches are sequences": ("joined", STEP.format("branch = 0", 2)),
    "a branch processes one step at a time": (
        "claimed",
        STEP.format("process_state = 'Processing', locked_by = 'x', complete_by = now()", 1),
    ),
    "a child run's parent exists and knows it, and a child that was started has a run or a submission": (
        "child",
        RUN.format("parent_key = 'another'"),
    ),
    "a child stands for its parent as its run does": ("child", CHILD.format("state = 'Started'", "key")),
    "a step that is Processed has every child that it awaited Processed": ("parent", CHILD.format("state = 'Started'", "parent_key")),
    "a Cancelled parent has no child that still has an effect": ("unparented", CHILD.format("state = 'Processed'", "parent_key")),
    "steps are done in order": ("processed", STEP.format("process_state = 'Pending'", 0)),
    "steps are undone in reverse order": (
        "cancelled",
        "UPDATE supervision_stepevent SET position = 1 - position WHERE run_id = %(run)s AND direction = 'undo' AND to_state = 'Processed'",
    ),
    "nothing is undone while it is still being done": (
        "cancelled",
        STEP.format("process_state = 'Processing', locked_by = 'x', complete_by = now()", 0),
    ),
    "a step that is asleep waits for a signal or a moment, and its wait has an end": ("pending", STEP.format("turn_at = NULL", 0)),
    "no step sleeps while its signal is here": (
        "pending",
        f"{STEP.format(ASLEEP, 0)}; {SIGNAL.format('NULL')}",
    ),
    "a signal that was taken belongs to a step that has it, and every signal to an order": (
        "pending",
        SIGNAL.format("'one'"),
    ),
    "a Processed run has done every step": ("processed", STEP.format("process_state = 'Cancelled'", 2)),
    "a final run has no open step": ("cancelled", UNDO.format("process_state = 'Pending'", 0)),
    "an unfinished run has a step that is running or may be claimed": ("pending", STEP.format("not_before = NULL", 0)),
    "a Pending run has begun nothing": ("pending", STEP.format("attempt = 1", 0)),
    "a run in Error stands at exactly one step in Error, and only such a run does": (
        "error",
        STEP.format("process_state = 'Pending'", 1),
    ),
    "a run in Error has an open alert of its failed step": (
        "error",
        "UPDATE supervision_alert SET closed_at = now() WHERE run_id = %(run)s",
    ),
    "every unfinished order makes progress, or an open incident or a bounded wait explains why not": (
        "pending",
        "UPDATE supervision_stepstate SET not_before = NULL WHERE run_id = %(run)s;"
        "UPDATE supervision_stepevent SET at = now() - interval '1 day' WHERE run_id = %(run)s",
    ),
    "a run's steps are complete: positions from 0, an undo only beside its do step": (
        "pending",
        "DELETE FROM supervision_stepstate WHERE run_id = %(run)s AND position = 1",
    ),
    "events are numbered without a gap": (
        "processed",
        "DELETE FROM supervision_stepevent WHERE run_id = %(run)s AND seq = 3",
    ),
    "the newest event of a run tells its state": (
        "cancelled",
        "UPDATE supervision_stepevent SET to_state = 'Error' WHERE run_id = %(run)s AND to_state = 'Cancelled' AND position IS NULL",
    ),
    "the events of a step tell its state and its attempts": ("processed", STEP.format("attempt = 7", 1)),
    "nothing belongs to a run that does not exist": (
        "processed",
        "UPDATE supervision_stepevent SET run_id = -1 WHERE run_id = %(run)s AND seq = 1",
    ),
    "a run is in the tables or in the archive, and the archive holds it whole": (
        "processed",
        "INSERT INTO supervision_archivedrun (key, run_id, workflow, process_state, created_at, finished_at, body)"
        " SELECT key, id, workflow, process_state, created_at, finished_at, '{}' FROM supervision_run WHERE id = %(run)s",
    ),
    "a consumed submission has become a run or a dead letter": (
        "processed",
        "UPDATE supervision_submission SET public_id = 'no-run' WHERE public_id = (SELECT key FROM supervision_run WHERE id = %(run)s)",
    ),
    "a run comes from one submission, which is consumed": (
        "processed",
        "UPDATE supervision_submission SET consumed_at = NULL WHERE public_id = (SELECT key FROM supervision_run WHERE id = %(run)s)",
    ),
    "a Cancelled run has undone every effect it had or may have had": (
        "cancelled",
        "DELETE FROM supervision_stepstate WHERE run_id = %(run)s AND direction = 'undo' AND position = 1",
    ),
    "a Cancelled run leaves no effect outside": ("cancelled", EFFECT.format("done")),
    "what a step did outside is settled when the step is Processed": ("processed", EFFECT.format("intended")),
    "a job has one result for each of its orders, and counts them as they are": ("error", JOB.format("NULL", "waiting")),
    "an order's history names a job if and only if the job carried its verb out on it": ("error", JOB.format("now()", "done")),
    "a job carries its verb out on an order once": ("error", JOB.format("now()", "done") + NAMED),
}
SHOP_TABLES = ("orders_",)


def engine_checks() -> list[registry.Check]:
    return [check for check in registry.checks() if not any(table in check.violations for table in SHOP_TABLES)]


def test_what_the_engine_writes_is_healthy(healthy: dict[str, int]):
    assert list(registry.violations()) == []


def test_the_fixture_has_a_run_in_every_state_it_claims(healthy: dict[str, int]):
    states = dict(Run.objects.values_list("pk", "process_state"))

    assert {name: states[pk] for name, pk in healthy.items()} == {
        "processed": "Processed",
        "error": "Error",
        "cancelled": "Cancelled",
        "pending": "Pending",
        "claimed": "Processing",
        "joined": "Processed",
        "fork": "Error",
        "unforked": "Cancelled",
        "parent": "Processed",
        "unparented": "Cancelled",
        "child": "Processed",
    }


def test_a_clock_that_was_put_back_between_two_undo_steps_is_no_violation(healthy: dict[str, int]):
    kit.fetch(UNDO.format("finished_at = now() + interval '1 hour'", 1), {"run": healthy["cancelled"]})

    assert list(registry.violations()) == []


def test_every_invariant_of_the_engine_is_seeded_below():
    assert {check.invariant for check in engine_checks()} == set(BREAKS)


@pytest.mark.parametrize("invariant", BREAKS)
def test_a_broken_invariant_is_named_with_its_run(invariant: str, healthy: dict[str, int]):
    whose, statement = BREAKS[invariant]
    unguarded()
    kit.fetch(statement, {"run": healthy[whose]})

    named = {violation.invariant: violation.detail for violation in registry.violations()}

    assert invariant in named
    if not any(word in invariant for word in ("submission", "does not exist", "batch")):
        assert f"run_id={healthy[whose]}" in named[invariant]


def test_a_step_that_was_claimed_more_often_than_attempts_jump_at_an_epoch_is_no_violation(healthy: dict[str, int]):
    unguarded()
    run = {"run": healthy["processed"]}
    kit.fetch(
        "INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, to_state, actor)"
        " SELECT %(run)s, 1000 + n, 1, 'do', n, CASE n WHEN 10001 THEN 'Processed' ELSE 'Processing' END, 'x'"
        " FROM generate_series(1, 10001) n",
        run,
    )
    kit.fetch(STEP.format("attempt = attempt + 10000", 1), run)

    assert "the events of a step tell its state and its attempts" not in {violation.invariant for violation in registry.violations()}


def test_the_command_exits_with_1_and_names_the_violation(healthy: dict[str, int]):
    unguarded()
    kit.fetch(BREAKS["events are numbered without a gap"][1], {"run": healthy["processed"]})
    out = StringIO()

    with pytest.raises(SystemExit) as stopped:
        call_command("audit", stdout=out, stderr=StringIO())

    assert stopped.value.code == 1
    assert f"VIOLATED events are numbered without a gap: run_id={healthy['processed']}" in out.getvalue()


def test_the_command_says_so_when_everything_holds(healthy: dict[str, int]):
    assert "all hold" in kit.said("audit")


def test_the_command_answers_json_with_every_violation(healthy: dict[str, int]):
    unguarded()
    kit.fetch("UPDATE supervision_stepevent SET seq = seq + 100 WHERE run_id = %(run)s AND seq > 2", {"run": healthy["processed"]})
    out = StringIO()

    with pytest.raises(SystemExit):
        call_command("audit", "--json", stdout=out, stderr=StringIO())

    answer = json.loads(out.getvalue())
    assert answer["checks"] == len(registry.checks())
    assert "events are numbered without a gap" in {violation["invariant"] for violation in answer["violations"]}


def test_many_violations_of_one_kind_are_bounded(healthy: dict[str, int]):
    unguarded()
    kit.fetch(
        "INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) SELECT -n, 1, 'Pending', 'x' FROM generate_series(1, 100) n"
    )

    found = [v for v in registry.violations() if v.invariant == "nothing belongs to a run that does not exist"]

    assert len(found) == registry.MOST_PER_CHECK + 1
    assert "more" in found[-1].detail

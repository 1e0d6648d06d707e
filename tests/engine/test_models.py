"""The database refuses forbidden rows from any writer: raw SQL against every constraint and trigger."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from supervision.models import Run, StepEvent, StepState
from supervision.testing import run_of, run_until_idle, submit

from . import kit

pytestmark = pytest.mark.usefixtures("engine")

STEP = "UPDATE supervision_stepstate SET {} WHERE run_id = %s AND position = 0"
RUN = "UPDATE supervision_run SET {} WHERE id = %s"


def refuses(statement: str, *params: object) -> str:
    """The name of the constraint that refused the statement, or the trigger's message."""
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        kit.fetch(statement, params)
    diagnosis = refused.value.__cause__.diag  # type: ignore[union-attr]
    return diagnosis.constraint_name or diagnosis.message_primary


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (STEP.format("process_state = 'Weird'"), "a_step_is_in_a_known_state"),
        (STEP.format("direction = 'sideways'"), "a_step_does_or_undoes"),
        (STEP.format("effect = 'perhaps'"), "a_steps_effect_is_known_by_name"),
        (STEP.format("process_state = 'Processing'"), "a_running_step_has_an_owner_and_a_deadline"),
        (STEP.format("locked_by = 'a worker'"), "a_running_step_has_an_owner_and_a_deadline"),
        (STEP.format("process_state = 'Processing', locked_by = 'me'"), "a_running_step_has_an_owner_and_a_deadline"),
        (STEP.format("process_state = 'Processed'"), "a_processed_step_has_finished"),
        (STEP.format("failure_count = -1"), "counts_are_not_negative"),
        (STEP.format("attempt = -1"), "counts_are_not_negative"),
        (RUN.format("process_state = 'Skipped'"), "a_run_is_in_a_known_state"),
        (RUN.format("process_state = 'Processed'"), "a_final_run_and_only_a_final_run_has_finished"),
        (RUN.format("finished_at = now()"), "a_final_run_and_only_a_final_run_has_finished"),
        (RUN.format("process_state = 'Compensating'"), "a_run_undoes_when_compensating"),
    ],
)
def test_the_database_refuses_a_row_that_contradicts_itself(statement, constraint):
    key, *_ = kit.claimed()
    bystander, *_ = kit.claimed()
    kit.fetch("UPDATE supervision_stepstate SET process_state = 'Pending', locked_by = NULL, complete_by = NULL WHERE position = 0")

    assert refuses(statement, run_of(key).pk) == constraint
    assert run_of(bystander).process_state == "Processing"


def test_the_database_refuses_a_second_running_step_of_one_run():
    key, *_ = kit.claimed()

    refused = refuses(
        "UPDATE supervision_stepstate SET process_state = 'Processing', locked_by = 'me', complete_by = now()"
        " WHERE run_id = %s AND position = 1",
        run_of(key).pk,
    )

    assert refused == "a_run_processes_one_step_at_a_time"


def test_two_runs_may_each_have_a_running_step():
    first, *_ = kit.claimed()
    second, *_ = kit.claimed()

    assert kit.states(first)[0] == kit.states(second)[0] == "Processing"


@pytest.mark.parametrize("target", ["Pending", "Error", "Skipped", "Cancelled"])
def test_a_processed_step_never_moves_on_whoever_writes(target):
    key = submit("toy-plain", {"n": 1})
    run_until_idle()

    words = refuses(STEP.format("process_state = %s").replace("%s W", "'" + target + "' W"), run_of(key).pk)

    assert words == f"Processed is final and cannot become {target}"


@pytest.mark.parametrize("target", ["Pending", "Processing", "Error", "Compensating", "Cancelled"])
def test_a_finished_run_never_moves_on_whoever_writes(target):
    key = submit("toy-plain", {"n": 1})
    run_until_idle()

    # finished_at satisfies the other constraint, so that only the rule in question can refuse.
    finished = "finished_at" if target == "Cancelled" else "NULL"
    words = refuses(RUN.format(f"process_state = '{target}', direction = 'undo', finished_at = {finished}"), run_of(key).pk)

    assert words == f"Processed is final and cannot become {target}"


def test_the_database_refuses_a_second_event_under_one_number():
    key, *_ = kit.claimed()

    refused = refuses("INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) VALUES (%s, 1, 'Pending', 'me')", run_of(key).pk)

    assert refused == "supervision_stepevent_pkey"


def test_the_database_refuses_a_second_open_alert_of_one_step_and_kind():
    key = kit.in_error()

    refused = refuses(
        "INSERT INTO supervision_alert (run_id, position, direction, generation, kind)"
        " SELECT run_id, position, direction, generation + 1, kind FROM supervision_alert WHERE run_id = %s",
        run_of(key).pk,
    )

    assert refused == "a_step_has_one_open_alert_of_a_kind"


def test_the_database_refuses_a_second_run_for_one_key():
    key, *_ = kit.claimed()

    assert "a_submission_becomes_one_run" in refuses("INSERT INTO supervision_run (workflow, key) VALUES ('toy', %s)", key)


def test_a_new_step_is_pending_unlocked_and_has_not_failed():
    kit.claimed()

    later = StepState.objects.get(position=1)

    assert (later.process_state, later.locked_by, later.complete_by, later.failure_count) == ("Pending", None, None, 0)


def test_every_model_has_words_for_its_rows():
    key = kit.in_error()

    assert str(run_of(key)) == key
    assert str(StepState.objects.get(position=0)) == "alpha-step (do)"
    assert str(StepEvent.objects.get(seq=1)).endswith(":1 Pending")


def test_the_hot_tables_leave_room_for_updates_in_the_page():
    options = dict(kit.fetch("SELECT relname, reloptions::text FROM pg_class WHERE relname LIKE 'supervision\\_st%' AND relkind = 'r'"))

    assert "fillfactor=50" in options["supervision_stepstate"]


def test_the_models_and_the_migrations_agree():
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "supervision_stepstate")

    named = {c.name for c in StepState._meta.constraints} | {i.name for i in StepState._meta.indexes}
    assert named <= set(constraints)
    assert "a_submission_becomes_one_run" in [constraint.name for constraint in Run._meta.constraints]

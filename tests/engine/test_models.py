"""The tables: they refuse forbidden rows from any writer, and what every order leaves in them is bounded."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from supervision.models import ArchivedRun, Run, StepEvent, StepState
from supervision.testing import run_of, run_until_idle
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


def test_a_run_is_named_by_a_word_and_its_key_so_that_no_heading_changes_the_key():
    assert str(Run(key="aBc")) == "run aBc"
    assert str(ArchivedRun(key="aBc")) == "run aBc"
    assert str(ArchivedRun(key="aBc", reference="100-001")) == "100-001"


STEP = "UPDATE supervision_stepstate SET {} WHERE run_id = %s AND position = 0"
RUN = "UPDATE supervision_run SET {} WHERE id = %s"
EVENT = "INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) VALUES (%s, 1, 'Pending', 'me')"


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
        (EVENT, "supervision_stepevent_pkey"),  # a second one under this number
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

    assert refused == "a_branch_processes_one_step_at_a_time"


@pytest.mark.parametrize("target", ["Pending", "Error", "Skipped", "Cancelled"])
def test_a_processed_step_never_moves_on_whoever_writes(target):
    key = kit.ran()

    words = refuses(STEP.format("process_state = %s").replace("%s W", "'" + target + "' W"), run_of(key).pk)

    assert words == f"Processed is final and cannot become {target}"


@pytest.mark.parametrize("target", ["Pending", "Processing", "Error", "Compensating", "Cancelled"])
def test_a_finished_run_never_moves_on_whoever_writes(target):
    key = kit.ran()

    # finished_at satisfies the other constraint, so that only the rule in question can refuse.
    finished = "finished_at" if target == "Cancelled" else "NULL"
    words = refuses(RUN.format(f"process_state = '{target}', direction = 'undo', finished_at = {finished}"), run_of(key).pk)

    assert words == f"Processed is final and cannot become {target}"


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

    assert str(run_of(key)) == f"run {key}"
    assert str(StepState.objects.get(position=0)) == "alpha-step (do)"
    assert str(StepEvent.objects.get(seq=1)).endswith(":1 Pending")


def test_the_models_and_the_migrations_agree():
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "supervision_stepstate")

    named = {c.name for c in StepState._meta.constraints} | {i.name for i in StepState._meta.indexes}
    assert named <= set(constraints)
    assert "a_submission_becomes_one_run" in [constraint.name for constraint in Run._meta.constraints]


HOT = ("run", "stepstate", "stepevent", "submission")

# The database writes to each of these for every order, to most of them several times. The comment names the readers.
INDEXES = {
    "order_of_account",  # a customer's history, and orders of an account
    "supervision_run_pkey",  # all roles
    "a_submission_becomes_one_run",  # API, shop and console, by public id
    "run_overdue",  # the sweep
    "run_finished",  # the supervisor, for the figures of each minute
    "run_unfinished",  # the console, metrics
    "run_cancelled",  # lists; empty without any
    "run_session",  # sessions; empty without any
    "supervision_stepstate_pkey",  # all roles
    "a_branch_processes_one_step_at_a_time",  # guards; the sweep
    "step_claimable",  # the claim
    "step_starving",  # the sweep; empty when all is well
    "step_asleep",  # the sweep; empty without steps that wait
    "step_awaiting",  # the sweep of the shop; empty without steps that wait
    "step_in_error",  # the console; empty when all is well
    "step_in_error_newest",  # lists, filtered; empty when all is well
    "supervision_stepevent_pkey",  # histories
    "supervision_submission_pkey",  # the consumer
    "a_public_id_names_one_submission",  # API, shop and console
    "a_client_key_names_one_submission",  # the API; only for clients with keys
    "submission_waiting",  # the consumer; empty when all is well
    "submission_session_waiting",  # the consumer, for orders of sessions; empty without any
    "orders_order_pkey",
    "orders_order_public_id_key",  # API, shop and console
    "orders_order_number_key",  # shop and console
    "orders_order_run_id_key",  # lists, the archive
    "order_newest_first",  # lists
    "order_total",  # lists, filtered
    "order_mail",  # lists, filtered and searched, and histories of customers
    "order_customer_plain",  # lists, filtered
    "orders_orderline_pkey",
    "orders_stockreservation_pkey",
    "a_key_reserves_a_product_once",  # the stock agent
}
# Django puts a hash into these names.
GENERATED = ("orders_order_email_", "orders_orderline_order_id_", "orders_stockreservation_order_key_")


def test_an_order_writes_no_index_that_nobody_reads():
    found = [
        name
        for (name,) in kit.fetch(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid::regclass::text = ANY(%s)",
            [[*(f"supervision_{table}" for table in HOT), "orders_order", "orders_orderline", "orders_stockreservation"]],
        )
    ]
    generated = [name for name in found if name.startswith(GENERATED) and name not in INDEXES]

    assert {name for name in found if name not in generated} == INDEXES
    for start in GENERATED:
        assert len([name for name in generated if name.startswith(start)]) == 1, generated


@pytest.mark.parametrize("table", HOT)
def test_vacuum_comes_by_rows_changed_and_not_by_a_fifth_of_the_table(table):
    options = dict(
        kit.fetch(
            "SELECT option_name, option_value FROM pg_class, pg_options_to_table(reloptions) WHERE relname = %s", [f"supervision_{table}"]
        )
    )

    assert float(options["autovacuum_analyze_scale_factor"]) <= 0.05
    if table == "stepevent":  # its rows are never updated
        assert float(options["autovacuum_vacuum_insert_scale_factor"]) <= 0.1
    else:
        assert float(options["autovacuum_vacuum_scale_factor"]) <= 0.02
        assert int(options["fillfactor"]) <= (50 if table == "stepstate" else 80)  # room for updates in the page


def test_what_an_order_leaves_in_the_hot_tables_is_bounded():
    """Bytes of rows without indexes and free space, for an order of three steps without failures."""
    kit.submit("toy-plain", {"n": 1})
    run_until_idle()

    size = {table: kit.fetch(f"SELECT sum(pg_column_size(t.*)) FROM supervision_{table} t")[0][0] for table in HOT}  # noqa: S608

    assert size["run"] <= 250, size
    assert size["stepstate"] <= 3 * 300, size
    assert size["stepevent"] <= 8 * 130, size
    assert size["submission"] <= 250, size

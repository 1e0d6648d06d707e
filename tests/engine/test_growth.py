"""What every order leaves in the tables is bounded: rows, index entries; and the settings let autovacuum keep up."""

from __future__ import annotations

import pytest

from supervision.testing import run_until_idle

from . import kit

pytestmark = pytest.mark.usefixtures("engine")

HOT = ("run", "stepstate", "stepevent", "submission")

# The database writes to each of these for every order, to most of them several times. The comment names the readers.
INDEXES = {
    "supervision_run_pkey",  # all roles
    "a_submission_becomes_one_run",  # API, shop and console, by public id
    "run_overdue",  # the sweep
    "run_unfinished",  # the console, metrics
    "run_session",  # sessions; empty without any
    "supervision_stepstate_pkey",  # all roles
    "a_run_processes_one_step_at_a_time",  # guards; the sweep
    "step_claimable",  # the claim
    "step_starving",  # the sweep; empty when all is well
    "step_in_error",  # the console; empty when all is well
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
    "orders_orderline_pkey",
    "orders_stockreservation_pkey",
    "a_key_reserves_a_product_once",  # the stock agent
}
# Django puts a hash into these names.
GENERATED = ("orders_order_account_id_", "orders_order_email_", "orders_orderline_order_id_", "orders_stockreservation_order_key_")
TWICE = {"orders_order_email_"}  # one of the two is for LIKE: the console finds addresses by their prefix


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
        assert len([name for name in generated if name.startswith(start)]) == (2 if start in TWICE else 1), generated


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
        assert int(options["fillfactor"]) <= 80


def test_what_an_order_leaves_in_the_hot_tables_is_bounded():
    """Bytes of rows without indexes and free space, for an order of three steps without failures."""
    kit.submit("toy-plain", {"n": 1})
    run_until_idle()

    size = {table: kit.fetch(f"SELECT sum(pg_column_size(t.*)) FROM supervision_{table} t")[0][0] for table in HOT}  # noqa: S608

    assert size["run"] <= 250, size
    assert size["stepstate"] <= 3 * 300, size
    assert size["stepevent"] <= 8 * 130, size
    assert size["submission"] <= 250, size

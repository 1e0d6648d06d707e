"""Claims, sweeps, the list of orders and an order's page read no more rows in a shop that has four times as many finished orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from benchmarks import growth_seed
from supervision.postgres import db
from supervision.recovery import supervisor
from supervision.store import claiming
from supervision.wakeup import hints
from tests.engine.conftest import store_database  # noqa: F401
from tests.support.console import person

FEW, MANY = 5_000, 20_000
# Rows that this transaction has read, by scans of tables and through indexes.
READ = """
SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables WHERE schemaname = 'public'
"""
EXPIRE = "UPDATE supervision_stepstate SET complete_by = now() - interval '1 s' WHERE process_state = 'Processing'"


def rows_read(work: Callable[[], object]) -> int:
    """How many rows of our tables this work reads."""
    before = db.fetch(READ)[0][0]
    work()
    return int(db.fetch(READ)[0][0] - before)


def claim() -> None:
    assert sum(map(len, claiming.claim(100).values())) == 100


def read_beside(orders: int) -> dict[str, int]:
    """The rows that each piece of work reads in a shop with so many orders; nothing is kept."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(growth_seed.statements(orders, waiting=200))
        cursor.execute("ANALYZE")
        operator = Client()
        operator.force_login(person(f"olga{orders}", "operator"))
        found = {"claim": rows_read(claim)}
        cursor.execute(EXPIRE)
        found["sweep"] = rows_read(supervisor.sweep_once)
        found["idle sweep"] = rows_read(supervisor.sweep_once)
        for name, path in (("list", "/admin/orders/order/"), ("order", "/admin/orders/order/77/change/")):
            operator.get(path)
            found[name] = rows_read(lambda path=path: shown(operator, path))
        transaction.set_rollback(True)
    return found


def shown(operator: Client, path: str) -> None:
    assert operator.get(path).status_code == 200


@pytest.fixture(scope="module")
def beside(store_database: None, django_db_blocker: Any) -> Iterator[tuple[dict[str, int], dict[str, int]]]:  # noqa: F811
    enabled, hints.enabled = hints.enabled, False
    with django_db_blocker.unblock():
        yield read_beside(FEW), read_beside(MANY)
        connection.close()
    hints.enabled = enabled


@pytest.mark.parametrize("what", ["claim", "sweep", "idle sweep", "list", "order"])
def test_the_work_reads_as_many_rows_beside_many_finished_orders_as_beside_few(what, beside):
    few, many = beside

    assert many[what] <= 1.2 * few[what] + 20, beside

"""What tidies reads the rows that go, by an index, and not the years of rows that stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection, transaction

from orders.parcels import events as parcel_events
from orders.payments import events as payment_events
from orders.records import expired, facts, leaving
from supervision import tasks
from supervision.deadletters import ending
from supervision.history import ends as chain_ends
from supervision.ledger import exchanges
from supervision.runtime import tidying
from supervision.worker import records

from .filled import TABLES, explained, fill

ORDERS, FEW = 20_000, 2_000
BIG = {f"orders_{name}" for name in ("order", "orderline", "parcel", "parcelevent", "paymentevent", "document")}
BIG |= {"supervision_archivedrun", "supervision_historybatch", "supervision_historylink", "django_session"}
SMALL = {"orders_documentcounter", "supervision_channel"}  # a row a year, a row a channel


@pytest.fixture(scope="module")
def years(store_database: None, django_db_blocker: Any) -> Iterator[None]:
    """The rows are committed. An open transaction that has written would hold up all who wait for older ones, in every database."""
    with django_db_blocker.unblock():
        fill(ORDERS)
        yield
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")
        connection.close()


@pytest.fixture
def filled(years: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


# Half of what one batch has. Beside so few rows PostgreSQL before 17 would rather read all than look up 200.
BATCH = [f"o{n}" for n in range(1, 101)]
RUNS = list(range(1, 101))
STATEMENTS = {
    "the facts of orders": (facts.OF_ORDERS, {"runs": RUNS}),
    "whose orders leave": (leaving._MINE.format(which="o.run_id = ANY (%(runs)s)"), {"runs": RUNS}),
    "whose orders are forgotten": (leaving._MINE.format(which="o.public_id = ANY (%(orders)s)"), {"orders": BATCH}),
    "what came later": (leaving._BUSY, {"orders": BATCH}),
    "documents that wait": (
        leaving._UNISSUED,
        {"orders": BATCH, "invoices": "issue-invoices", "notes": "issue-credit-notes", "refunds": "issue-refund-notes"},
    ),
    "an order's rows": (leaving._TAKE_OUT, {"orders": BATCH}),
    "archived runs": (records._OLD, {"after": 0, "size": 500, "days": 3650}),
    "the archive's end": (records._FORGET, {"keys": BATCH}),
    "documents": (expired._DOCUMENTS, {"years": 10, "size": 500}),
    "sessions": (expired._SESSIONS, {"size": 500}),
    "payment events": (payment_events._FORGET, {"seconds": 2_592_000}),
    "parcel events": (parcel_events._FORGET, {"seconds": 2_592_000}),
    "parcels of others": (expired._PARCELS, {"seconds": 2_592_000, "size": 500}),
    "the history's chain": (chain_ends._DELETE_OLD, {"days": 3650, "size": 50}),
    "bytes of dead letters": (ending._OLD, {"after": 0, "size": 200, "days": 90}),
    "exchanges": (exchanges._DELETE_OLD, {"days": 14, "batch": 5000}),
    **{table: (records.deletion(table), {"after": 0, "size": 500, "days": 3650}) for table in records.RECORDS},
}


@pytest.mark.parametrize("what", STATEMENTS)
def test_what_leaves_is_found_by_an_index_beside_years_of_rows(what, filled):
    for scans, tables in ((False, set(TABLES) - SMALL), (True, BIG)):
        plan = explained(*STATEMENTS[what], scans=scans)
        assert not set(re.findall(r"Seq Scan on (\w+)", plan)) & tables, plan


def test_every_tidier_is_among_these_statements():
    assert tasks.request_log.BATCH  # the supervisor's module imports all of them
    assert set(tidying._TIDIERS) == {
        "the archive", "documents", "sessions", "requests of API clients", "events of the payment service", "events of the carrier",
        "parcels of others", "metrics", "the history's chain", "bytes of dead letters", "exchanges", *records.RECORDS,
        "heartbeats", "closures", "jobs", "counts of requests", "readings of redelivered messages",  # these do not grow with the orders
    }  # fmt: skip


@pytest.mark.django_db(transaction=True)  # an open transaction would hold up other tests
def test_a_turn_deletes_batch_by_batch_what_is_over_and_nothing_else(monkeypatch):
    """Each batch is bounded, and each pass ends at the first page that is too young."""
    for module in (records, expired):
        monkeypatch.setattr(module, "SIZE", 50)
    monkeypatch.setattr(records, "_AT", {})  # where an earlier test's passes had come
    Session.objects.all().delete()
    fill(FEW)
    before = counted()
    sizes, idle = [before], 0
    while idle < len(tidying._TIDIERS):
        tidying.turn(0.0)  # one batch of the next table
        sizes.append(counted())
        idle = idle + 1 if sizes[-1] == sizes[-2] else 0
    after = sizes[-1]

    assert after["supervision_archivedrun"] == pytest.approx(FEW * 3650 / 3700, abs=1)
    assert after["supervision_historybatch"] == after["supervision_historylink"] == pytest.approx(after["supervision_archivedrun"], abs=1)
    assert after["orders_parcel"] == after["orders_order"] == after["supervision_archivedrun"]
    assert after["supervision_incident"] == after["supervision_incidentnote"] == after["supervision_telling"]
    assert after["supervision_incident"] == pytest.approx(before["supervision_incident"] * 3650 / 3700, abs=1)
    assert after["orders_document"] == before["orders_document"] - gone_documents()
    assert after["django_session"] <= 1
    assert after["orders_parcelevent"] == pytest.approx(3 * FEW * 30 / 3700, abs=3)
    for table in TABLES:
        most = 1000 if table.endswith("event") else 50
        assert all(0 <= one[table] - two[table] <= most for one, two in pairwise(sizes)), table


def counted() -> dict[str, int]:
    with connection.cursor() as cursor:
        found = {}
        for table in TABLES:
            cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - the names of `filled`
            found[table] = cursor.fetchone()[0]
    return found


def gone_documents() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(gone) FROM orders_documentcounter WHERE gone = last OR gone = 0")
        return int(cursor.fetchone()[0])

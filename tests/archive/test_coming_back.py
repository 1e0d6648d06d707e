"""`manage.py unarchive` makes the shop's rows of archived orders anew: what can still happen after an order can happen again."""

from __future__ import annotations

import io
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection

from orders.models import Order, OrderLine, Parcel, PaymentAdjustment, Return
from orders.queries import order_view
from orders.records import facts
from orders.refunds.asking import refund
from orders.returns.asking import ask
from orders.returns.correcting import correct
from orders.services import Conflict
from supervision import testing
from supervision.models import ArchivedRun, Run
from supervision.operations.ending import unarchiving
from tests.engine import kit
from tests.engine.conftest import tuned  # noqa: F401
from tests.orders.test_returns import ada, asked, body, deliver, delivered, goods, olga, paying, shop

from .test_all_of_an_order import archived, left_of, rich, shown, sound, told

__all__ = ["ada", "delivered", "olga", "shop"]

TABLES = {
    "orders_order": "public_id", "orders_orderline": "sku", "orders_parcel": "key", "orders_return": "public_id",
    "orders_returnline": "sku", "orders_returncorrection": "number", "orders_returnable": "sku", "orders_refund": "public_id",
    "orders_mailagain": "public_id", "orders_paymentadjustment": "external_id",
}  # fmt: skip
# New ids; and what is of use only until a parcel has arrived.
OTHER = {"id", "order_id", "of_id", "look_at", "looks"}


def rows() -> dict[str, list[Any]]:
    """The shop's rows about orders, without their own ids."""
    found = {}
    with connection.cursor() as cursor:
        for table, order in TABLES.items():
            cursor.execute(f"SELECT to_jsonb(t) FROM {table} t ORDER BY {order}")  # noqa: S608 - the names above
            found[table] = [{name: value for name, value in json.loads(row).items() if name not in OTHER} for (row,) in cursor.fetchall()]
    return found


def unarchive(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("unarchive", "--reason", "a late return", *arguments, "--json", stdout=out)
    return dict(json.loads(out.getvalue()))


def back(brought: int, left: int = 0, not_archived: int = 0) -> dict[str, Any]:
    return {"brought": brought, "left": left, "not_archived": not_archived, "dry_run": False}


def test_every_row_comes_back_as_it_was_and_its_customer_sees_the_same(shop, ada):
    order = rich(shop, ada)
    seen, before = shown(order, ada), rows()
    assert all(before.values()), before
    archived(keep=False)
    assert not any(rows().values())

    assert unarchive(order) == back(1)

    assert rows() == before
    assert shown(order, ada) == seen
    assert not Run.objects.exists()  # the run itself stays in the archive
    assert sound()


def test_what_came_back_can_be_returned_and_refunded_and_its_old_requests_are_known(shop, ada):
    order = rich(shop, ada)
    archived(keep=False)
    view = order_view(order)
    assert view is not None
    with pytest.raises(Conflict, match="archived"):
        ask(view, body(mugs=1)["lines"], "too small", by="customer")
    unarchive(order)

    with pytest.raises(Conflict, match="yet returned"):  # one of the two mugs was returned
        asked(shop, order, mugs=2)
    of = asked(shop, order, mugs=1)
    goods(shop, of, ("MUG-BLUE", 1, 0))
    paid = refund(order, amount=Decimal("1.00"), reason="kindness", by="olga", idempotency_key="two").public_id
    shop.run()
    told(shop)

    assert [testing.run_of(one).process_state for one in (of, paid)] == ["Processed"] * 2
    assert Return.objects.get(public_id=of).number.endswith("-R3")
    assert paying(order)["refunded"] == str(Decimal("12.90") * 2 + Decimal("18.00") + Decimal("5.00") + Decimal("2.50") + Decimal("1.00"))
    second = Return.objects.get(number__endswith="-R2").public_id
    report = {"lines": [{"sku": "TOTE-OCHRE", "accepted": 1, "refused": 0}]}
    assert correct(second, report, reason="it is as new", by="olga", idempotency_key="one").number == 1
    assert left_of(order)["ReturnCorrection"] == 1
    assert sound()


def test_repeating_it_changes_nothing_and_a_live_order_is_named(shop, ada):
    order = rich(shop, ada)
    archived(keep=True)
    before = rows()

    assert unarchive(order)["left"] == 1  # the night had left its rows
    assert rows() == before

    with pytest.raises(CommandError, match="no order 'nonsense'"):
        unarchive("nonsense")
    young = deliver(shop, ada)
    assert unarchive(young, order) == back(0, 1, 1)


def test_a_period_is_brought_back_and_a_dry_run_changes_nothing(shop, ada):
    orders = [deliver(shop, ada) for _ in range(3)]
    told(shop)
    archived(keep=False)
    for order, day in zip(orders, ("2025-03-31T23:59Z", "2025-04-01T00:00Z", "2025-05-01T00:00Z"), strict=True):
        ArchivedRun.objects.filter(key=order).update(finished_at=day)
    period = ("--ended-from", "2025-04-01", "--ended-to", "2025-05-01", "--batch", "1")

    assert unarchive(*period, "--dry-run") == {**back(1), "dry_run": True}
    assert not Order.objects.exists()

    assert unarchive(*period) == back(1)
    assert Order.objects.get().public_id == orders[1]
    assert unarchive(*period) == back(0, 1)


def test_the_operators_log_says_who_brought_each_order_back_and_why(shop, ada, olga):
    orders = [deliver(shop, ada) for _ in range(2)]
    told(shop)
    archived(keep=False)

    unarchive(*orders, "--by", "olga", "--dry-run")
    assert not LogEntry.objects.filter(user__username="olga").exists()
    unarchive(*orders, "--by", "olga")
    unarchive(*orders, "--by", "olga")

    noted = LogEntry.objects.filter(user__username="olga").order_by("pk")
    assert sorted(entry.object_id for entry in noted) == sorted(orders)
    assert {entry.get_change_message() for entry in noted} == {"Brought back from the archive: a late return"}
    with pytest.raises(CommandError, match="--reason must say something"):
        call_command("unarchive", *orders)
    call_command("unarchive", *orders, "--dry-run", stdout=io.StringIO())  # nothing is done, so nothing has a reason


@pytest.mark.parametrize(
    "arguments",
    [[], ["x", "--ended-from", "2025-04-01"], ["--ended-from", "2025-04-01"], ["--ended-from=2025-04-01", "--ended-to=2025-04-01"]],
)
def test_a_period_has_both_ends_and_stands_alone(arguments, db):
    with pytest.raises(CommandError, match="give"):
        unarchive(*arguments)


def test_killed_in_the_middle_every_order_is_whole_and_the_next_try_does_the_rest(shop, ada):
    orders = [deliver(shop, ada) for _ in range(4)]
    told(shop)
    archived(keep=False)
    environ = {"FAILPOINTS": "unarchive.before_commit=kill9@3", "ALLOW_FAILPOINTS": "1"}

    assert kit.Process("unarchive", "1", *orders, **environ).ready().begin().code() == -9

    assert set(Order.objects.values_list("public_id", flat=True)) == set(orders[:2])
    assert OrderLine.objects.count() == 2 * 2
    assert unarchive(*orders, "--batch", "3") == back(2, 2)
    assert OrderLine.objects.count() == 4 * 2
    assert sound()


def test_two_at_once_bring_each_order_back_once(shop, ada):
    orders = [deliver(shop, ada) for _ in range(3)]
    told(shop)
    archived(keep=False)
    late = {"FAILPOINTS": "unarchive.before_commit=sleep=0.5", "ALLOW_FAILPOINTS": "1"}  # both are at the same order
    processes = [kit.Process("unarchive", "1", *orders, **late).ready() for _ in range(2)]

    counts = [process.begin() for process in processes]

    assert sum(process.answer() for process in counts) == 3
    assert OrderLine.objects.count() == 3 * 2
    assert sound()


def test_what_came_after_the_order_had_left_stays_as_it_is(shop, ada):
    order = rich(shop, ada)
    archived(keep=False)
    kept = ArchivedRun.objects.get(key=order).application
    Parcel.objects.create(key=kept["parcels"][0]["key"], order_key=order, state="returned")
    one = kept["adjustments"][0]
    PaymentAdjustment.objects.create(
        external_id=one["number"], kind="refund", intent=one["intent"], order_key=order, amount=one["amount"], currency="EUR",
        status="failed", gives_back=False, rank=2,
    )  # fmt: skip

    unarchive(order)

    assert Parcel.objects.get(order_key=order).state == "returned"
    assert PaymentAdjustment.objects.get(external_id=one["number"]).status == "failed"


def test_an_archive_of_an_earlier_release_comes_back_too(shop, ada, monkeypatch):
    """Its facts lack what later releases keep; and the account may be gone."""
    lately = ("'key', c.key, 'digest', c.digest,", "'rank', a.rank,", r",\s*'trouble_at', p.trouble_at")
    monkeypatch.setattr(facts, "OF_ORDERS", re.sub("|".join(lately), "", facts.OF_ORDERS))
    order, bare = rich(shop, ada), deliver(shop, ada)
    told(shop)
    archived(keep=False)
    row = ArchivedRun.objects.get(key=bare)
    bare_facts = {name: row.body["application"][name] for name in ("reference", "email", "total", "currency", "created_at", "lines")}
    ArchivedRun.objects.filter(key=bare).update(body=row.body | {"application": {**bare_facts, "account": 2_000_000}})

    assert unarchive(order, bare) == back(2)

    assert Order.objects.get(public_id=bare).account is None
    assert left_of(order)["ReturnCorrection"] == 1
    assert User.objects.filter(username="ada").exists()
    assert sound()


def test_runs_without_rows_of_an_application_are_left_where_they_are(shop, ada):
    order = rich(shop, ada)
    archived(keep=False)
    later = ArchivedRun.objects.exclude(key=order).values_list("key", flat=True)

    assert list(unarchiving.bring_back(list(later), by="a test", reason="a test")) == [unarchiving.Back(brought=0, left=len(later))]
    row = ArchivedRun.objects.get(key=order)
    ArchivedRun.objects.filter(key=order).update(body=row.body | {"application": {}})
    assert list(unarchiving.bring_back([order], by="a test", reason="a test")) == [unarchiving.Back(brought=0, left=1)]

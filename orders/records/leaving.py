"""Orders leave the shop's tables: into the archive, in the transaction that takes their runs out of the hot tables, or for good.

The nightly archive leaves the shop's rows, so that its lists and books show every order. `manage.py archive` without `--keep-orders`
moves them into the archive. Those that are left go when the order's archive goes, after RECORD_DAYS. Documents have an end of their own
(`orders.records.expired`).

An order's rows leave after everything that came later for it: its returns, its refunds, its mails and its documents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orders import accounting
from orders.records import facts
from supervision.postgres import db

# A request that comes at this moment has the order's row locked, and it is left to the next pass. One that comes later waits for us,
# and finds no row.
_MINE = "SELECT o.run_id, o.public_id FROM orders_order o WHERE {which} ORDER BY o.id FOR UPDATE SKIP LOCKED"
# Lists of keys, because the planner would rather read the whole archive than look up each key in it.
_BUSY = """
WITH later AS MATERIALIZED (
    SELECT order_key, public_id FROM orders_return WHERE order_key = ANY (%(orders)s)
    UNION ALL SELECT order_key, public_id FROM orders_refund WHERE order_key = ANY (%(orders)s)
    UNION ALL SELECT order_key, public_id FROM orders_mailagain WHERE order_key = ANY (%(orders)s)),
gone AS MATERIALIZED (SELECT key FROM supervision_archivedrun WHERE key = ANY (ARRAY(SELECT public_id FROM later))),
here AS MATERIALIZED (
    SELECT key FROM supervision_run WHERE key = ANY (ARRAY(SELECT public_id FROM later))
    UNION ALL SELECT public_id FROM supervision_submission
               WHERE public_id = ANY (ARRAY(SELECT public_id FROM later EXCEPT SELECT key FROM gone)))
SELECT DISTINCT later.order_key FROM later JOIN here ON here.key = later.public_id
"""
# Documents are issued after the order or the return has ended. The index over undelivered notifications finds those that wait.
_UNISSUED = """
SELECT o.public_id FROM orders_order o
 WHERE o.public_id = ANY (%(orders)s)
   AND o.run_id IN (SELECT jsonb_array_elements(n.payload->'runs')::bigint FROM supervision_notification n
                     WHERE n.delivered_at IS NULL AND n.given_up_at IS NULL AND NOT (n.kind = 'status') AND n.kind = %(invoices)s)
UNION
SELECT o.public_id FROM orders_order o
 WHERE o.public_id = ANY (%(orders)s)
   AND o.public_id IN (SELECT jsonb_array_elements(n.payload->'refunds')->>'order' FROM supervision_notification n
                        WHERE n.delivered_at IS NULL AND n.given_up_at IS NULL AND NOT (n.kind = 'status') AND n.kind = %(refunds)s)
UNION
SELECT t.order_key FROM orders_return t
 WHERE t.order_key = ANY (%(orders)s)
   AND t.public_id IN (SELECT jsonb_array_elements_text(n.payload->'returns') FROM supervision_notification n
                        WHERE n.delivered_at IS NULL AND n.given_up_at IS NULL AND NOT (n.kind = 'status') AND n.kind = %(notes)s)
"""
# The reservations of ended orders are not needed any more: the pieces were either sold or released.
_FORGET_RESERVATIONS = """
DELETE FROM orders_stockreservation h USING orders_order o WHERE o.run_id = ANY (%(runs)s) AND h.order_key = o.public_id
"""
_TAKE_OUT = """
WITH rl AS (
    DELETE FROM orders_returnline WHERE of_id = ANY (ARRAY(SELECT id FROM orders_return WHERE order_key = ANY (%(orders)s)))),
rc AS (
    DELETE FROM orders_returncorrection
     WHERE return_key = ANY (ARRAY(SELECT public_id FROM orders_return WHERE order_key = ANY (%(orders)s)))),
r AS (DELETE FROM orders_return WHERE order_key = ANY (%(orders)s)),
c AS (DELETE FROM orders_returnable WHERE order_key = ANY (%(orders)s)),
f AS (DELETE FROM orders_refund WHERE order_key = ANY (%(orders)s)),
m AS (DELETE FROM orders_mailagain WHERE order_key = ANY (%(orders)s)),
a AS (DELETE FROM orders_paymentadjustment WHERE order_key = ANY (%(orders)s)),
p AS (DELETE FROM orders_parcel WHERE order_key = ANY (%(orders)s)),
w AS (DELETE FROM orders_parcelwatch WHERE order_key = ANY (%(orders)s)),
h AS (DELETE FROM orders_stockreservation WHERE order_key = ANY (%(orders)s)),
l AS (DELETE FROM orders_orderline WHERE order_id = ANY (ARRAY(SELECT id FROM orders_order WHERE public_id = ANY (%(orders)s))))
DELETE FROM orders_order WHERE public_id = ANY (%(orders)s)
"""


def held(run_ids: Sequence[int], *, keep: bool) -> Collection[int]:
    """Those of these runs whose orders cannot leave yet: something that came later for them has not ended, or is not archived yet."""
    if keep:
        return ()
    mine: dict[int, str] = dict(db.fetch(_MINE.format(which="o.run_id = ANY (%(runs)s)"), {"runs": list(run_ids)}))
    waiting = busy(list(mine.values()))
    known = {run for (run,) in db.fetch("SELECT run_id FROM orders_order WHERE run_id = ANY (%(runs)s)", {"runs": list(run_ids)})}
    return {run for run in known if mine.get(run) is None or mine[run] in waiting}


def archive(run_ids: Sequence[int], *, keep: bool) -> Mapping[int, Mapping[str, Any]]:
    """The orders of these runs as JSON values, by run. With `keep` the shop's rows stay, otherwise they are deleted."""
    runs = {"runs": list(run_ids)}
    found = dict(db.fetch(facts.OF_ORDERS, runs))
    db.fetch(_FORGET_RESERVATIONS, runs)
    if not keep:
        orders = db.fetch("SELECT public_id FROM orders_order WHERE run_id = ANY (%(runs)s)", runs)
        db.fetch(_TAKE_OUT, {"orders": [order for (order,) in orders]})
    return found


def forget(keys: Sequence[str]) -> Collection[str]:
    """Delete all that is left of these orders but their documents. Returns those that stay: something later has not ended."""
    orders = {"orders": list(keys)}
    mine = {order for _run, order in db.fetch(_MINE.format(which="o.public_id = ANY (%(orders)s)"), orders)}
    known = {order for (order,) in db.fetch("SELECT public_id FROM orders_order WHERE public_id = ANY (%(orders)s)", orders)}
    stay = busy(list(keys)) | (known - mine)
    db.fetch(_TAKE_OUT, {"orders": [key for key in keys if key not in stay]})
    return stay


def later(run_ids: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
    """The facts of returns, refunds and mails sent again, by run. Their rows leave with their order."""
    return dict(db.fetch(facts.OF_LATER_RUNS, {"runs": list(run_ids)}))


def busy(orders: list[str]) -> set[str]:
    """Those of these orders for which something later has not ended, is not archived yet, or whose documents are not issued yet."""
    if not orders:
        return set()
    kinds = {"invoices": accounting.ISSUE_INVOICES, "notes": accounting.ISSUE_CREDIT_NOTES, "refunds": accounting.ISSUE_REFUND_NOTES}
    return {order for (order,) in [*db.fetch(_BUSY, {"orders": orders}), *db.fetch(_UNISSUED, {"orders": orders, **kinds})]}

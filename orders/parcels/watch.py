"""Finds the parcels of new orders. It reads the orders afterwards, so that it adds no statement to the processing of an order.

1. `read_orders` goes through the orders by their id. Ids may become visible late, so it goes only as far as no earlier one can come
   (`ParcelCursor`). Each order gets a watch.
2. `look_at_orders` takes the due watches. The bookings that are done become parcels; an order that has ended needs no watch.

Any number of processes may do this at once: they skip each other's rows.
"""

from __future__ import annotations

from django.conf import settings

from orders.parcels.states import FINAL
from supervision.postgres import db

BATCH = 1_000
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3_600.0  # seconds between two looks at an order that has not ended

_BEGIN = """
INSERT INTO orders_parcelcursor (id, done_to, seen_to, seen_before)
SELECT 1, first.id, first.id, 0
  FROM (SELECT coalesce((SELECT o.id - 1 FROM orders_order o WHERE o.created_at > now() - %(watched)s::float8 * interval '1 s'
                          ORDER BY o.created_at, o.id LIMIT 1), (SELECT max(id) FROM orders_order), 0)) first(id)
ON CONFLICT (id) DO NOTHING
"""
# A transaction's number that is still to come is of another server, from which the database was restored. Of what was under way
# there, nothing can be committed any more.
_WHERE = """
SELECT done_to, seen_to, pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= seen_before
                         OR pg_snapshot_xmax(pg_current_snapshot())::text::bigint < seen_before
  FROM orders_parcelcursor WHERE id = 1 FOR UPDATE SKIP LOCKED
"""
_WATCH = """
WITH o AS (
    SELECT id, public_id, run_id FROM orders_order WHERE id > %(done_to)s AND id <= %(seen_to)s ORDER BY id LIMIT %(batch)s),
w AS (INSERT INTO orders_parcelwatch (order_key, run_id) SELECT public_id, run_id FROM o ORDER BY id ON CONFLICT DO NOTHING)
UPDATE orders_parcelcursor
   SET done_to = CASE WHEN (SELECT count(*) FROM o) < %(batch)s THEN %(seen_to)s ELSE (SELECT max(id) FROM o) END
 WHERE id = 1 RETURNING done_to
"""
_SEE = """
UPDATE orders_parcelcursor
   SET seen_to = greatest(seen_to, coalesce((SELECT max(id) FROM orders_order), 0)),
       seen_before = pg_snapshot_xmax(pg_current_snapshot())::text::bigint
 WHERE id = 1
"""
# No pause is longer: such a time was set by a clock that ran ahead and has been put back since.
_TOO_FAR = """
UPDATE orders_parcelwatch SET look_at = now()
 WHERE order_key = ANY (ARRAY(SELECT order_key FROM orders_parcelwatch WHERE look_at > now() + 2 * %(longest)s::float8 * interval '1 s'
                               ORDER BY look_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
"""
_DUE = """
SELECT order_key, run_id FROM orders_parcelwatch WHERE look_at <= now() ORDER BY look_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED
"""
# The bookings of the order itself and of its child runs. One that a webhook told of before keeps the state that it has.
_FIND = """
INSERT INTO orders_parcel AS p (key, order_key, shipment, tracking_number, booked_at, look_at)
SELECT s.idempotency_key, v.order_key, s.result->>'shipment', coalesce(s.result->>'tracking_number', ''),
       coalesce(s.finished_at, now()),
       CASE WHEN coalesce(s.finished_at, now()) > now() - %(watched)s::float8 * interval '1 s'
            THEN now() + %(after)s::float8 * interval '1 s' END
  FROM unnest(%(orders)s::text[], %(runs)s::bigint[]) v(order_key, run_id)
 CROSS JOIN LATERAL (
       SELECT v.run_id
       UNION ALL
       SELECT r.id FROM supervision_child c JOIN supervision_run r ON r.key = c.key WHERE c.parent_key = v.order_key) f(run_id)
  JOIN supervision_stepstate s
    ON s.run_id = f.run_id AND s.direction = 'do' AND s.agent = 'shipping' AND s.process_state || '' = 'Processed'
 WHERE s.result->>'shipment' <> ''
 ORDER BY 1
ON CONFLICT (key) DO UPDATE
   SET order_key = excluded.order_key, shipment = excluded.shipment, tracking_number = excluded.tracking_number,
       booked_at = excluded.booked_at, trouble = nullif(p.trouble, 'unknown_key'),
       look_at = CASE WHEN NOT p.state = ANY (%(final)s) THEN coalesce(p.look_at, excluded.look_at) END
 WHERE (p.order_key, p.shipment) <> (excluded.order_key, excluded.shipment)
"""
_ENDED = """
DELETE FROM orders_parcelwatch w
 WHERE w.order_key = ANY (%(orders)s)
   AND NOT EXISTS (SELECT FROM supervision_run r WHERE r.id = w.run_id AND r.process_state NOT IN ('Processed', 'Cancelled'))
"""
_LATER = """
UPDATE orders_parcelwatch
   SET looks = least(looks + 1, 100),
       look_at = now() + least(%(first)s::float8 * 2 ^ least(looks, 10), %(longest)s::float8) * interval '1 s'
 WHERE order_key = ANY (%(orders)s)
"""


def read_orders() -> bool:
    """Watch the next orders, at most BATCH; True if there may be more at once."""
    return db.transact(_read_orders)


def _read_orders() -> bool:
    db.fetch(_BEGIN, {"watched": settings.PARCEL_WATCHED_FOR})
    found = db.fetch(_WHERE)
    if not found:
        return False  # another process is at it
    done_to, seen_to, complete = found[0]
    if done_to < seen_to and complete:
        done_to = db.fetch(_WATCH, {"done_to": done_to, "seen_to": seen_to, "batch": BATCH})[0][0]
    if done_to < seen_to:
        return bool(complete)
    db.fetch(_SEE)
    return False


def look_at_orders() -> int:
    """Turn the bookings of due orders into parcels; returns how many orders it looked at, at most BATCH."""
    return db.transact(_look_at_orders)


def _look_at_orders() -> int:
    db.fetch(_TOO_FAR, {"longest": LONGEST_PAUSE, "batch": BATCH})
    due = db.fetch(_DUE, {"batch": BATCH})
    if due:
        orders = {"orders": [order for order, _ in due], "runs": [run for _, run in due]}
        times = {"watched": settings.PARCEL_WATCHED_FOR, "after": settings.PARCEL_LOOK_AFTER, "final": list(FINAL)}
        # What has ended is decided first: a booking that is done between the two statements belongs to an order that has not.
        db.fetch(_ENDED, orders)
        db.fetch(_FIND, {**orders, **times})
        db.fetch(_LATER, {**orders, "first": FIRST_PAUSE, "longest": LONGEST_PAUSE})
    return len(due)

"""Orders come back: the shop's rows are made anew from the archive's facts, so that goods can be returned and money given back again.

The opposite of `orders.records.leaving`. The order's run stays in the archive, as it does after every night.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from supervision.postgres import db

# One statement for a batch. What came after the order had left is newer than the facts, and stays as it is. A reservation is not made
# anew: the pieces were sold or released. What returns hold of the order's pieces is counted from their lines. An archive of an earlier
# release has no `rank`, `key`, `digest` and `trouble_at`.
_BRING_BACK = """
WITH f AS MATERIALIZED (
    SELECT a.key, a.run_id, a.body -> 'application' AS facts,
           coalesce(a.body -> 'run' -> 'payload' -> 'shipping_address' ->> 'name', '') AS customer
      FROM supervision_archivedrun a
     WHERE a.key = ANY (%(orders)s) AND a.body -> 'application' ? 'account'
       AND NOT EXISTS (SELECT FROM orders_order o WHERE o.public_id = a.key)),
o AS (
    INSERT INTO orders_order (public_id, number, run_id, account_id, email, total, currency, created_at, customer)
    SELECT f.key, facts ->> 'reference', f.run_id, u.id, facts ->> 'email', (facts ->> 'total')::numeric, facts ->> 'currency',
           (facts ->> 'created_at')::timestamptz, f.customer
      FROM f LEFT JOIN auth_user u ON u.id = (facts ->> 'account')::int
    RETURNING id, public_id),
l AS (
    INSERT INTO orders_orderline (order_id, sku, name, quantity, unit_price)
    SELECT o.id, v.sku, v.name, v.quantity, v.unit_price
      FROM o JOIN f ON f.key = o.public_id,
           ROWS FROM (jsonb_to_recordset(f.facts -> 'lines') AS (sku text, name text, quantity int, unit_price numeric))
               WITH ORDINALITY v(sku, name, quantity, unit_price, place)
     ORDER BY o.id, v.place),
p AS (
    INSERT INTO orders_parcel (key, order_key, shipment, tracking_number, state, changed_at, booked_at, trouble, trouble_at)
    SELECT v.key, f.key, v.shipment, v.number, v.state, v.changed_at, v.booked_at, v.trouble,
           CASE WHEN v.trouble IS NOT NULL THEN coalesce(v.trouble_at, v.changed_at, now()) END
      FROM f, jsonb_to_recordset(f.facts -> 'parcels') v(key text, shipment text, number text, state text, changed_at timestamptz,
                                                         booked_at timestamptz, trouble text, trouble_at timestamptz)
    ON CONFLICT (key) DO NOTHING),
back AS MATERIALIZED (
    SELECT f.key AS order_key, v.*
      FROM f, ROWS FROM (jsonb_to_recordset(f.facts -> 'returns')
                         AS (id text, number text, reason text, asked_by text, currency text, created_at timestamptz, lines jsonb,
                             corrections jsonb))
           WITH ORDINALITY v(id, number, reason, asked_by, currency, created_at, lines, corrections, place)),
r AS (
    INSERT INTO orders_return (public_id, order_key, number, reason, asked_by, currency, created_at, corrections)
    SELECT id, order_key, number, reason, asked_by, currency, created_at, coalesce(jsonb_array_length(nullif(corrections, 'null')), 0)
      FROM back ORDER BY order_key, place
    ON CONFLICT (public_id) DO NOTHING RETURNING id, public_id),
rl AS (
    INSERT INTO orders_returnline (of_id, sku, name, quantity, unit_price, accepted, refused, holds, restocked, reported)
    SELECT r.id, v.sku, v.name, v.quantity, v.unit_price, v.accepted, v.refused, v.holds, v.restocked, v.reported
      FROM r JOIN back ON back.id = r.public_id,
           ROWS FROM (jsonb_to_recordset(back.lines)
                      AS (sku text, name text, quantity int, unit_price numeric, accepted int, refused int, holds int, restocked int,
                          reported int))
               WITH ORDINALITY v(sku, name, quantity, unit_price, accepted, refused, holds, restocked, reported, place)
     ORDER BY r.id, v.place
    RETURNING of_id),
rc AS (
    INSERT INTO orders_returncorrection (return_key, number, key, digest, lines, paid, too_much, further, refund, reason, asked_by,
                                         created_at)
    SELECT r.public_id, v.number, coalesce(v.key, 'archived:' || v.number), coalesce(v.digest, ''), v.lines, v.paid, v.too_much, v.further,
           v.refund, v.reason, v.asked_by, v.created_at
      FROM r JOIN back ON back.id = r.public_id,
           jsonb_to_recordset(back.corrections) v(number int, key text, digest text, lines jsonb, paid boolean, too_much numeric,
                                                  further numeric, refund text, reason text, asked_by text, created_at timestamptz)),
c AS (
    INSERT INTO orders_returnable (order_key, sku, delivered, returned)
    SELECT f.key, d.sku, d.pieces, coalesce(h.pieces, 0)
      FROM f,
           LATERAL (SELECT v.sku, sum(v.quantity) AS pieces FROM jsonb_to_recordset(f.facts -> 'lines') v(sku text, quantity int)
                     GROUP BY v.sku) d
           LEFT JOIN LATERAL (SELECT sum(v.holds) AS pieces
                                FROM back, jsonb_to_recordset(back.lines) v(sku text, holds int)
                               WHERE back.order_key = f.key AND v.sku = d.sku) h ON true
     WHERE EXISTS (SELECT FROM back WHERE back.order_key = f.key)
    ON CONFLICT (order_key, sku) DO NOTHING),
m AS (
    INSERT INTO orders_refund (public_id, order_key, number, amount, currency, reason, replaces, asked_by, created_at)
    SELECT v.id, f.key, v.number, v.amount, v.currency, v.reason, coalesce(v.replaces, ''), v.asked_by, v.created_at
      FROM f, jsonb_to_recordset(f.facts -> 'refunds') v(id text, number text, amount numeric, currency text, reason text, replaces text,
                                                         asked_by text, created_at timestamptz)
    ON CONFLICT (public_id) DO NOTHING),
g AS (
    INSERT INTO orders_mailagain (public_id, order_key, email, reason, asked_by, created_at)
    SELECT v.id, f.key, v.number, v.reason, v.asked_by, v.created_at
      FROM f, jsonb_to_recordset(f.facts -> 'mails_again') v(id text, number text, reason text, asked_by text, created_at timestamptz)
    ON CONFLICT (public_id) DO NOTHING),
a AS (
    INSERT INTO orders_paymentadjustment (external_id, kind, intent, order_key, amount, currency, status, gives_back, rank, reason,
                                          heard_at, changed_at)
    SELECT v.number, v.kind, v.intent, f.key, v.amount, v.currency, v.status, v.gives_back, coalesce(v.rank, 0), coalesce(v.reason, ''),
           v.heard_at, v.changed_at
      FROM f, jsonb_to_recordset(f.facts -> 'adjustments') v(number text, kind text, intent text, amount numeric, currency text,
                                                             status text, gives_back boolean, rank smallint, reason text,
                                                             heard_at timestamptz, changed_at timestamptz)
    ON CONFLICT (external_id) DO NOTHING)
SELECT public_id FROM o
"""


def bring_back(keys: Sequence[str]) -> Collection[str]:
    """Make the rows of these archived orders anew, and return the orders that got them. Orders that have rows are left as they are."""
    return [key for (key,) in db.fetch(_BRING_BACK, {"orders": list(keys)})]

"""The shop's invariants for `manage.py audit`: orders must match their runs, and stock its reservations."""

from __future__ import annotations

from orders.documents import checks  # noqa: F401 - registers those of documents
from orders.parcels.splitting import SPLIT
from supervision.audit.registry import Check, register

for _invariant, _violations in (
    (
        "stock is never oversold",
        "SELECT sku, available FROM orders_product WHERE available < 0",
    ),
    (
        "an order has its run, under the same public id",
        """
        SELECT o.id AS order_id, o.public_id, o.run_id, r.key AS run_key
          FROM orders_order o LEFT JOIN supervision_run r ON r.id = o.run_id
          LEFT JOIN supervision_archivedrun v ON v.run_id = o.run_id
         WHERE coalesce(r.key, v.key) IS DISTINCT FROM o.public_id
        """,
    ),
    (
        "a run of fulfil-order has its order",
        """
        SELECT r.id AS run_id, r.key FROM supervision_run r
         WHERE r.workflow = 'fulfil-order'
           AND NOT EXISTS (SELECT FROM orders_order o WHERE o.run_id = r.id)
        """,
    ),
    (
        "an order's total is the sum of its lines",
        """
        SELECT o.id AS order_id, o.total, l.total AS lines
          FROM orders_order o
          LEFT JOIN (SELECT order_id, sum(quantity * unit_price) AS total FROM orders_orderline
                      GROUP BY order_id) l ON l.order_id = o.id
         WHERE l.total IS DISTINCT FROM o.total
        """,
    ),
    (
        "a line belongs to an order",
        """
        SELECT l.id AS line, l.order_id FROM orders_orderline l
         WHERE NOT EXISTS (SELECT FROM orders_order o WHERE o.id = l.order_id)
        """,
    ),
    (
        # Unless an operator has cancelled it without undo, and its goods are booked.
        "a Cancelled order holds no stock",
        """
        SELECT s.order_key, s.sku, s.quantity
          FROM orders_stockreservation s JOIN supervision_run r ON r.key = s.order_key
         WHERE s.released_at IS NULL AND r.process_state = 'Cancelled'
           AND NOT EXISTS (SELECT FROM supervision_stepstate u
                            WHERE u.run_id = r.id AND u.direction = 'undo' AND u.agent = 'stock' AND u.result @> '{"left": true}')
        """,
    ),
    (
        "stock is reserved for the lines of an order and for nothing else",
        """
        SELECT held.order_key, held.sku, held.quantity AS reserved, wanted.quantity AS ordered
          FROM (SELECT order_key, sku, sum(quantity) AS quantity FROM orders_stockreservation
                 WHERE released_at IS NULL GROUP BY order_key, sku) held
          LEFT JOIN (SELECT o.public_id, l.sku, sum(l.quantity) AS quantity
                       FROM orders_order o JOIN orders_orderline l ON l.order_id = o.id
                      GROUP BY o.public_id, l.sku) wanted
            ON wanted.public_id = held.order_key AND wanted.sku = held.sku
         WHERE held.quantity IS DISTINCT FROM wanted.quantity
        """,
    ),
    (
        "a Processed order has its stock",
        """
        SELECT o.public_id, l.sku
          FROM supervision_run r
          JOIN supervision_stepstate s
            ON s.run_id = r.id AND s.direction = 'do' AND s.agent = 'stock' AND s.process_state = 'Processed'
          JOIN orders_order o ON o.run_id = r.id
          JOIN orders_orderline l ON l.order_id = o.id
         WHERE r.process_state = 'Processed'
           AND NOT EXISTS (SELECT FROM orders_stockreservation h
                            WHERE h.order_key = r.key AND h.sku = l.sku AND h.released_at IS NULL)
        """,
    ),
    (
        "an order counts the pieces that its returns hold",
        """
        SELECT coalesce(c.order_key, h.order_key) AS order_key, coalesce(c.sku, h.sku) AS sku, c.returned, h.pieces AS held
          FROM orders_returnable c
          FULL JOIN (SELECT t.order_key, l.sku, sum(l.holds) AS pieces
                       FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id GROUP BY t.order_key, l.sku) h
            ON h.order_key = c.order_key AND h.sku = c.sku
         WHERE coalesce(c.returned, 0) <> coalesce(h.pieces, 0)
        """,
    ),
    (
        "a return has its run or submission, and a run of return-goods its return",
        """
        SELECT coalesce(t.public_id, r.key) AS return_key, r.id AS run_id
          FROM orders_return t FULL JOIN (SELECT * FROM supervision_run WHERE workflow = 'return-goods') r ON r.key = t.public_id
         WHERE (t.id IS NULL OR r.id IS NULL)
           AND NOT (t.id IS NOT NULL AND (EXISTS (SELECT FROM supervision_submission u WHERE u.public_id = t.public_id)
                                          OR EXISTS (SELECT FROM supervision_archivedrun v WHERE v.key = t.public_id)))
        """,
    ),
    (
        "a return that is done has put its accepted pieces back into stock, and paid back no more than they are worth",
        """
        SELECT t.public_id AS return_key, x.accepted, x.restocked, x.worth, paid.result->>'refunded' AS refunded
          FROM supervision_run r JOIN orders_return t ON t.public_id = r.key
          JOIN LATERAL (SELECT sum(l.accepted) AS accepted, sum(l.restocked) AS restocked, sum(l.holds * l.unit_price) AS worth
                          FROM orders_returnline l WHERE l.of_id = t.id) x ON true
          LEFT JOIN supervision_stepstate stock
            ON stock.run_id = r.id AND stock.direction = 'do' AND stock.name = 'restock-goods' AND stock.process_state || '' = 'Processed'
          LEFT JOIN supervision_stepstate paid
            ON paid.run_id = r.id AND paid.direction = 'do' AND paid.name = 'refund-part'
         WHERE r.process_state = 'Processed' AND r.workflow = 'return-goods'
           AND (x.accepted IS NULL OR (stock.run_id IS NOT NULL AND x.accepted <> x.restocked)
                OR CASE WHEN paid.result->>'refunded' ~ '^[0-9]{1,12}([.][0-9]*)?$'
                        THEN (paid.result->>'refunded')::numeric > x.worth END)
        """,
    ),
    (
        "a refund has its run or submission, and gives back what was asked for or nothing",
        """
        SELECT f.public_id AS refund_key, f.amount, s.result->>'refunded' AS refunded
          FROM orders_refund f LEFT JOIN supervision_run r ON r.key = f.public_id
          LEFT JOIN supervision_stepstate s
            ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'refund-part' AND s.process_state || '' = 'Processed'
         WHERE (r.id IS NULL AND NOT EXISTS (SELECT FROM supervision_submission u WHERE u.public_id = f.public_id)
                             AND NOT EXISTS (SELECT FROM supervision_archivedrun v WHERE v.key = f.public_id))
            OR CASE WHEN s.result->>'refunded' ~ '^[0-9]{1,12}([.][0-9]*)?$'
                    THEN (s.result->>'refunded')::numeric NOT IN (f.amount, 0) END
        """,
    ),
    (
        "no order was paid out more at the bank than has come for it",
        """
        SELECT a.order_key, sum(a.amount) AS paid_out, o.total, c.received
          FROM orders_paymentadjustment a JOIN orders_order o ON o.public_id = a.order_key
         CROSS JOIN LATERAL (
               SELECT max(CASE WHEN s.result->>'received' ~ '^[0-9]{1,12}([.][0-9]{1,3})?$'
                               THEN (s.result->>'received')::numeric END) AS said,
                      bool_or(s.name IN ('charge-payment', 'capture-payment') AND s.process_state = 'Processed') AS taken
                 FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do'
                WHERE r.key = a.order_key) s
         -- A payment that was completed by hand may not say how much came. One that was skipped took nothing.
         CROSS JOIN LATERAL (SELECT coalesce(s.said, CASE WHEN s.taken IS FALSE THEN 0 ELSE o.total END) AS received) c
         WHERE starts_with(a.external_id, 'payout:') AND a.gives_back
         GROUP BY a.order_key, o.total, c.received HAVING sum(a.amount) > least(o.total, c.received)
        """,
    ),
    (
        "a payout at the bank that is in the ledger is recorded for its order with the same amount",
        """
        SELECT r.key AS return_key, e.amount AS in_ledger, a.amount AS recorded
          FROM supervision_effect e JOIN supervision_run r ON r.id = e.run_id
          LEFT JOIN orders_paymentadjustment a ON a.external_id = 'payout:' || r.key
         WHERE e.operation = 'pay-out' AND e.service = 'bank' AND e.outcome = 'done' AND a.amount IS DISTINCT FROM e.amount
           AND r.workflow IN ('return-goods', 'refund-order')
        """,
    ),
    (
        "a Processed order that was split has a parcel for each warehouse",
        f"""
        SELECT r.id AS run_id, r.key
          FROM supervision_run r
         WHERE r.workflow = 'fulfil-order' AND r.version > {SPLIT} AND r.process_state = 'Processed'
           AND EXISTS (SELECT FROM orders_order o WHERE o.run_id = r.id)
           AND EXISTS (SELECT FROM supervision_stepstate s
                        WHERE s.run_id = r.id AND s.direction = 'do' AND s.agent = 'child' AND s.process_state = 'Processed')
           AND (SELECT array_agg(DISTINCT line->>'warehouse' ORDER BY line->>'warehouse')
                  FROM jsonb_array_elements(r.payload->'lines') line)
               IS DISTINCT FROM
               (SELECT array_agg(k.payload->>'warehouse' ORDER BY k.payload->>'warehouse')
                  FROM supervision_child c JOIN supervision_run k ON k.key = c.key AND k.process_state = 'Processed'
                 WHERE c.parent_key = r.key AND c.state = 'Processed')
        """,  # noqa: S608 - a constant
    ),
    (
        "the numbers of a series of documents have no gap",
        """
        SELECT coalesce(c.series, d.series) AS series, coalesce(c.year, d.year) AS year, c.last, c.gone, d.oldest, d.newest, d.count
          FROM orders_documentcounter c
          FULL JOIN (SELECT series, year, min(number) AS oldest, max(number) AS newest, count(*) AS count
                       FROM orders_document GROUP BY series, year) d
            ON d.series = c.series AND d.year = c.year
         WHERE coalesce(c.last, 0) <> coalesce(d.newest, c.gone, 0) OR coalesce(c.last - c.gone, 0) <> coalesce(d.count, 0)
            OR d.oldest <> c.gone + 1
        """,
    ),
    (
        "the credit notes of an order take back no more than its invoice",
        """
        SELECT n.order_key, n.total AS credited, i.total AS invoiced
          FROM (SELECT order_key, min(year) AS year, sum(total) AS total, sum(vat) AS vat FROM orders_document WHERE kind = 'credit_note'
                 GROUP BY order_key) n
          LEFT JOIN orders_document i ON i.order_key = n.order_key AND i.kind = 'invoice'
         -- An invoice of an earlier year is deleted before its credit notes.
         WHERE n.total > i.total OR n.vat > i.vat
            OR (i.id IS NULL
                AND NOT EXISTS (SELECT FROM orders_documentcounter c WHERE c.series = 'INV' AND c.year < n.year AND c.gone > 0))
        """,
    ),
):
    register(Check(_invariant, _violations))

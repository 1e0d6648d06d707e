"""The shop's invariants for `manage.py audit`: orders must match their runs, and stock its reservations."""

from __future__ import annotations

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
        "a Cancelled order holds no stock",
        """
        SELECT s.order_key, s.sku, s.quantity
          FROM orders_stockreservation s JOIN supervision_run r ON r.key = s.order_key
         WHERE s.released_at IS NULL AND r.process_state = 'Cancelled'
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
):
    register(Check(_invariant, _violations))

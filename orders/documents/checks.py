"""The invariants of documents for `manage.py audit`. They count from what documents, runs and findings hold, not as the code issues."""

from __future__ import annotations

from orders.currencies import WITHOUT_DECIMALS
from supervision.audit.registry import Check, register

# The lines of every document, with their amounts as numbers.
_LINES = """
SELECT d.id, d.order_key, d.kind, d.currency, l->>'rate' AS rate, (l->>'amount')::numeric AS amount, (l->>'vat')::numeric AS vat
  FROM orders_document d CROSS JOIN jsonb_array_elements(d.body->'lines') l
"""
_WHOLE = ", ".join(f"'{code}'" for code in sorted(WITHOUT_DECIMALS))
# A notification that still waits issues what is missing.
_WAITS = """
SELECT FROM supervision_notification n
 WHERE n.kind = 'issue-refund-notes' AND n.delivered_at IS NULL
   AND n.payload->'refunds' @> jsonb_build_array(jsonb_build_object('cause', f.public_id))
"""

CHECKS = (
    (
        "a document has the sums of its lines",
        f"""
        SELECT d.series, d.year, d.number, d.total, d.vat, s.amount AS lines_total, s.vat AS lines_vat
          FROM orders_document d
          LEFT JOIN (SELECT id, sum(amount) AS amount, sum(vat) AS vat FROM ({_LINES}) l GROUP BY id) s ON s.id = d.id
         WHERE d.total IS DISTINCT FROM s.amount OR d.vat IS DISTINCT FROM s.vat
        """,  # noqa: S608 - a constant
    ),
    (
        "credit notes take from each rate of VAT no more than the invoice has of it, and the VAT of the rate",
        f"""
        SELECT order_key, rate, credited, credited_vat, invoiced, invoiced_vat
          FROM (SELECT order_key, rate, count(*) * max(CASE WHEN currency IN ({_WHOLE}) THEN 1 ELSE 0.01 END) AS most_rounded,
                       coalesce(sum(amount) FILTER (WHERE kind = 'credit_note'), 0) AS credited,
                       coalesce(sum(vat) FILTER (WHERE kind = 'credit_note'), 0) AS credited_vat,
                       coalesce(sum(amount) FILTER (WHERE kind = 'invoice'), 0) AS invoiced,
                       coalesce(sum(vat) FILTER (WHERE kind = 'invoice'), 0) AS invoiced_vat
                  FROM ({_LINES}) l GROUP BY order_key, rate) s
         WHERE EXISTS (SELECT FROM orders_document i WHERE i.order_key = s.order_key AND i.kind = 'invoice')  -- else another check tells
           AND (credited > invoiced OR credited_vat > invoiced_vat OR credited < 0
            OR (credited = invoiced AND credited_vat <> invoiced_vat)
            OR abs(credited_vat - credited * rate::numeric / (100 + rate::numeric)) > most_rounded)
        """,  # noqa: S608 - a constant
    ),
    (
        "a refund that paid has one credit note of what it paid, unless less or nothing was left of the invoice",
        f"""
        SELECT f.public_id AS refund_key, p.amount AS refunded, n.notes, n.total AS credited
          FROM orders_refund f
          JOIN supervision_run r ON r.key = f.public_id AND r.process_state || '' IN ('Processed', 'Cancelled')
          LEFT JOIN supervision_stepstate s
            ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'refund-part' AND s.process_state || '' = 'Processed'
               -- A cancelled one stays paid, unless an operator has completed its undo: then the money came back.
               AND (r.process_state || '' = 'Processed'
                    OR NOT EXISTS (SELECT FROM supervision_stepstate u WHERE u.run_id = r.id AND u.direction = 'undo'
                                      AND u.name = s.name AND u.process_state || '' = 'Processed'))
          LEFT JOIN orders_paymentadjustment b ON b.external_id = 'payout:' || f.public_id AND b.gives_back
          JOIN orders_document i ON i.order_key = f.order_key AND i.kind = 'invoice'
         CROSS JOIN LATERAL (SELECT count(*) AS notes, coalesce(sum(d.total), 0) AS total FROM orders_document d
                              WHERE d.order_key = f.order_key AND d.kind = 'credit_note' AND d.return_key = f.public_id) n
         CROSS JOIN LATERAL (SELECT coalesce(sum(d.total), 0) AS total FROM orders_document d
                              WHERE d.order_key = f.order_key AND d.kind = 'credit_note') a
          -- A step that died could not tell what it has paid: the ledger does, and knows what was undone.
         CROSS JOIN LATERAL (SELECT sum(e.amount) AS amount FROM supervision_effect e
                              WHERE e.run_id = r.id AND r.process_state || '' = 'Cancelled' AND e.direction = 'do'
                                AND e.operation = 'refund-part' AND e.service = 'payment' AND e.outcome = 'done') k
         CROSS JOIN LATERAL (SELECT CASE WHEN b.id IS NOT NULL THEN b.amount
                                         WHEN f.replaces = '' AND s.result->>'refunded' ~ '^[0-9]{{1,12}}([.][0-9]{{1,3}})?$'
                                         THEN (s.result->>'refunded')::numeric
                                         WHEN f.replaces = '' AND s.run_id IS NULL AND k.amount > 0 THEN k.amount ELSE 0 END AS amount) p
         WHERE n.notes > 1 OR n.total > p.amount
            OR (n.total < p.amount AND a.total < i.total AND NOT EXISTS ({_WAITS}))
        """,  # noqa: S608 - a constant
    ),
)
for _invariant, _violations in CHECKS:
    register(Check(_invariant, _violations))

"""The shop's facts about orders, and about what came after them, as JSON for the archive. Amounts are texts, so that no digit is lost."""

from __future__ import annotations

# One statement for a batch: each table is read by its index over orders.
OF_ORDERS = """
SELECT o.run_id, jsonb_build_object(
         'reference', o.number, 'account', o.account_id, 'email', o.email, 'total', o.total::text, 'currency', o.currency,
         'created_at', o.created_at,
         'lines', (SELECT jsonb_agg(jsonb_build_object('sku', l.sku, 'name', l.name, 'quantity', l.quantity,
                                                       'unit_price', l.unit_price::text) ORDER BY l.id)
                     FROM orders_orderline l WHERE l.order_id = o.id))
       || jsonb_strip_nulls(jsonb_build_object(
         'parcels', (SELECT jsonb_agg(jsonb_build_object(
                              'key', p.key, 'shipment', p.shipment, 'number', p.tracking_number, 'state', p.state,
                              'changed_at', p.changed_at, 'booked_at', p.booked_at, 'trouble', p.trouble,
                              'trouble_at', p.trouble_at) ORDER BY p.key)
                       FROM orders_parcel p WHERE p.order_key = o.public_id),
         'returns', (SELECT jsonb_agg(jsonb_build_object(
                              'id', t.public_id, 'number', t.number, 'reason', t.reason, 'asked_by', t.asked_by,
                              'currency', t.currency, 'created_at', t.created_at,
                              'lines', (SELECT jsonb_agg(jsonb_build_object(
                                                 'sku', l.sku, 'name', l.name, 'quantity', l.quantity, 'unit_price', l.unit_price::text,
                                                 'accepted', l.accepted, 'refused', l.refused, 'holds', l.holds,
                                                 'restocked', l.restocked, 'reported', l.reported) ORDER BY l.id)
                                          FROM orders_returnline l WHERE l.of_id = t.id),
                              'corrections', (SELECT jsonb_agg(jsonb_build_object(
                                                       'key', c.key, 'digest', c.digest,
                                                       'number', c.number, 'lines', c.lines, 'paid', c.paid, 'reason', c.reason,
                                                       'too_much', c.too_much::text, 'further', c.further::text, 'refund', c.refund,
                                                       'asked_by', c.asked_by, 'created_at', c.created_at) ORDER BY c.number)
                                                FROM orders_returncorrection c WHERE c.return_key = t.public_id)) ORDER BY t.id)
                       FROM orders_return t WHERE t.order_key = o.public_id),
         'refunds', (SELECT jsonb_agg(jsonb_build_object(
                              'id', f.public_id, 'number', f.number, 'amount', f.amount::text, 'currency', f.currency,
                              'reason', f.reason, 'replaces', nullif(f.replaces, ''), 'asked_by', f.asked_by,
                              'created_at', f.created_at) ORDER BY f.id)
                       FROM orders_refund f WHERE f.order_key = o.public_id),
         'mails_again', (SELECT jsonb_agg(jsonb_build_object(
                              'id', m.public_id, 'number', m.email, 'reason', m.reason, 'asked_by', m.asked_by,
                              'created_at', m.created_at) ORDER BY m.id)
                       FROM orders_mailagain m WHERE m.order_key = o.public_id),
         'adjustments', (SELECT jsonb_agg(jsonb_build_object(
                              'number', a.external_id, 'kind', a.kind, 'intent', a.intent, 'amount', a.amount::text,
                              'currency', a.currency, 'status', a.status, 'gives_back', a.gives_back, 'rank', a.rank,
                              'reason', nullif(a.reason, ''),
                              'heard_at', a.heard_at, 'changed_at', a.changed_at) ORDER BY a.id)
                       FROM orders_paymentadjustment a WHERE a.order_key = o.public_id),
         'documents', (SELECT jsonb_agg(jsonb_build_object(
                              'number', d.series || '-' || d.year || '-' || lpad(d.number::text, 6, '0'), 'kind', d.kind,
                              'total', d.total::text, 'vat', d.vat::text, 'currency', d.currency, 'issued_at', d.issued_at,
                              'cause', nullif(d.return_key, '')) ORDER BY d.id)
                       FROM orders_document d WHERE d.order_key = o.public_id)))
  FROM orders_order o WHERE o.run_id = ANY (%(runs)s)
"""
# A return, a refund, a mail that was sent again: each is a run of its own. Its rows stay with its order.
OF_LATER_RUNS = """
SELECT r.id, jsonb_strip_nulls(jsonb_build_object(
         'reference', t.number, 'order', t.order_key, 'reason', t.reason, 'asked_by', t.asked_by, 'currency', t.currency,
         'created_at', t.created_at,
         'pieces', (SELECT jsonb_agg(jsonb_build_object(
                             'number', l.sku, 'quantity', l.quantity, 'unit_price', l.unit_price::text, 'accepted', l.accepted,
                             'refused', l.refused, 'restocked', l.restocked) ORDER BY l.id)
                      FROM orders_returnline l WHERE l.of_id = t.id)))
  FROM supervision_run r JOIN orders_return t ON t.public_id = r.key WHERE r.id = ANY (%(runs)s)
UNION ALL
SELECT r.id, jsonb_strip_nulls(jsonb_build_object(
         'reference', f.number, 'order', f.order_key, 'reason', f.reason, 'asked_by', f.asked_by, 'currency', f.currency,
         'created_at', f.created_at, 'amount', f.amount::text, 'replaces', nullif(f.replaces, '')))
  FROM supervision_run r JOIN orders_refund f ON f.public_id = r.key WHERE r.id = ANY (%(runs)s)
UNION ALL
SELECT r.id, jsonb_build_object('order', m.order_key, 'reason', m.reason, 'asked_by', m.asked_by, 'email', m.email,
                                'created_at', m.created_at)
  FROM supervision_run r JOIN orders_mailagain m ON m.public_id = r.key WHERE r.id = ANY (%(runs)s)
"""

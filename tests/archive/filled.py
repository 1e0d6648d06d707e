"""A shop that is years old: many archived orders, with parcels, returns, refunds, documents, events and records.

Rows are inserted by their order's id, so that their ids rise with their age: a table in which earlier tests have left room may keep
its rows in any order.
"""

from __future__ import annotations

from typing import Any

from django.db import connection

# Every order has a parcel with three events, a line and a document; every tenth a return with a line and a refund, every fifth a mail.
FILL = """
INSERT INTO supervision_archivedrun (key, run_id, workflow, process_state, created_at, finished_at, body)
SELECT 'o' || n, n, 'fulfil-order', 'Processed', at, at, '{"steps": [], "application": {}}'
  FROM (SELECT n, now() - (%(orders)s - n) * interval '3700 days' / %(orders)s AS at FROM generate_series(1, %(orders)s) n) v;
INSERT INTO orders_order (public_id, number, run_id, email, total, currency, created_at)
SELECT key, key, run_id, 'a@example.com', 10, 'EUR', created_at FROM supervision_archivedrun ORDER BY run_id;
INSERT INTO orders_orderline (order_id, sku, name, quantity, unit_price) SELECT id, 'MUG', 'mug', 1, 10 FROM orders_order;
INSERT INTO orders_parcel (key, order_key, state, booked_at) SELECT public_id || ':b', public_id, 'delivered', created_at FROM orders_order;
INSERT INTO orders_parcelevent (event_id, key, state, at, received_at)
SELECT public_id || e, public_id || ':b', 'booked', created_at, created_at FROM orders_order, generate_series(1, 3) e ORDER BY id;
INSERT INTO orders_paymentevent (event_id, kind, intent, order_key, received_at)
SELECT public_id, 'k', 'pi' || public_id, public_id, created_at FROM orders_order ORDER BY id;
INSERT INTO orders_document (kind, series, year, number, order_key, issued_at, currency, total, vat, body)
SELECT 'invoice', 'INV', extract(year FROM created_at), row_number() OVER (PARTITION BY extract(year FROM created_at) ORDER BY id),
       public_id, created_at, 'EUR', 10, 2, '{}' FROM orders_order ORDER BY id;
INSERT INTO orders_documentcounter (series, year, last) SELECT series, year, max(number) FROM orders_document GROUP BY series, year;
INSERT INTO orders_return (public_id, order_key, number, reason, asked_by, currency)
SELECT 'r' || public_id, public_id, public_id || '-R1', 'r', 'a', 'EUR' FROM orders_order WHERE id %% 10 = 0;
INSERT INTO orders_returnline (of_id, sku, name, quantity, unit_price, holds) SELECT id, 'MUG', 'mug', 1, 10, 0 FROM orders_return;
INSERT INTO orders_returnable (order_key, sku, delivered) SELECT order_key, 'MUG', 1 FROM orders_return;
INSERT INTO orders_refund (public_id, order_key, number, amount, currency, reason, asked_by)
SELECT 'f' || order_key, order_key, order_key || '-P1', 1, 'EUR', 'r', 'a' FROM orders_return;
INSERT INTO orders_paymentadjustment (external_id, kind, intent, order_key, amount, currency, status, gives_back, rank)
SELECT 're' || order_key, 'refund', 'pi', order_key, 1, 'EUR', 'succeeded', true, 1 FROM orders_return;
INSERT INTO orders_mailagain (public_id, order_key, email, reason, asked_by)
SELECT 'm' || public_id, public_id, 'a@example.com', 'r', 'a' FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO orders_stockreservation (idempotency_key, order_key, sku, quantity)
SELECT public_id, public_id, 'MUG', 1 FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO orders_parcelwatch (order_key, run_id) SELECT public_id, run_id FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_runnote (run_key, author, text) SELECT public_id, 'a', 't' FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_assignee (run_key, owner) SELECT public_id, 'a' FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_strayreply (run_id, direction, position, attempt, outcome, actor)
SELECT run_id, 'do', 0, 1, 'processed', 'a' FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_exchange (run_id, direction, position, attempt, service, call, asked, answered, seconds)
SELECT run_id, 'do', 0, 1, 's', 'c', '', '', 0 FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_submission (public_id, workflow, payload, client_key, consumed_at)
SELECT public_id, 'fulfil-order', '{}', public_id, created_at FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_incident (kind, cause, opened_at, closed_at)
SELECT 'k', 'c' || id, created_at, created_at FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_incidentnote (incident_id, author, text) SELECT id, 'a', 't' FROM supervision_incident;
INSERT INTO supervision_channel (name, kind) VALUES ('c', 'mail');
INSERT INTO supervision_telling (channel_id, incident_id, event, delivered_at)
SELECT (SELECT id FROM supervision_channel WHERE name = 'c'), id, 'opened', now() FROM supervision_incident;
INSERT INTO supervision_finding (service, kind, external_id, found_at, closed_at)
SELECT 's', 'k', public_id, created_at, created_at FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_approval (verb, subject, identity, reason, asked_by, asked_at, expires_at, state, decided_at)
SELECT 'v', 's', public_id, 'r', 'a', created_at, created_at, 'refused', created_at FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_pause (scope, name, reason, paused_by, paused_at, lifted_at)
SELECT 'agent', public_id, 'r', 'a', created_at, created_at FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_deadletter (source, body, reason, public_id, created_at, resolved_at)
SELECT 's', 'x', 'r', 'd' || public_id, created_at, created_at FROM orders_order WHERE id %% 5 = 0 ORDER BY id;
INSERT INTO supervision_historybatch (number, made_at, links, head) SELECT run_id, finished_at, 1, '' FROM supervision_archivedrun;
INSERT INTO supervision_historylink (kind, subject, through, newest_at, batch, digest, marks)
SELECT 'run', run_id, 1, finished_at, run_id, '', '' FROM supervision_archivedrun;
INSERT INTO django_session (session_key, session_data, expire_date) SELECT public_id, 'x', created_at FROM orders_order;
"""
TABLES = sorted({line.split()[2] for line in FILL.splitlines() if line.startswith("INSERT INTO")})


def fill(orders: int) -> None:
    """So many orders, evenly over ten years and some weeks; and the planner's statistics."""
    with connection.cursor() as cursor:
        for statement in FILL.split(";\n"):
            if statement.strip():
                cursor.execute(statement, {"orders": orders})
        cursor.execute(f"ANALYZE {', '.join(TABLES)}")


def explained(statement: str, params: dict[str, Any], *, scans: bool) -> str:
    """The plan as text. scans: whether the planner may scan tables, which is cheaper than the index in a small one."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL enable_seqscan = {'on' if scans else 'off'}")
        cursor.execute("EXPLAIN " + statement, params)
        return "\n".join(row[0] for row in cursor.fetchall())

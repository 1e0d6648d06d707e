"""The rows of finished orders for `benchmarks.growth`: what an order of the shop leaves in every table, written by statements.

They came at 2,500 a day, so that a size is an age: 10,000 are four days of this shop, a million 400 days. Beside them stand as many
unfinished ones at every size: some that wait for a scheduler, 100 in Error, 100 under way.
"""

from __future__ import annotations

from benchmarks.lists import SEED

STOPPED = RUNNING = 100
_STATE = SEED[SEED.index("CASE WHEN i % 100 = 7") : SEED.index(" AS state")]
_CONSTANT = (
    "CASE WHEN i > {orders} - {waiting} THEN 'Pending' WHEN i > {orders} - {waiting} - 100 THEN 'Error'"
    " WHEN i > {orders} - {waiting} - 200 THEN 'Processing'"
    " WHEN i % 50 = 9 THEN 'Cancelled' ELSE 'Processed' END"
)
_SPREAD = "now() - interval '400 days' * (1 - i::float / {orders})"
_RATE = "now() - ({orders} - i) * interval '34.56 s'"
_MORE = """
SET session_replication_role = replica;
INSERT INTO supervision_submission (public_id, workflow, payload, client, created_at, consumed_at)
SELECT key, workflow, '{"email": "ada@example.com", "lines": [{"sku": "MUG-BLUE", "name": "Blue mug", "quantity": 2, "unit_price": "12.90"}'
       '],"total": "25.80", "currency": "EUR", "payment_method": "pm_card_visa", "shipping_address": {"name": "Ada Lovelace", "line1":'
       '"Via Roma 1", "city": "Torino", "postal_code": "10121", "country": "IT"}}', 'user:1', created_at, created_at FROM supervision_run;
INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor, at)
SELECT id, n + 1, CASE WHEN n BETWEEN 1 AND 8 THEN (n - 1) / 2 END, CASE WHEN n BETWEEN 1 AND 8 THEN 'do' END,
       CASE WHEN n BETWEEN 1 AND 8 THEN 1 END, CASE WHEN n = 0 THEN NULL WHEN n = 9 THEN 'Processing' ELSE 'Pending' END,
       CASE WHEN n = 0 THEN 'Pending' WHEN n = 9 THEN process_state WHEN n % 2 = 1 THEN 'Processing' ELSE 'Processed' END,
       'agents-4712@host', created_at + n * interval '0.1 s'
  FROM supervision_run, generate_series(0, 9) n WHERE process_state IN ('Processed', 'Cancelled') OR n = 0;
INSERT INTO supervision_effect (run_id, intended_at, settled_at, attempt, position, generation, direction, key, service, operation, amount,
                                currency, external_id, outcome, actor)
SELECT id, created_at, created_at, 1, p, 1, 'do', key || ':' || p || ':do:1', 'service', 'operation', 25.80, 'EUR', 'ext_' || id, 'done',
       'agents-4712@host' FROM supervision_run, generate_series(1, 3) p WHERE process_state IN ('Processed', 'Cancelled');
INSERT INTO orders_orderline (order_id, sku, name, quantity, unit_price) SELECT id, 'MUG-BLUE', 'Blue mug', 2, 12.90 FROM orders_order;
INSERT INTO orders_document (kind, series, year, number, order_key, return_key, issued_at, currency, total, vat, body)
SELECT 'invoice', 'INV', extract(year FROM created_at), id, key, '', created_at, 'EUR', 25.80, 4.65, '{"lines": []}'
  FROM supervision_run WHERE process_state = 'Processed';
UPDATE supervision_stepstate SET seq = 1 WHERE run_id > {orders} - {waiting} - 200;
SET session_replication_role = DEFAULT;
SELECT setval(pg_get_serial_sequence('supervision_run', 'id'), {orders});
"""


def statements(orders: int, waiting: int = 3000) -> bytes:
    """The statements that fill an empty database with so many orders, of which so many wait for a scheduler."""
    if orders <= waiting + STOPPED + RUNNING:
        raise ValueError(f"more than {waiting + STOPPED + RUNNING} orders are needed")
    filled = SEED.replace(_STATE, _CONSTANT).replace(_SPREAD, _RATE) + _MORE
    return filled.replace("{orders}", str(orders)).replace("{waiting}", str(waiting)).encode()

"""The console's list of orders, filtered, of few orders and of many: milliseconds, pages touched and kilobytes.

  python -m benchmarks.lists [--orders 1000 1000000] [--data DIRECTORY] [--only FILTER ...]

Each size gets a database of its own on an embedded PostgreSQL, filled by statements: one order in a hundred is in Error, as many
are under way. Every filter's page is read by turns from both, so that a busy machine slows both; the best of the rounds counts.
--data keeps the databases for the next run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import sizes
from supervision.embedded.server import EmbeddedPostgres
from supervision.management.base import at_least

ROUNDS = 5
INCIDENT = "step_error:charge-payment:generic_decline"
FILTERS: dict[str, dict[str, str]] = {
    "none": {},
    "page 15": {"p": "15"},
    "Error": {"process_state": "Error"},
    "Processing": {"process_state": "Processing"},
    "Processed": {"process_state": "Processed"},
    "Cancelled": {"process_state": "Cancelled"},
    "step": {"step": "charge-payment"},
    "step book-shipment": {"step": "book-shipment"},
    "error code": {"error_code": "generic_decline"},
    "error text": {"error_text": "declined"},
    "error text, rare": {"error_text": "number 7 "},
    "resource": {"resource": "payment"},
    "email": {"email": "user7@example.com"},
    "placed after": {"created_after": "{recent}"},
    "placed before": {"created_before": "{recent}"},
    "placed on one day": {"created_after": "{old}", "created_before": "{older}"},
    "total, common": {"min_total": "20"},
    "total, rare": {"min_total": "499.90"},
    "total to": {"max_total": "6"},
    "incident": {"incident": "{incident}"},
    "customer, common": {"customer": "name7"},
    "customer, rare": {"customer": "name7 family11"},
    "tracking number": {"tracking_number": "TRACK-77"},
    "Error, amount": {"process_state": "Error", "min_total": "450"},
    "Error, amount, step": {"process_state": "Error", "min_total": "100", "step": "charge-payment"},
    "Error, rare amount": {"process_state": "Error", "min_total": "499"},
    "code, day": {"error_code": "generic_decline", "created_after": "{recent}"},
    "resource, text": {"resource": "payment", "error_text": "declined"},
    "incident, amount": {"incident": "{incident}", "min_total": "450"},
    "customer, Error": {"customer": "name7", "process_state": "Error"},
    "amount, days": {"min_total": "499", "created_before": "{recent}"},
    "more than a day": {"age": "1d"},
    "open alert": {"alert": "yes"},
    "search: number": {"q": "{number}"},
    "search: mail": {"q": "user77@example.com"},
    "search: name": {"q": "name7 family11"},
    "search: tracking": {"q": "TRACK-77"},
    "search: code": {"q": "generic_decline"},
    "search: text": {"q": "declined: refused"},
    "search: nothing": {"q": "no such thing at all"},
}

SEED = """
SET session_replication_role = replica;
INSERT INTO supervision_run (id, process_state, finished_at, created_at, workflow, version, key, payload)
SELECT i, state, CASE WHEN state IN ('Processed', 'Cancelled') THEN at + interval '2 seconds' END, at, 'fulfil-order', 1, 'key-' || i,
       jsonb_build_object('email', 'user' || i % 50000 || '@example.com')
  FROM (SELECT i, now() - interval '400 days' * (1 - i::float / {orders}) AS at,
               CASE WHEN i % 100 = 7 THEN 'Error' WHEN i % 100 = 8 THEN 'Processing' WHEN i % 100 = 9 THEN 'Cancelled'
                    WHEN i % 200 = 10 THEN 'Pending' ELSE 'Processed' END AS state
          FROM generate_series(1, {orders}) i) seeded;
INSERT INTO orders_order (id, public_id, number, run_id, email, total, currency, created_at, customer)
SELECT id, key, to_char(id, 'FM000"-"000"-"000'), id,
       payload ->> 'email', 5 + (hashint8(id)::bigint + 2147483648) % 49500 / 100.0, 'EUR',
       created_at, 'Name' || id % 211 || ' Family' || id % 499
  FROM supervision_run;
INSERT INTO supervision_stepstate (run_id, direction, position, process_state, attempt, seq, effect, name, agent, idempotency_key,
       finished_at, locked_by, complete_by, started_at, not_before, turn_at, last_error, result, failure_count)
SELECT id, 'do', position, s, CASE WHEN s = 'Pending' THEN 0 ELSE 1 END, position, CASE WHEN s = 'Processed' THEN 'done' ELSE 'none' END,
       step[position + 1], agent[position + 1], key || ':' || step[position + 1],
       CASE WHEN s = 'Processed' THEN created_at END, CASE WHEN s = 'Processing' THEN 'agents-1@bench' END,
       CASE WHEN s = 'Processing' THEN now() + interval '1 hour' END, CASE WHEN s <> 'Pending' THEN created_at END,
       CASE WHEN s = 'Pending' AND position = at THEN created_at END, CASE WHEN s = 'Pending' AND position = at THEN created_at END,
       CASE WHEN s = 'Error' THEN code[1 + id / 100 % 4] || ' declined: refused, number ' || id || ' of the card is wrong' END,
       CASE WHEN s = 'Processed' THEN '{"id": "it_1"}'::jsonb END, CASE WHEN s = 'Error' THEN 1 ELSE 0 END
  FROM (SELECT id, key, created_at, position, at, CASE
               WHEN process_state = 'Processed' OR position < at THEN 'Processed'
               WHEN position > at THEN CASE process_state WHEN 'Cancelled' THEN 'Cancelled' ELSE 'Pending' END
               ELSE process_state END AS s
          FROM (SELECT *, CASE WHEN process_state = 'Pending' THEN 0 ELSE 1 + id / 100 % 2 END AS at FROM supervision_run) runs,
               generate_series(0, 3) position) steps,
       (SELECT ARRAY['reserve-stock', 'charge-payment', 'book-shipment', 'notify-customer'] AS step,
               ARRAY['stock', 'payment', 'shipping', 'email'] AS agent,
               ARRAY['generic_decline', 'insufficient_funds', 'address_not_serviceable', 'expired_card'] AS code) names;
INSERT INTO supervision_alert (run_id, position, direction, generation, kind, step, message, code, severity, cause, raised_at)
SELECT run_id, position, direction, 1, 'error', name, last_error, split_part(last_error, ' ', 1), 'warning',
       'step_error:' || name || ':' || split_part(last_error, ' ', 1), started_at
  FROM supervision_stepstate WHERE process_state = 'Error';
INSERT INTO supervision_incident (kind, cause, title, step, code, severity, orders)
SELECT 'step_error', cause, cause, min(step), min(code), 'warning', count(*) FROM supervision_alert GROUP BY cause;
UPDATE supervision_alert a SET incident_id = i.id FROM supervision_incident i WHERE i.cause = a.cause;
INSERT INTO orders_parcel (key, order_key, tracking_number, state)
SELECT key || ':book-shipment', key, 'TRACK-' || id, 'booked' FROM supervision_run WHERE process_state = 'Processed';
INSERT INTO supervision_resource (name, service) SELECT name, name FROM unnest(ARRAY['stock', 'payment', 'shipping', 'email']) name
    ON CONFLICT DO NOTHING;
SET session_replication_role = DEFAULT;
"""


def main() -> int:
    """Fill the databases, and print a line for each filter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=at_least(1000), nargs="+", default=[1000, 1_000_000], metavar="N")
    parser.add_argument("--data", type=Path, metavar="DIRECTORY", help="keep the databases here")
    parser.add_argument("--only", nargs="+", choices=FILTERS, metavar="FILTER", default=list(FILTERS))
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sas-lists-")))
        stack.enter_context(EmbeddedPostgres(directory, fast=True))
        urls = {count: sizes.filled(directory, f"lists_{count}", SEED.replace("{orders}", str(count)).encode()) for count in options.orders}
        found = measured(urls, options.only)
    print(f"{'filter':22}" + "".join(f"{f'{count:,} orders':>34}" for count in options.orders))
    for name in options.only:
        cells = [found[count][name] for count in options.orders]
        times = "".join(f"{cell['ms']:>10.0f} ms {cell['pages']:>9,} pages {cell['kb']:>5.0f} kB" for cell in cells)
        print(f"{name:22}{times}  x{cells[-1]['ms'] / cells[0]['ms']:.1f}", flush=True)
    return 0


def measured(urls: dict[int, str], names: list[str]) -> dict[int, dict[str, Any]]:
    """The best of the rounds for each filter; the first two rounds warm up, and the first one counts the pages."""
    found: dict[int, dict[str, Any]] = {count: {} for count in urls}
    with sizes.asked("benchmarks.lists_page", urls) as ask:
        for name in names:
            for round_ in range(ROUNDS):
                for count in urls:
                    answer = ask(count, json.dumps({"query": FILTERS[name], "pages": round_ == 0}))
                    best = found[count].setdefault(name, answer)
                    best["ms"] = min(best["ms"], answer["ms"]) if round_ > 1 else answer["ms"]
    return found


if __name__ == "__main__":
    sys.exit(main())

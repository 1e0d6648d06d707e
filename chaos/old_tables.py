"""The database of release 0.1.0 with many rows, and statements of an order that work there and in every later release.

Ten events, four steps, a run, a submission, an order and a notification make one finished order; so 10,000,000 events are
1,000,000 orders. Every hundredth order had an alert, every thousandth became a dead letter, every tenth is of an account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

EVENTS_PER_ORDER = 10
PAGE = 50_000  # orders that are written in one commit
FIRST_RELEASE = (("orders", "0001"), ("supervision", "0001"))

# A row for each order of the page: its number, and when it was placed, in the last hundred days.
_PAGE = """
WITH page AS MATERIALIZED (
    SELECT n, now() - interval '100 days' * (1 - n::float8 / %(orders)s::bigint) AS at
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) n)
"""
_FILL = (
    """
INSERT INTO auth_user (password, is_superuser, username, first_name, last_name, email, is_staff, is_active, date_joined)
SELECT '!', false, 'filled' || n, '', '', 'filled' || n || '@example.com', false, true, now()
  FROM page WHERE n %% 10 = 0""",
    """
INSERT INTO supervision_submission (public_id, payload, client, client_key, consumed_at, created_at)
SELECT 'filled' || n, '{}', 'shop', 'key' || n, at, at FROM page""",
    """
INSERT INTO supervision_run (id, workflow, key, process_state, payload, created_at, finished_at)
SELECT -n, 'fulfil-order', 'filled' || n, 'Processed',
       jsonb_build_object('email', 'filled' || n || '@example.com', 'shipping_address', jsonb_build_object('name', 'Ada ' || n)),
       at, at + interval '1 s' FROM page""",
    """
INSERT INTO supervision_stepstate (run_id, position, name, agent, idempotency_key, process_state, attempt, seq, effect,
                                   started_at, finished_at)
SELECT -n, p, 'step' || p, 'agent' || p, 'filled' || n || ':' || p, 'Processed', 1, 2 + 2 * p, 'done', at, at + interval '1 s'
  FROM page, generate_series(0, 3) p""",
    """
INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor, at)
SELECT -n, e, CASE WHEN e > 1 THEN ((e - 2) / 2)::smallint END, 'do', 1, 'Pending', 'Processed', 'agents@host', at
  FROM page, generate_series(1, 10) e""",
    """
INSERT INTO orders_order (public_id, number, run_id, email, total, currency, created_at, account_id)
SELECT 'filled' || n, 'F-' || n, -n, 'filled' || n || '@example.com', n %% 500, 'EUR', at,
       (SELECT id FROM auth_user WHERE username = 'filled' || (n / 10 * 10) AND n %% 10 = 0) FROM page""",
    """
INSERT INTO supervision_notification (kind, run_id, created_at, delivered_at) SELECT 'hook', -n, at, at FROM page""",
    """
INSERT INTO supervision_alert (run_id, position, direction, generation, kind, code, raised_at, closed_at)
SELECT -n, 1, 'do', 1, 'error', 'card_declined', at, at FROM page WHERE n %% 100 = 0""",
    """
INSERT INTO supervision_deadletter (source, body, reason, created_at, resolved_at)
SELECT 'amqp', '\\x00'::bytea, 'malformed', at, at FROM page WHERE n %% 1000 = 0""",
    """
INSERT INTO orders_product (sku, name, price, available)
SELECT 'FILLED-' || n, 'Mug ' || n, 10, 10 FROM page WHERE n %% 100 = 0""",
)

# One order's way, each a transaction of its own, with the columns that release 0.1.0 has. me: who works on it.
PLACE = "INSERT INTO supervision_submission (public_id, workflow, payload, client) VALUES (%(key)s, 'fulfil-order', '{}', 'drill')"
TAKE = """
WITH m AS (UPDATE supervision_submission SET consumed_at = now() WHERE public_id = %(key)s AND consumed_at IS NULL),
r AS (INSERT INTO supervision_run (workflow, key, process_state, payload) VALUES ('fulfil-order', %(key)s, 'Pending', '{}') RETURNING id),
o AS (INSERT INTO orders_order (public_id, number, run_id, email, total, currency)
      SELECT %(key)s, left(%(key)s, 20), id, %(key)s || '@example.com', 10, 'EUR' FROM r),
s AS (INSERT INTO supervision_stepstate (run_id, position, name, agent, idempotency_key, not_before, turn_at)
      SELECT id, p, 'step' || p, 'drill', %(key)s || ':' || p, CASE WHEN p = 0 THEN now() END, CASE WHEN p = 0 THEN now() END
        FROM r, generate_series(0, 3) p)
INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) SELECT id, 1, 'Pending', %(me)s FROM r RETURNING run_id
"""
CLAIM = """
WITH c AS MATERIALIZED (
    SELECT run_id, direction, position FROM supervision_stepstate
     WHERE process_state = 'Pending' AND not_before IS NOT NULL AND turn_at IS NOT NULL AND not_before <= now() AND agent = 'drill'
       AND run_id = %(run)s
     ORDER BY turn_at LIMIT 1 FOR UPDATE SKIP LOCKED),
u AS (
    UPDATE supervision_stepstate s SET process_state = 'Processing', attempt = s.attempt + 1, locked_by = %(me)s, started_at = now(),
           complete_by = now() + interval '60 s'
      FROM c WHERE s.run_id = c.run_id AND s.direction = c.direction AND s.position = c.position
    RETURNING s.run_id, s.position),
r AS (UPDATE supervision_run SET process_state = 'Processing' FROM u WHERE id = u.run_id AND process_state = 'Pending')
INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)
SELECT run_id, 2 + 2 * position, position, 'do', 1, 'Pending', 'Processing', %(me)s FROM u RETURNING position
"""
FINISH = """
WITH u AS (
    UPDATE supervision_stepstate SET process_state = 'Processed', locked_by = NULL, complete_by = NULL, finished_at = now(), effect = 'done'
     WHERE run_id = %(run)s AND direction = 'do' AND position = %(position)s AND process_state || '' = 'Processing'
    RETURNING run_id, position),
n AS (UPDATE supervision_stepstate s SET not_before = now(), turn_at = now() FROM u
       WHERE s.run_id = u.run_id AND s.direction = 'do' AND s.position = u.position + 1),
e AS (UPDATE supervision_run SET process_state = 'Processed', finished_at = now() FROM u WHERE id = u.run_id AND u.position = 3)
INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)
SELECT run_id, 3 + 2 * position, position, 'do', 1, 'Processing', 'Processed', %(me)s FROM u RETURNING run_id
"""
# What pages of the console and of a customer read.
LOOK = """
SELECT o.number, r.process_state, (SELECT count(*) FROM supervision_stepevent e WHERE e.run_id = r.id)
  FROM orders_order o JOIN supervision_run r ON r.id = o.run_id ORDER BY o.created_at DESC, o.id DESC LIMIT 20
"""


def fill(database_url: str, events: int, say: Callable[[str], None]) -> int:
    """Write the finished orders of so many events into an empty database of the first release; returns how many orders.

    Triggers do not fire: what they tell is of no order that is under way. The role has to be a superuser.
    """
    orders = max(1, events // EVENTS_PER_ORDER)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        for first in range(1, orders + 1, PAGE):
            last = min(orders, first + PAGE - 1)
            with connection.transaction():
                for statement in _FILL:
                    connection.execute(_PAGE + statement, {"first": first, "last": last, "orders": orders})  # type: ignore[arg-type]
            say(f"{last:,} of {orders:,} orders")
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
    return orders


@contextmanager
def watched(database_url: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Note every lock that a statement of DDL takes on a table that exists now; yields a function that reads the notes.

    Only locks are noted that hold up a writer, or another change of the table. rewritten: whether the table has a new file since.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in _WATCH:
            connection.execute(statement)  # type: ignore[arg-type]

        def notes() -> list[dict[str, Any]]:
            cursor = connection.execute(_NOTES)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        try:
            yield notes
        finally:
            connection.execute("DROP EVENT TRIGGER drill_locks; DROP FUNCTION drill_note_locks(); DROP TABLE drill_table, drill_lock")


_WATCH = (
    "CREATE TABLE drill_table AS SELECT oid, relname::text AS name, pg_relation_filenode(oid) AS file FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND reltuples > 0",
    "CREATE TABLE drill_lock (at timestamptz, name text, mode text)",
    """
CREATE FUNCTION drill_note_locks() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO drill_lock SELECT DISTINCT clock_timestamp(), t.name, l.mode FROM pg_locks l JOIN drill_table t ON t.oid = l.relation
   WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation'
     AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock');
END $$""",
    "CREATE EVENT TRIGGER drill_locks ON ddl_command_end EXECUTE FUNCTION drill_note_locks()",
)
_NOTES = """
SELECT extract(epoch FROM l.at)::float8 AS at, l.name AS table, l.mode,
       coalesce(pg_relation_filenode(t.oid) <> t.file, true) AS rewritten
  FROM drill_lock l JOIN drill_table t ON t.name = l.name ORDER BY l.at
"""

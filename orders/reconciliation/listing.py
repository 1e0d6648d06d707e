"""The service's list as one comparison has read it so far, and the orders that it must check closely.

Both are in temporary tables: a list may be too long for the process's memory. The tables end with the connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from supervision.postgres import db

PAGE = 5000  # runs per query
SUSPECTS = 200
REACHING = timedelta(days=31)  # an order that takes longer is not found: a reserved amount lapses by then, by card and country

_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS reconciling_seen (external_id text PRIMARY KEY, order_key text NOT NULL, key text NOT NULL);
CREATE INDEX IF NOT EXISTS reconciling_seen_of ON reconciling_seen (order_key);
CREATE TEMP TABLE IF NOT EXISTS reconciling_suspect (order_key text PRIMARY KEY, disputed boolean NOT NULL);
TRUNCATE reconciling_seen, reconciling_suspect
"""
_SEE = """
INSERT INTO reconciling_seen SELECT * FROM unnest(%(ids)s::text[], %(orders)s::text[], %(keys)s::text[]) ON CONFLICT DO NOTHING
"""
_SEEN = "SELECT order_key, external_id, key FROM reconciling_seen WHERE order_key = ANY (%(orders)s)"
_SUSPECT = """
INSERT INTO reconciling_suspect SELECT DISTINCT v, %(disputed)s FROM unnest(%(orders)s::text[]) v
    ON CONFLICT (order_key) DO UPDATE SET disputed = reconciling_suspect.disputed OR excluded.disputed
"""
_SUSPECTS = "SELECT order_key, disputed FROM reconciling_suspect WHERE order_key > %(after)s ORDER BY order_key LIMIT %(limit)s"


def begin() -> None:
    """Create the tables, and empty them if an earlier comparison used this connection."""
    for statement in _TABLES.split(";"):
        db.run(statement)


def see(held: Iterable[tuple[str, str, str]]) -> None:
    """Note things that the service holds: (id, order, idempotency key)."""
    rows = [row for row in held if "\0" not in row[1]]  # not ours: no key of ours has a NUL, and PostgreSQL refuses it
    if rows:
        ids, orders, keys = (list(column) for column in zip(*rows, strict=True))
        db.run(_SEE, {"ids": ids, "orders": orders, "keys": keys})


def seen(orders: Iterable[str]) -> dict[str, dict[str, str]]:
    """The things of these orders that this comparison has seen: idempotency keys by id."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for order, external_id, key in db.run(_SEEN, {"orders": list(orders)}):
        found[order][external_id] = key
    return found


def suspect(orders: Iterable[str], *, disputed: bool = False) -> None:
    """Note orders to check closely when the whole list is read."""
    rows = [order for order in orders if "\0" not in order]
    if rows:
        db.run(_SUSPECT, {"orders": rows, "disputed": disputed})


def suspects() -> Iterator[list[tuple[str, bool]]]:
    """The orders to check closely, in batches: (order, disputed)."""
    after = ""
    while rows := db.run(_SUSPECTS, {"after": after, "limit": SUSPECTS}):
        yield [(order, disputed) for order, disputed in rows]
        after = rows[-1][0]


# Processed orders whose agent's result names a payment or shipment that the list has not shown, page by page.
_UNSEEN = """
WITH page AS MATERIALIZED (
    SELECT id, key, created_at, process_state FROM supervision_run WHERE id > %(after)s ORDER BY id LIMIT %(page)s)
SELECT (SELECT max(id) FROM page),
       ARRAY(SELECT page.key FROM page JOIN supervision_stepstate s ON s.run_id = page.id
              WHERE page.process_state = 'Processed' AND page.created_at >= %(since)s
                AND s.direction = 'do' AND s.agent = %(agent)s AND s.process_state = 'Processed'
                AND NOT EXISTS (SELECT 1 FROM reconciling_seen x WHERE x.external_id = s.result->>%(field)s))
"""
# Ended orders, created before the list begins, of which one of these steps was begun: what it made is older than the list. Page by page.
_ENDED_LATE = """
WITH page AS MATERIALIZED (
    SELECT id, key, finished_at FROM supervision_run WHERE id > %(after)s AND created_at < %(since)s ORDER BY id LIMIT %(page)s)
SELECT (SELECT max(id) FROM page),
       ARRAY(SELECT page.key FROM page JOIN supervision_stepstate s ON s.run_id = page.id
              WHERE page.finished_at >= %(since)s AND s.direction = 'do' AND s.name = ANY (%(steps)s::text[]) AND s.attempt > 0)
"""
_FIRST_RUN = "SELECT min(id) - 1 FROM supervision_run WHERE created_at >= %(since)s"


def unseen(agent: str, name: str, since: datetime) -> Iterator[list[str]]:
    """Orders created since then with a result of `agent` that the list has not shown, in batches. name: the result's field."""
    after = db.run(_FIRST_RUN, {"since": since})[0][0]
    while after is not None:
        params = {"after": after, "page": PAGE, "since": since, "agent": agent, "field": name}
        after, keys = db.run(_UNSEEN, params)[0]
        yield keys


def ended_late(steps: Sequence[str], since: datetime) -> Iterator[list[str]]:
    """Orders that have ended since then, and were created up to REACHING before it, if one of these steps was begun; in batches."""
    after = db.run(_FIRST_RUN, {"since": since - REACHING})[0][0]
    while after is not None:
        after, keys = db.run(_ENDED_LATE, {"after": after, "page": PAGE, "since": since, "steps": list(steps)})[0]
        yield keys


def forget() -> None:
    """Empty the tables, to free their space."""
    db.run("TRUNCATE reconciling_seen, reconciling_suspect")

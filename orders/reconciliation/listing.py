"""What one comparison has read from a service so far, and which orders it is to look at closely.

Kept in temporary tables of this connection: a list may be longer than our memory, and they end with the connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from supervision import db

PAGE = 5000  # runs looked through at a time
SUSPECTS = 200

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
    """Forget what an earlier comparison on this connection has read."""
    for statement in _TABLES.split(";"):
        db.run(statement)


def see(held: Iterable[tuple[str, str, str]]) -> None:
    """Note what the service holds: (id, order, idempotency key)."""
    rows = [row for row in held if "\0" not in row[1]]  # no key of ours has one, whatever a service lists
    if rows:
        ids, orders, keys = (list(column) for column in zip(*rows, strict=True))
        db.run(_SEE, {"ids": ids, "orders": orders, "keys": keys})


def seen(orders: Iterable[str]) -> dict[str, dict[str, str]]:
    """What this comparison has seen of these orders: idempotency key by id."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for order, external_id, key in db.run(_SEEN, {"orders": list(orders)}):
        found[order][external_id] = key
    return found


def suspect(orders: Iterable[str], *, disputed: bool = False) -> None:
    """These are to be looked at closely, when everything is read."""
    rows = [order for order in orders if "\0" not in order]
    if rows:
        db.run(_SUSPECT, {"orders": rows, "disputed": disputed})


def suspects() -> Iterator[list[tuple[str, bool]]]:
    """What was suspected, in batches: (order, disputed)."""
    after = ""
    while rows := db.run(_SUSPECTS, {"after": after, "limit": SUSPECTS}):
        yield [(order, disputed) for order, disputed in rows]
        after = rows[-1][0]


# Orders that ended well and whose agent's result names something that no list has shown, page by page.
_UNSEEN = """
WITH page AS MATERIALIZED (
    SELECT id, key, created_at, process_state FROM supervision_run WHERE id > %(after)s ORDER BY id LIMIT %(page)s)
SELECT (SELECT max(id) FROM page),
       ARRAY(SELECT page.key FROM page JOIN supervision_stepstate s ON s.run_id = page.id
              WHERE page.process_state = 'Processed' AND page.created_at >= %(since)s
                AND s.direction = 'do' AND s.agent = %(agent)s AND s.process_state = 'Processed'
                AND NOT EXISTS (SELECT 1 FROM reconciling_seen x WHERE x.external_id = s.result->>%(field)s))
"""
_FIRST_RUN = "SELECT min(id) - 1 FROM supervision_run WHERE created_at >= %(since)s"


def unseen(agent: str, name: str, since: datetime) -> Iterator[list[str]]:
    """Orders created since then whose `agent` made something that was not seen, in batches. name: of the result's field."""
    after = db.run(_FIRST_RUN, {"since": since})[0][0]
    while after is not None:
        params = {"after": after, "page": PAGE, "since": since, "agent": agent, "field": name}
        after, keys = db.run(_UNSEEN, params)[0]
        yield keys


def forget() -> None:
    """Give the space back."""
    db.run("TRUNCATE reconciling_seen, reconciling_suspect")

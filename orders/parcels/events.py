"""What the carrier tells by webhooks: each event is stored once, together with its effect on the parcel, in one transaction.

A parcel's state only goes forward (`states`). So events may be repeated, and may overtake each other. An event may come before the
booking's answer: the effect ledger knows the key before the booking is sent. An event under a key that it does not know is kept.
"""

from __future__ import annotations

import logging
import random
from datetime import timedelta
from typing import Any

from django.conf import settings

from orders.gateways.carrier_events import Event
from orders.parcels import moves, splitting
from supervision.postgres import db

log = logging.getLogger(__name__)

KEPT = timedelta(days=30)
_FORGET_ONE_IN = 100
STORED, BEFORE, UNKNOWN = "Stored.", "Stored before.", "Stored. The shop has booked nothing under this key."

_STORE = """
INSERT INTO orders_parcelevent (event_id, key, state, at) VALUES (%(id)s, %(key)s, %(state)s, %(at)s)
ON CONFLICT (event_id, key, state, at) DO NOTHING RETURNING id
"""
_NOTE = "UPDATE orders_parcelevent SET outcome = %(outcome)s WHERE id = %(stored)s"
_FORGET = """
DELETE FROM orders_parcelevent WHERE id = ANY (ARRAY(
    SELECT id FROM orders_parcelevent WHERE received_at < now() - %(seconds)s::float8 * interval '1 s'
     ORDER BY received_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING 1
"""
# The effect ledger has the key since before the booking. An archived order's effects are in the archive.
_IS_OURS = """
SELECT EXISTS (SELECT FROM supervision_run r JOIN supervision_effect e ON e.run_id = r.id
                WHERE r.key = %(run)s AND e.direction = 'do' AND e.key = %(key)s AND e.service = 'carrier')
    OR EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = %(run)s)
"""
# A parcel that no step knows yet is looked at as soon as the order's own watch finds it (`watch`).
_MOVE = f"""
INSERT INTO orders_parcel AS p (key, order_key, state, changed_at, look_at, trouble, trouble_at)
SELECT %(key)s, %(order)s, %(state)s, %(at)s,
       CASE WHEN %(order)s <> '' AND NOT %(state)s = ANY (%(final)s) THEN now() + %(after)s::float8 * interval '1 s' END,
       t.trouble, CASE WHEN t.trouble IS NOT NULL THEN now() END
  FROM (SELECT {moves.TROUBLE}) t(trouble)
ON CONFLICT (key) DO UPDATE
   SET state = excluded.state, changed_at = excluded.changed_at, looks = 0,
       order_key = coalesce(nullif(p.order_key, ''), excluded.order_key),
       look_at = CASE WHEN p.order_key = '' THEN excluded.look_at
                      WHEN NOT excluded.state = ANY (%(final)s) THEN now() + %(after)s::float8 * interval '1 s' END,
       trouble = coalesce(excluded.trouble, nullif(p.trouble, 'silent')),
       trouble_at = CASE WHEN excluded.trouble IS NOT NULL AND excluded.trouble IS DISTINCT FROM p.trouble THEN now()
                         WHEN p.trouble <> 'silent' THEN p.trouble_at END
 WHERE {moves.rank("excluded.state")} > {moves.rank("p.state")}
RETURNING state
"""  # noqa: S608 - constants


def receive(event: Event) -> str:
    """Store this event with its effect; returns what to answer. An event that was stored before does nothing."""
    said = db.transact(lambda: _receive(event))
    if random.randrange(_FORGET_ONE_IN) == 0:  # noqa: S311 - only chooses when to clean up
        forget_old()
    return said


def _receive(event: Event) -> str:
    facts: dict[str, Any] = {"id": event.id, "key": event.key, "state": event.state, "at": event.at}
    stored = db.fetch(_STORE, facts)
    if not stored:
        return BEFORE
    order = order_of(event.key)
    moved = db.fetch(_MOVE, {**facts, "order": order, "final": list(moves.FINAL), "after": settings.PARCEL_LOOK_AFTER})
    outcome = f"{'moved' if moved else 'no news'}{'' if order else ', unknown key'}"
    db.fetch(_NOTE, {"outcome": outcome, "stored": stored[0][0]})
    if not order:
        log.warning("the carrier told that %s is %s, and the shop has booked nothing under this key", event.key, event.state)
    return STORED if order else UNKNOWN


def order_of(key: str) -> str:
    """The public id of the order that booked, or is booking, under this key; empty if our books do not have the key."""
    run = key.rsplit(":", 3)[0]  # keys are RUN:STEP:do:GENERATION
    return splitting.order_of(run) if db.fetch(_IS_OURS, {"run": run, "key": key})[0][0] else ""


def forget_old() -> bool:
    """Delete up to 1,000 events that are older than KEPT. True if there may be more."""
    return len(db.run(_FORGET, {"seconds": KEPT.total_seconds()})) == 1000

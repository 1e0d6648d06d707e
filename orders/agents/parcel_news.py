"""Asks the carrier for the parcels of which no webhook came: each after PARCEL_LOOK_AFTER without news, then less and less often.

A parcel is claimed for LEASE, and asked for outside any transaction. If the process dies, or the carrier gives no answer, the lease
runs out and the parcel is due again. An answer that says nothing of a parcel is a look without news, and the next parcel is asked
for. The looks end with the parcel's journey, or when PARCEL_WATCHED_FOR is over: then an operator is told that no end was heard.
"""

from __future__ import annotations

import logging
import time

from django.conf import settings

from orders.gateways import carrier, http
from orders.gateways.http import GatewayError
from orders.parcels import moves, watch
from orders.parcels.states import BOOKED, DELETED, FINAL, IN_ORDER
from supervision.postgres import db

log = logging.getLogger(__name__)

SECONDS = 10.0  # for one turn
BATCH = 10
LEASE = 300.0
SLOWEST = 3  # the pause doubles so often
MOST_BROKEN = 3  # answers in a row that say nothing: then the turn ends, because it is the carrier and not a parcel

_CLAIM = """
UPDATE orders_parcel p SET looks = least(p.looks + 1, 1000), look_at = now() + %(lease)s::float8 * interval '1 s'
  FROM (SELECT key FROM orders_parcel WHERE look_at <= now() ORDER BY look_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED) d
 WHERE p.key = d.key
RETURNING p.key, p.order_key, p.shipment
"""
# No pause is longer: such a time was set by a clock that ran ahead and has been put back since.
_TOO_FAR = """
UPDATE orders_parcel SET look_at = now()
 WHERE key = ANY (ARRAY(SELECT key FROM orders_parcel WHERE look_at > now() + 2 * %(longest)s::float8 * interval '1 s'
                         ORDER BY look_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
"""
# A webhook may have come since the claim: the state never goes back, and a journey that has ended gets no new look.
_SEEN = f"""
UPDATE orders_parcel p
   SET state = n.state, changed_at = CASE WHEN n.state = p.state THEN p.changed_at ELSE coalesce(%(at)s::timestamptz, now()) END,
       shipment = coalesce(nullif(p.shipment, ''), %(shipment)s),
       look_at = CASE WHEN n.state = ANY (%(final)s) OR %(state)s = '{DELETED}' OR n.over THEN NULL
                      ELSE now() + %(after)s::float8 * 2 ^ least(p.looks - 1, %(slowest)s) * interval '1 s' END,
       trouble = coalesce(n.trouble, p.trouble),
       trouble_at = CASE WHEN coalesce(n.trouble, p.trouble) IS DISTINCT FROM p.trouble THEN now() ELSE p.trouble_at END
  FROM (SELECT q.key, q.over, q.state,
               coalesce(CASE WHEN q.state <> q.old THEN {moves.TROUBLE} END,
                        CASE WHEN q.over AND NOT q.state = ANY (%(ended)s) THEN 'silent' END) AS trouble
          FROM (SELECT c.key, c.state AS old, c.booked_at < now() - %(watched)s::float8 * interval '1 s' AS over,
                       CASE WHEN {moves.rank("%(state)s")} > {moves.rank("c.state")} THEN %(state)s ELSE c.state END AS state
                  FROM orders_parcel c WHERE c.key = %(key)s FOR UPDATE) q) n
 WHERE p.key = n.key
"""  # noqa: S608 - constants


def turn() -> int:
    """Find new parcels, then ask for those that are due, for SECONDS at most; returns how many were asked for."""
    end = time.monotonic() + SECONDS
    while watch.read_orders() and time.monotonic() < end:
        pass
    while watch.look_at_orders() == watch.BATCH and time.monotonic() < end:
        pass
    asked, broken = 0, 0
    db.run(_TOO_FAR, {"longest": max(LEASE, settings.PARCEL_LOOK_AFTER * 2**SLOWEST), "batch": BATCH})
    while time.monotonic() < end:
        due = db.run(_CLAIM, {"lease": LEASE, "batch": BATCH})
        with http.budget(end):
            for key, order, shipment in due:
                try:
                    _look(key, order, shipment)
                    broken = 0
                except carrier.Broken as problem:
                    log.warning("the carrier %s for a parcel of order %s; it is looked at later", problem, order)
                    _note(key, order, shipment, None)
                    broken += 1
                except GatewayError as problem:
                    log.warning("the carrier %s; its parcels are looked at later", problem)
                    return asked
                asked += 1
                if broken == MOST_BROKEN:
                    return asked
        if len(due) < BATCH:
            break
    return asked


def _look(key: str, order: str, shipment: str) -> None:
    if not shipment:  # a webhook told of it before our books did
        found = carrier.find(key, order)
        shipment = found.id if found else ""
    _note(key, order, shipment, carrier.standing(shipment) if shipment else None)


def _note(key: str, order: str, shipment: str, standing: carrier.Standing | None) -> None:
    """Write down what a look has found. standing: None where there was no news."""
    facts = {
        "key": key,
        "order": order,
        "shipment": shipment,
        "state": standing.state if standing and standing.state in IN_ORDER else BOOKED,
        "at": standing.changed if standing else None,
        "final": list(FINAL),
        "ended": [*FINAL, DELETED],
        "after": settings.PARCEL_LOOK_AFTER,
        "watched": settings.PARCEL_WATCHED_FOR,
        "slowest": SLOWEST,
    }
    db.run(_SEEN, facts)

"""Looks at a payment of which a webhook told, and records its refunds and disputes: the shop's, the bank's and the provider's.

What is recorded is what the service shows at the look, so events may overtake each other. Of two looks at once the later state
wins: the states of a refund, and of a dispute, are ordered by `rank`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from orders.agents.calls import retried
from orders.agents.payment_calls import HARMLESS
from orders.gateways import http, payment
from orders.gateways.money import from_minor
from orders.gateways.payment import OVER, Dispute, Refund, Rejected
from orders.gateways.payment_events import OF_PAYMENTS, Event
from orders.payments import events
from supervision.models import Notification
from supervision.outbox.notifications import handler
from supervision.postgres import db

SECONDS = 20.0  # for the look
REFUND_FAILED = "refund-failed"  # the kind of the notification that judges an order with a failed refund
_RECORD = """
INSERT INTO orders_paymentadjustment AS a (external_id, kind, intent, order_key, amount, currency, status, gives_back, rank, reason)
SELECT * FROM unnest(%(ids)s::text[], %(kinds)s::text[], %(intents)s::text[], %(orders)s::text[], %(amounts)s::numeric[],
                     %(currencies)s::text[], %(statuses)s::text[], %(gives)s::bool[], %(ranks)s::smallint[], %(reasons)s::text[]) v
 ORDER BY 1
ON CONFLICT (external_id) DO UPDATE
   SET status = excluded.status, gives_back = excluded.gives_back, rank = excluded.rank, reason = excluded.reason,
       amount = excluded.amount, changed_at = now()
 WHERE excluded.rank > a.rank OR (excluded.rank = a.rank AND excluded.status <> a.status)
"""


@handler(events.NEWS, within=events.TRIED_FOR, calls=True)
def look(notification: Notification) -> None:
    """Apply one stored event. The gateway's errors are raised: the outbox tries again."""
    facts = notification.payload
    event = Event(facts["event"], facts["kind"], facts["intent"], facts["order"])
    if event.kind in OF_PAYMENTS:
        db.transact(lambda: events.applied(event, events.signal(event)))
        return
    order, found = _at_the_service(event.intent)
    outcome = f"{len(found)} recorded" if order else "not a payment of this shop"

    def work() -> None:
        if order:
            record(order, found)
        if order and any(isinstance(one, Refund) and not one.gives_back for one in found):
            Notification.objects.create(kind=REFUND_FAILED, payload={"order": order, "intent": event.intent})
        events.applied(event, outcome, order)

    db.transact(work)


def record(order: str, found: Sequence[Refund | Dispute]) -> None:
    """Write what the service shows of an order's refunds and disputes. An older look never overwrites a later state."""
    if found:
        db.run(_RECORD, _columns(order, found))


def _at_the_service(name: str) -> tuple[str, Sequence[Refund | Dispute]]:
    with http.budget(time.monotonic() + SECONDS):
        try:
            intent = retried(lambda: payment.get(name), on=HARMLESS)
        except Rejected:
            return "", []
        refunds = retried(lambda: payment.refunds_of(name), on=HARMLESS)
        disputes = retried(lambda: payment.disputes_of(name), on=HARMLESS)
    return intent.order or "", [*refunds, *disputes]


def _rank(one: Refund | Dispute) -> int:
    """Where this state stands: open, done, over. A refund may fail after it has succeeded, and never the reverse."""
    if isinstance(one, Dispute):
        return 2 if one.status in OVER else int(one.status.endswith("under_review"))
    return {"succeeded": 1, "failed": 2, "canceled": 2}.get(one.status, 0)


def _columns(order: str, found: Sequence[Refund | Dispute]) -> dict[str, list[object]]:
    return {
        "ids": [one.id for one in found],
        "kinds": ["dispute" if isinstance(one, Dispute) else "refund" for one in found],
        "intents": [one.intent for one in found],
        "orders": [order] * len(found),
        "amounts": [str(from_minor(one.amount, one.currency)) for one in found],
        "currencies": [one.currency.upper() for one in found],
        "statuses": [one.status for one in found],
        "gives": [isinstance(one, Refund) and one.gives_back for one in found],
        "ranks": [_rank(one) for one in found],
        "reasons": [one.reason or "" for one in found],
    }

"""What the payment service tells by webhooks: each event is stored once, and has its effect once.

`receive` stores the event and its effect in one transaction, so a stored event has had its effect. An event about a payment
that a step waits for sends that step a signal. An event about refunds and disputes needs a look at the payment service, which
a notification of the outbox makes after the commit (`orders.agents.payment_news`): it is repeated until it succeeds, for
TRIED_FOR. The outbox also repeats an effect that failed for a reason of our own.

An event is a reason to look and no proof: repeated, late and overtaken events change nothing. Events older than KEPT are
deleted, some with every hundredth new one.
"""

from __future__ import annotations

import logging
import random
from datetime import timedelta

from django.db import transaction

from orders.gateways.payment_events import OF_MONEY, OF_PAYMENTS, Event
from orders.payments import codes
from supervision.errors import Refused, UnknownRun
from supervision.models import Notification
from supervision.postgres import db
from supervision.signals.sending import send_signal

log = logging.getLogger(__name__)

NEWS = "payment-news"  # the kind of the notification that makes the look
TRIED_FOR = timedelta(days=3)
KEPT = timedelta(days=30)
KINDS = sorted({*OF_PAYMENTS, *OF_MONEY})  # the events that are stored
_FORGET_ONE_IN = 100

_STORE = """
INSERT INTO orders_paymentevent (event_id, kind, intent, order_key) VALUES (%(id)s, %(kind)s, %(intent)s, %(order)s)
ON CONFLICT (event_id) DO NOTHING RETURNING id
"""
_APPLIED = """
UPDATE orders_paymentevent
   SET applied_at = now(), outcome = %(outcome)s, order_key = CASE WHEN order_key = '' THEN %(order)s ELSE order_key END
 WHERE event_id = %(id)s AND applied_at IS NULL
"""
_FORGET = """
DELETE FROM orders_paymentevent WHERE id = ANY (ARRAY(
    SELECT id FROM orders_paymentevent WHERE received_at < now() - %(seconds)s::float8 * interval '1 s'
     ORDER BY received_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING 1
"""
# Only a step that has sent its customer to the bank for this payment, or is about to, gets the signal: it saves the address of the
# bank's page before the customer can open it. An order that was paid at once gets no signal.
_HEARS = """
SELECT true FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id
 WHERE r.key = %(order)s AND r.direction = 'do' AND s.direction = 'do' AND s.name = ANY (%(steps)s::text[])
   AND s.process_state || '' IN ('Pending', 'Processing') AND s.checkpoint->%(action)s->>'intent' = %(intent)s
"""


def receive(event: Event) -> bool:
    """Store this event with its effect; False if it was stored before, and then nothing is done."""
    new = db.transact(lambda: _receive(event))
    if random.randrange(_FORGET_ONE_IN) == 0:  # noqa: S311 - only chooses when to clean up
        forget_old()
    return new


def _receive(event: Event) -> bool:
    facts = {"id": event.id, "kind": event.kind, "intent": event.intent, "order": event.order}
    if not db.fetch(_STORE, facts):
        return False
    if event.kind not in OF_PAYMENTS:
        _look_later(event)
        return True
    try:
        with transaction.atomic():
            applied(event, signal(event))
    except Exception as error:
        if db.passes(error):
            raise
        log.exception("the event %s could not be applied now; the outbox tries again", event.id)
        _look_later(event)
    return True


def _look_later(event: Event) -> None:
    facts = {"event": event.id, "kind": event.kind, "intent": event.intent, "order": event.order}
    Notification.objects.create(kind=NEWS, payload=facts)


def signal(event: Event) -> str:
    """Send the news to the step that waits for this payment, in the caller's transaction; returns what became of it."""
    hears = db.fetch(_HEARS, {"order": event.order, "steps": list(codes.STEPS), "action": codes.ACTION, "intent": event.intent})
    if not event.order or not hears:
        return "nothing waits for it"
    try:
        facts = {"event": event.id, "type": event.kind, "intent": event.intent}
        return f"signal {send_signal(event.order, codes.ANSWERED, facts, key=event.id, sent_by='the payment service')}"
    except (Refused, UnknownRun) as refusal:  # it has ended meanwhile, or is being undone
        return f"signal refused: {refusal.code}"


def applied(event: Event, outcome: str, order: str = "") -> None:
    """Note that the event has had its effect. order: what a look has shown; it counts where the event itself named none."""
    db.fetch(_APPLIED, {"id": event.id, "outcome": outcome[:200], "order": order})


def forget_old() -> bool:
    """Delete up to 1,000 events that are older than KEPT. True if there may be more."""
    return len(db.run(_FORGET, {"seconds": KEPT.total_seconds()})) == 1000

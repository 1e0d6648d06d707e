"""Sends dead letters back: each kind to where it came from, unchanged.

A submission waits again under its public id. An order request of the intake is read again at once. A message for the workers
is published again, byte for byte, with its headers and properties, to the queue it was taken from. It goes through the
outbox, so that it is sent at least once, even if the broker is away now.
"""

from __future__ import annotations

import logging

from celery import current_app
from django.db.models import TextField, Value
from django.db.models.functions import Concat
from django.utils.translation import gettext as _

from supervision.agent import agents
from supervision.deadletters.dead_letters import INTAKE, QUEUE, SUBMISSION
from supervision.errors import ChangedMeanwhile, Refused
from supervision.incidents import kept_evidence
from supervision.intake import amqp, lost_children
from supervision.models import ChildState, DeadLetter, Notification, Run, Submission
from supervision.outbox import notifications
from supervision.postgres.json_safe import restored
from supervision.signals import untaken
from supervision.store import sleeping
from supervision.transports import topology
from supervision.transports.envelope import UNREADABLE
from supervision.transports.rabbitmq import PROPERTIES

log = logging.getLogger(__name__)

KIND = "requeue"
UNSENT = "; not sent: its bytes were erased before"
_DEATH = (f"x-first-death-{what}" for what in ("exchange", "queue", "reason"))
OF_THE_BROKER = frozenset({"redelivered", "x-delivery-count", "x-death", *_DEATH})
OF_THE_SENDER = ("correlation_id", "reply_to", "message_id", "type", "app_id", "expiration", "timestamp", "priority", "delivery_mode")


def open_letter(pk: int) -> DeadLetter:
    """This dead letter under a lock. Raises Refused if there is none, ChangedMeanwhile if it was resolved."""
    letter = DeadLetter.objects.select_for_update().filter(pk=pk).first()
    if letter is None:
        raise Refused(_("There is no dead letter %(number)s.") % {"number": pk}, "unknown_dead_letter")
    if letter.resolved_at is not None:
        raise ChangedMeanwhile(_("The dead letter was resolved meanwhile: %(how)s") % {"how": letter.resolution})
    return letter


def can_go_back(letter: DeadLetter) -> bool:
    """Whether this letter can be sent back."""
    if letter.blanked_at is not None:
        return False
    if letter.source == SUBMISSION:
        return bool(letter.public_id)
    return letter.source == INTAKE or (letter.source.startswith(QUEUE) and PROPERTIES not in letter.headers)


def give_back(letter: DeadLetter) -> str:
    """Send this letter back, in the caller's transaction; the public id of a submission, else the letter's number.

    Raises Refused with the reason why it cannot go back, or would be refused again.
    """
    if not can_go_back(letter):
        raise Refused(_("What came from %(source)s cannot go back there.") % {"source": letter.source})
    if letter.source == SUBMISSION:
        return _wait_again(str(letter.public_id))
    if letter.source == INTAKE:
        refused = amqp.read_again(letter)
        if refused is not None:
            raise Refused(_("It is still refused: %(why)s") % {"why": refused})
    else:
        Notification.objects.create(kind=KIND, payload={"letter": letter.pk})
    return str(letter.pk)


def _wait_again(public_id: str) -> str:
    changed = Submission.objects.filter(public_id=public_id).update(consumed_at=None, deliveries=0, reader=None, suspected_at=None)
    if not changed or Run.objects.filter(key=public_id).exists():
        raise Refused(_("The submission of this dead letter is gone or has become an order."))
    return public_id


def discarded(letter: DeadLetter) -> None:
    """End the child run that this letter was to become, in the caller's transaction: its parent's step fails, and sleeps no longer.

    Operators are told of signals that have come for it and that tell of an effect outside, such as money: no step takes them.
    """
    if letter.source != SUBMISSION:
        return
    key = str(letter.public_id)
    lost_children.end(key, ChildState.STARTED, ChildState.UNDOING)
    untaken.wait_for_senders([key])
    if here := sleeping.untaken(key, {name for agent in agents() for name in agent.evidence}):
        kept_evidence.note(key, here)


@notifications.handler(KIND)
def publish(notification: Notification) -> None:
    """Publish the letter's message unchanged, as the operator decided. The outbox may do it more than once.

    A letter whose bytes were erased meanwhile says in its resolution that nothing was sent.
    """
    letter = DeadLetter.objects.get(pk=notification.payload["letter"])
    if letter.blanked_at is not None:
        log.warning("dead letter %s is not sent back: its bytes are erased", letter.pk)
        said = Concat("resolution", Value(UNSENT), output_field=TextField())
        DeadLetter.objects.filter(pk=letter.pk).exclude(resolution__endswith=UNSENT).update(resolution=said)
        return
    queue, body = letter.source.removeprefix(QUEUE), bytes(letter.body)
    headers = restored(letter.headers)
    delivery = restored(letter.delivery)
    with current_app.connection_for_write(transport_options={"confirm_publish": True}) as broker, broker.channel() as channel:
        if UNREADABLE in headers:
            channel.put_raw(queue, body)
            return
        properties = {name: value for name, value in (delivery.get("properties") or {}).items() if name in OF_THE_SENDER}
        message = channel.prepare_message(
            body,
            priority=properties.pop("priority", None),
            content_type=letter.content_type or None,
            content_encoding=delivery.get("content_encoding"),
            headers={name: value for name, value in headers.items() if name not in OF_THE_BROKER},
            properties=properties,
        )
        exchange = ""
        if topology.is_rabbitmq(current_app.conf.broker_url):
            target = current_app.amqp.queues[queue](channel)
            target.declare()  # a queue of before may not be bound yet
            exchange = target.exchange.name
        channel.basic_publish(message, exchange=exchange, routing_key=queue, mandatory=True)

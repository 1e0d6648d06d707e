"""Sending an order's mail once more: a run of its own, so that it is retried like any other mail, under a Message-ID of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _

from orders.later_requests import Asked, check_key, digest_of, seen, submission
from orders.mails.codes import MOST, NOT_SENT, SEND, TOO_OFTEN, WORKFLOW
from orders.models import MailAgain, Order
from orders.parcels import extent
from orders.parcels.splitting import BOOKING, trackings
from orders.queries import OrderView, order_view, with_runs
from orders.returns.intake import AfterIntake
from orders.services import Conflict
from supervision import RetryPolicy, Step, Workflow
from supervision.errors import UnknownRun
from supervision.intake.submission import accept
from supervision.operations.acting import demand_reason
from supervision.operations.audit_log import log, name_of
from supervision.postgres import db
from supervision.states import Direction, RunState

RESEND_MAIL = Workflow(
    WORKFLOW,
    (Step(SEND, agent="email", complete_within=timedelta(seconds=30), retry=RetryPolicy(), amendable=("email",)),),
    intake=AfterIntake(),
)


def resend(key: str, *, reason: str, by: Any, idempotency_key: str, email: str = "") -> Asked:
    """Send the order's mail once more, to its own address or to another one. The same key has one effect.

    Raises Conflict where the order is not on its way or its mail was sent again MOST times; InvalidOrder for a key that is none;
    KeyReused; UnknownRun.
    """
    demand_reason(reason)
    check_key(idempotency_key)
    client, digest = f"mail:{key}", digest_of(email, reason)

    def work() -> Asked:
        order = Order.objects.select_for_update(no_key=True).filter(public_id=key).first()
        view = order_view(key)
        if order is None or view is None:
            raise UnknownRun(key)
        if before := seen(client, idempotency_key, digest):
            return before
        if view.process_state != RunState.PROCESSED:
            text = _("The order is not on its way: there is no mail to send again.")
            raise Conflict(NOT_SENT, text, {"order": [text]})
        if MailAgain.objects.filter(order_key=key).count() >= MOST:
            text = _("The mail was sent again %(most)d times. It is not sent any more.") % {"most": MOST}
            raise Conflict(TOO_OFTEN, text, {"order": [text]})
        to = email or view.email
        new = submission(WORKFLOW, _payload(order, view, to), client=client, key=idempotency_key, digest=digest)
        accept([new])
        MailAgain.objects.create(public_id=new.public_id, order_key=key, email=to, reason=reason, asked_by=name_of(by))
        log(by, order, f"mail sent again: {reason}")
        return Asked(new.public_id)

    return db.transact(work)


def _payload(order: Order, view: OrderView, to: str) -> dict[str, Any]:
    """What the mail says: the facts of the order, as the first one had them."""
    payload = with_runs([order])[0].run.payload
    facts = {name: payload[name] for name in ("lines", "total", "currency", "shipping_address", "language") if name in payload}
    booked = [step.result or {} for step in view.steps if step.name == BOOKING and step.direction == Direction.DO]
    numbers = trackings(booked[-1]) if booked else []
    return {**facts, "order": view.public_id, "number": view.number, "email": to, "trackings": numbers, "extent": extent.of(view.steps)}

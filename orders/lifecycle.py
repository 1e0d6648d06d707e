"""What the engine tells the shop: an order that ended Cancelled is told to its customer, by mail, through the outbox.

The notification is committed with the cancellation and delivered afterwards, at least once; the message's id is the
same each time, so that a mail that is sent twice is one mail to whoever sorts by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from orders import accounting
from orders.intake import order_number
from supervision.models import Notification, StepState
from supervision.notifications import handler
from supervision.states import Direction, ProcessState
from supervision.workflow import ClosedRun

ORDER_CANCELLED = "order-cancelled"
STOCK_STEP = "reserve-stock"
TRIED_FOR = timedelta(days=3)


def close_cancelled(runs: Sequence[ClosedRun]) -> None:
    """What follows from a cancellation, in the transaction that makes it true."""
    tell_the_customer(runs)
    accounting.record_cancelled(runs)


def tell_the_customer(runs: Sequence[ClosedRun]) -> None:
    """Queue one mail for each of these cancelled orders, in the transaction that cancelled them."""
    sold_out = _sold_out([run.run_id for run in runs])
    Notification.objects.bulk_create(
        Notification(
            kind=ORDER_CANCELLED,
            run_id=run.run_id,
            payload={
                "order": run.key,
                "number": order_number(run.run_id),
                "email": run.payload["email"],
                "sold_out": run.run_id in sold_out,
            },
        )
        for run in runs
        if run.payload.get("email")
    )


@handler(ORDER_CANCELLED, within=TRIED_FOR)
def send_cancellation(notification: Notification) -> None:
    """Mail the customer. Raises what the mail server answers: the outbox tries again, or gives up what is refused for good."""
    facts = notification.payload
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    if facts["sold_out"]:
        words = _("something in your order %(number)s is sold out, so we had to cancel it. We are sorry.")
    else:
        words = _("your order %(number)s is cancelled.")
    EmailMessage(
        subject=_("Your order %(number)s is cancelled") % facts,
        body="\n\n".join(
            [
                _("Hello,"),
                words % facts,
                _("Nothing will be sent, and anything you had paid is refunded."),
            ]
        ),
        to=[facts["email"]],
        headers={"Message-ID": f"<{facts['order']}.{ORDER_CANCELLED}@{domain}>", "X-Order-ID": facts["order"]},
    ).send()


def _sold_out(run_ids: Sequence[int]) -> set[int]:
    """Those of these runs that nobody asked to cancel: their goods could not be had."""
    return set(
        StepState.objects.filter(
            run_id__in=run_ids,
            name=STOCK_STEP,
            direction=Direction.DO.value,
            process_state=ProcessState.ERROR.value,
            last_error__isnull=False,
            run__cancel_requested_at__isnull=True,
        ).values_list("run_id", flat=True)
    )

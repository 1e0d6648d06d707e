"""The shop's reaction to a cancelled order: a mail to its customer, sent through the outbox.

The notification is committed with the cancellation and delivered afterwards, at least once. Each try has the same
Message-ID, so that a mail program that groups by it shows a mail that was sent twice as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from orders import accounting, staying
from orders.formats import speaking
from orders.intake import number_of
from supervision.models import Notification, StepState
from supervision.outbox.notifications import handler, mail_domain
from supervision.states import Direction, ProcessState
from supervision.workflow import ClosedRun

ORDER_CANCELLED = "order-cancelled"
STOCK_STEP = "reserve-stock"
TRIED_FOR = timedelta(days=3)


def close_cancelled(runs: Sequence[ClosedRun]) -> None:
    """Queue the mails and record the accounting events of cancelled orders, in the transaction that cancels them."""
    tell_the_customer(runs)
    accounting.record_cancelled(runs)


def tell_the_customer(runs: Sequence[ClosedRun]) -> None:
    """Queue one mail for each of these cancelled orders, in the transaction that cancelled them."""
    sold_out = _sold_out([run.run_id for run in runs])
    left = staying.left_of([run.run_id for run in runs])
    Notification.objects.bulk_create(
        Notification(
            kind=ORDER_CANCELLED,
            run_id=run.run_id,
            payload={
                "order": run.key,
                "number": number_of(run.payload, run.run_id),
                "email": run.payload["email"],
                "language": run.payload.get("language"),
                "sold_out": run.run_id in sold_out,
                "left": sorted(left.get(run.run_id, ())),
            },
        )
        for run in runs
        if run.payload.get("email")
    )


@handler(ORDER_CANCELLED, within=TRIED_FOR)
def send_cancellation(notification: Notification) -> None:
    """Mail the customer. The mail server's errors are raised: the outbox retries, or gives up after a permanent refusal."""
    with speaking(notification.payload.get("language")):
        _cancellation(notification.payload).send()


def _cancellation(facts: Mapping[str, Any]) -> EmailMessage:
    if facts["sold_out"]:
        words = _("something in your order %(number)s is sold out, so we had to cancel it. We are sorry.")
    else:
        words = _("your order %(number)s is cancelled.")
    return EmailMessage(
        subject=_("Your order %(number)s is cancelled") % facts,
        body="\n\n".join(
            [
                _("Hello,"),
                words % facts,
                *_outcome(facts.get("left") or ()),
            ]
        ),
        to=[facts["email"]],
        headers={"Message-ID": f"<{facts['order']}.{ORDER_CANCELLED}@{mail_domain()}>", "X-Order-ID": facts["order"]},
    )


def _outcome(left: Collection[str]) -> Iterator[str]:
    """What becomes of the money and the goods. left: the steps of a cancellation without undo whose effects stay."""
    if staying.PAYMENT in left:
        yield _("What you have paid was not paid back. If you have questions, please write to us.")
    if staying.SHIPMENT in left:
        yield _("A parcel that was booked for you was not called off: it may still come.")
    if not left:
        yield _("Nothing will be sent, and anything you had paid is refunded.")


def _sold_out(run_ids: Sequence[int]) -> set[int]:
    """The runs that were cancelled because the stock step failed, and not at the request of a customer or an operator."""
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

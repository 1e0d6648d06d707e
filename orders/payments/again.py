"""Paying in another way after a refusal: the customer's own resubmission of the payment step, and of nothing else."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from orders.agents import payment_transfer
from orders.payments import codes, state
from orders.payments.beside import TRANSFER_CAME
from orders.queries import OrderView
from supervision.errors import Refused
from supervision.operations import operator_verbs
from supervision.postgres import db
from supervision.states import Direction, ProcessState

NOT_REFUSED, TOO_OFTEN = "payment_not_refused", "too_many_payments"
_TRIED = """
SELECT count(*) FROM supervision_stepevent e
 WHERE e.run_id = %(run)s AND e.position = %(position)s AND e.direction = 'do' AND e.from_state = 'Error' AND e.to_state = 'Pending'
"""


def may_pay_again(view: OrderView) -> bool:
    """Whether the order's payment was refused, and another try is left. One query if it was refused."""
    return view.payment.state == state.REFUSED and view.cancel_requested_at is None and _tries_left(view) > 0


def pay_again(view: OrderView, payment_method: str, *, by: Any) -> str:
    """Run the refused payment step again with this payment method; returns the run's state.

    view: the order as its customer saw it; of several requests that saw the same refusal, the first one wins. Raises Refused if
    the payment was not refused, if a bank transfer has come for the order that another payment method would not take, if
    PAYMENT_TRIES resubmissions were made before, or if the order has changed meanwhile.
    """
    if view.payment.state != state.REFUSED or view.cancel_requested_at is not None:
        raise Refused(_("The payment of this order was not refused: there is nothing to pay again."), NOT_REFUSED)
    if payment_method != codes.BANK_TRANSFER and payment_transfer.not_taken(view.public_id):
        raise Refused(_("A bank transfer has come for this order: it is not paid again."), TRANSFER_CAME)
    if _tries_left(view) <= 0:
        most = settings.PAYMENT_TRIES
        raise Refused(_("The payment of this order was tried again %(most)d times, which is the most.") % {"most": most}, TOO_OFTEN)
    return operator_verbs.resubmit(
        view.public_id,
        by=by,
        reason="the customer pays again",
        attempt=_charge(view).attempt,
        amend={"payment_method": payment_method},
    )


def _charge(view: OrderView) -> Any:
    """The payment step that was refused."""
    return next(
        step
        for step in view.steps
        if step.name in codes.STEPS and step.direction == Direction.DO and step.process_state == ProcessState.ERROR
    )


def _tries_left(view: OrderView) -> int:
    """How many resubmissions are left. An operator's count as well.

    The count cannot be out of date when the step is resubmitted: another resubmission makes another attempt.
    """
    [[tried]] = db.run(_TRIED, {"run": view.run_id, "position": _charge(view).position})
    return int(settings.PAYMENT_TRIES - tried)

"""Recording the transfers by which operators pay out returns and refunds of orders that were paid by bank transfer."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orders.agents.payment_transfer import Unreadable
from orders.api.refunds import RefundAnswer, shown
from orders.api.returns import ReturnDoor
from orders.api.schema import IDEMPOTENCY_KEY
from orders.api.serializers import ReturnAnswer
from orders.models import Refund
from orders.payments import told, transfers
from orders.refunds.recorded import to_pay_out
from orders.returns import answers, codes
from supervision.api.base import account_of
from supervision.api.permissions import Operators
from supervision.api.shapes import Strict, Text
from supervision.errors import Refused, UnknownRun
from supervision.models import Signal
from supervision.operations import operator_verbs
from supervision.operations.acting import locked_run


class PayoutSerializer(Strict):
    """The transfer by which an operator has paid a return or refund out at the bank."""

    amount = Text(max_length=20, help_text="decimal string: what is owed")
    reference = Text(max_length=140, help_text="the bank's reference of the transfer")
    reason = Text(max_length=500)


class _Payout(ReturnDoor):
    """What both doors do."""

    permission_classes = [Operators]

    def record(self, request: Request, public_id: str, order: str, owes: Callable[[], tuple[Decimal | None, str]]) -> None:
        """Write the payout and send its signal, in one transaction. A payout that was recorded before is answered as before.

        owes: what is owed and its currency, asked under the locks of the run and the order; None where nothing waits to be paid out.
        """
        said: dict[str, Any] = self.read(request, PayoutSerializer)
        key = request.headers.get("Idempotency-Key") or said["reference"]
        payload = {"amount": said["amount"], "currency": owes()[1], "reference": said["reference"]}

        def first() -> None:
            locked_run(public_id)
            transfers.lock(order)
            owed, currency = owes()
            if owed is not None:
                reference = told.matching(payload, owed, currency)
                transfers.record(order, public_id, owed, currency, reference)
            elif not Signal.objects.filter(run_key=public_id, name=codes.PAID_OUT, key=key).exists():
                raise Refused(_("Nothing waits here to be paid out by bank transfer."), "no_payout")

        facts = {"by": account_of(request), "reason": said["reason"], "payload": payload, "signal_key": key}
        try:
            operator_verbs.signal(public_id, codes.PAID_OUT, first=first, **facts)
        except Unreadable as problem:
            field, _colon, text = str(problem).partition(": ")
            raise ValidationError({field: text}) from None


class ReturnPayoutView(_Payout):
    """The payout of one return by bank transfer."""

    @extend_schema(operation_id="record_payout", request=PayoutSerializer, parameters=[IDEMPOTENCY_KEY], responses={202: ReturnAnswer})
    def post(self, request: Request, public_id: str) -> Response:
        """Record the transfer that paid this return out: 202, and the return goes on. 409: it waits for no payout."""
        view = self.visible(request, public_id)

        def owes() -> tuple[Decimal | None, str]:
            now = self.visible(request, public_id)
            return now.owed if now.by_transfer else None, now.row.currency

        self.record(request, public_id, view.row.order_key, owes)
        return Response(answers.answer(self.visible(request, public_id)), status=202)


class RefundPayoutView(_Payout):
    """The payout of one refund by bank transfer."""

    @extend_schema(
        operation_id="record_refund_payout", request=PayoutSerializer, parameters=[IDEMPOTENCY_KEY], responses={202: RefundAnswer}
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Record the transfer that paid this refund out: 202, and the refund goes on. 409: it waits for no payout."""
        row = Refund.objects.filter(public_id=public_id).first()
        if row is None:
            raise UnknownRun(public_id)
        self.record(request, public_id, row.order_key, lambda: (row.amount if to_pay_out([public_id]) else None, row.currency))
        return Response(shown([row])[0], status=202)

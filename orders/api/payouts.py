"""Recording the transfers by which operators pay out returns and refunds of orders that were paid by bank transfer."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orders.api.refunds import RefundAnswer, shown
from orders.api.returns import ReturnDoor
from orders.api.serializers import ReturnAnswer
from orders.models import Refund
from orders.payments import told, transfers
from orders.returns import answers, codes
from supervision.api.base import account_of
from supervision.api.permissions import Operators
from supervision.api.reference.schema import IDEMPOTENCY_KEY
from supervision.api.shapes import Strict, Text
from supervision.errors import Refused, UnknownRun
from supervision.operations import operator_verbs
from supervision.signals.sending import Sent


class PayoutSerializer(Strict):
    """The transfer by which an operator has paid a return or refund out at the bank."""

    amount = Text(max_length=20, help_text="decimal string: what is owed")
    reference = Text(max_length=140, help_text="the bank's reference of the transfer")
    reason = Text(max_length=500)


class _Payout(ReturnDoor):
    """What both doors do."""

    permission_classes = [Operators]

    def record(self, request: Request, public_id: str, currency: str) -> None:
        """Send the signal, which records the payout. One that was recorded before under its key is answered as before."""
        said: dict[str, Any] = self.read(request, PayoutSerializer)
        # The same reference is a new payout once the one before has come back.
        key = request.headers.get("Idempotency-Key") or said["reference"] + ":again" * transfers.returned(public_id)
        payload = {"amount": said["amount"], "currency": currency, "reference": said["reference"]}
        facts = {"by": account_of(request), "reason": said["reason"], "payload": payload, "signal_key": key}
        try:
            made = operator_verbs.signal(public_id, codes.PAID_OUT, **facts)
        except Refused as refusal:
            if refusal.code == "signal_ended":
                raise Refused(told.nothing_waits(), told.NO_PAYOUT) from None
            if refusal.code != told.WRONG:
                raise
            field, _colon, text = str(refusal).partition(": ")
            raise ValidationError({field: text}) from None
        if made.outcome == Sent.REPEATED and transfers.returned(public_id) and not transfers.recorded(public_id):
            raise Refused(_("The payout of this key came back: the next one needs another key."), "signal_key_reused")


class ReturnPayoutView(_Payout):
    """The payout of one return by bank transfer."""

    @extend_schema(operation_id="record_payout", request=PayoutSerializer, parameters=[IDEMPOTENCY_KEY], responses={202: ReturnAnswer})
    def post(self, request: Request, public_id: str) -> Response:
        """Record the transfer that paid this return out: 202, and the return goes on. 409: it waits for no payout."""
        view = self.visible(request, public_id)
        self.record(request, public_id, view.row.currency)
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
        self.record(request, public_id, row.currency)
        return Response(shown([row])[0], status=202)

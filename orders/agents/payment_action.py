"""A payment that the bank wants its customer to confirm: the step waits, and looks at the payment when it is called again.

The step hands over with the signal `payment-answered`. It is called again when the payment service has sent a webhook, every
PAYMENT_LOOK_AFTER seconds in case no webhook comes, and when PAYMENT_ACTION_WITHIN is over. A signal is only a reason to look:
the payment's present state at the service decides. So a forged, repeated, early or late signal changes nothing.

When the time is over, the payment is cancelled at the service first, and then the step is refused. If the customer confirms at
that moment, the service lets one of the two win: a cancelled payment is never charged, and a charged one completes the step.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils.translation import gettext as _

from orders.agents.payment_calls import Calls
from orders.gateways.payment import ACTION, CANCELLED, PAID, Intent
from orders.payments import codes
from supervision import AwaitSignal, EffectOutcome, Operation, OutcomeUnknown, PermanentFailure

CREATE, CONFIRM = "create", "confirm"
# The customer can solve these: another card, or the bank's confirmation.
FOR_THE_CUSTOMER = codes.REFUSALS - {codes.PAYMENT_REFUSED}


class Action(Calls):
    """What an attempt does with a payment that waits, or has waited, for the customer.

    method: how the customer pays. reached: the states of a payment that complete the step.
    """

    method = ""
    reached: frozenset[str] = frozenset({PAID})

    def heard(self, intent: Intent | None) -> Intent:
        """The payment if it has reached its aim. Otherwise raises: AwaitSignal while it may still be charged, or what its end means.

        intent: as the service shows it now; None: every payment of the order is cancelled.
        """
        if intent is None or intent.status == CANCELLED:
            raise _refusal(_("it was cancelled at the payment service"), _("Your payment was cancelled."), codes.PAYMENT_CANCELLED)
        charge = self.confirmation_of(intent)
        if intent.status in self.reached:
            if charge is not None:
                charge.settle(EffectOutcome.DONE)
            return intent
        if intent.status == ACTION and not intent.action_url:
            reason = _("the bank asks for a confirmation that cannot be given on a page")
            return self.refuse(
                charge, intent, reason, _("Your bank asks for a confirmation. Please use another card."), codes.ACTION_REQUIRED
            )
        if intent.live and intent.status != ACTION:
            public = _("Your bank did not confirm the payment. Please try again, or use another card.")
            return self.refuse(charge, intent, intent.refusal or intent.status, public, codes.ACTION_REFUSED)
        if not self.request.wait_is_over:
            raise self.wait(intent)
        if intent.live:
            public = _("The payment was not confirmed in time. Please try again, or use another card.")
            return self.refuse(charge, intent, _("the customer did not confirm it in time"), public, codes.ACTION_TIMEOUT)
        raise OutcomeUnknown(_("The payment service is still working on the payment (%(state)s).") % {"state": intent.status})

    def wait(self, intent: Intent) -> AwaitSignal:
        """The wait for the customer's answer, after the page to open was saved; the rest of the wait if it has begun."""
        request = self.request
        action = {"intent": intent.id, "url": intent.action_url, "method": self.method}
        if request.checkpoint_data.get(codes.ACTION) != action and intent.action_url:
            request.checkpoint(**{codes.ACTION: action})
        left = settings.PAYMENT_ACTION_WITHIN if request.wait_left is None else max(0.0, request.wait_left)
        return AwaitSignal(
            codes.ANSWERED,
            within=timedelta(seconds=left),
            look_after=timedelta(seconds=settings.PAYMENT_LOOK_AFTER),
            message=_("the customer has to confirm the payment"),
        )

    def asked_for_another_method(self, intent: Intent) -> bool:
        """Whether this payment waits for a confirmation although the order is now paid in another way."""
        action = self.request.checkpoint_data.get(codes.ACTION) or {}
        return intent.status == ACTION and action.get("intent") == intent.id and action.get("method") != self.method

    def confirmation_of(self, intent: Intent) -> Operation | None:
        """The ledger's row of the confirmation of this intent by an earlier attempt."""
        return next((one for one in self.before if one.operation == CONFIRM and one.external_id == intent.id), None)

    def refuse(self, charge: Operation | None, intent: Intent, reason: str, public: str, code: str, operation: str = "") -> Intent:
        """Cancel the refused intent and raise PermanentFailure; return the intent only if it was charged after all."""
        closed = self.close(intent, operation or f"cancel:{intent.id}")
        if charge is not None:
            charge.settle(EffectOutcome.DONE if closed.status == PAID else EffectOutcome.REFUSED)
        if closed.status == PAID:
            return closed
        for made in self.before:
            if made.operation == CREATE and made.external_id == intent.id:
                made.settle(EffectOutcome.UNDONE)
        raise _refusal(reason, public, code)


def _refusal(reason: str, public: str, code: str) -> PermanentFailure:
    text = _("Payment refused: %(reason)s") % {"reason": reason}
    return PermanentFailure(text, code=code, public_message=public, for_customer=code in FOR_THE_CUSTOMER)

"""Names that the payment agent, the pages and the webhooks share. No database and no calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STEP = "charge-payment"
# The other version of the workflow reserves the amount at the checkout, and charges it once the goods are booked.
AUTHORISE, CAPTURE = "authorise-payment", "capture-payment"
STEPS = (STEP, AUTHORISE, CAPTURE)
TAKES_MONEY = (STEP, CAPTURE)
AFTER_BOOKING = "after-booking"  # SHOP_CAPTURE, and in the payload of orders that were placed while it was so
AT_ONCE = "at-once"
LAPSED = "lapsed"  # in the capturing step's checkpoint: the intent that lapsed, as an attempt has reported; later attempts charge anew
AGENT = "payment"
ANSWERED = "payment-answered"  # the signal: the payment service has news of a payment that the step waits for
ACTION = "action"  # in the step's checkpoint: {"intent", "url", "method"} of the confirmation that the customer was asked for

BANK_TRANSFER = "bank_transfer"  # the payment method
TRANSFER = "transfer-received"  # the signal: {"amount", "currency", "reference"} of one transfer
TRANSFERS = "transfers"  # in the step's checkpoint: [amount, currency] by reference
PAYOUT = "payout:"  # a payout that was recorded, as an adjustment of the order's payment: this, and the return's or refund's public id
BY_HAND = "by-hand:"  # the same for money of a card that an operator gave back by hand: this, and the return's or refund's public id
ODD_TRANSFERS = "odd_transfers"  # in the step's checkpoint: why signals told of no transfer

# Why a payment was refused. Nothing was charged, and the customer may pay in another way.
CARD_DECLINED = "card_declined"
PAYMENT_REFUSED = "payment_refused"  # the payment service does not accept the payment method
ACTION_REQUIRED = "action_required"  # the bank asks for a confirmation that cannot be given on a page
ACTION_REFUSED = "action_refused"  # the customer refused to confirm, or failed
ACTION_TIMEOUT = "action_timeout"  # the customer did not confirm in time
PAYMENT_CANCELLED = "payment_cancelled"  # it was cancelled at the payment service
TRANSFER_MISSING = "transfer_missing"  # no transfer has come in time
AUTHORISATION_LAPSED = "authorisation_lapsed"  # what was reserved at the checkout can not be charged any more
FOREIGN = "foreign_payment"  # a result by hand names a payment that was made for another order
# A part has come, and not the rest. This is no refusal: an operator decides about the money that is there.
TRANSFER_INCOMPLETE = "transfer_incomplete"
REFUSALS = frozenset(
    {
        CARD_DECLINED,
        PAYMENT_REFUSED,
        ACTION_REQUIRED,
        ACTION_REFUSED,
        ACTION_TIMEOUT,
        PAYMENT_CANCELLED,
        TRANSFER_MISSING,
        AUTHORISATION_LAPSED,
    }
)


def by_transfer(result: Mapping[str, Any]) -> bool:
    """Whether this result of a payment step says that money came by bank transfer. One by hand may say `received` alone."""
    return "received" in result or result.get("method") == BANK_TRANSFER

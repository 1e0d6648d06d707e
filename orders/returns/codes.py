"""Names that the return's door, its agents and its pages share. No database and no calls."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

WORKFLOW = "return-goods"
AWAIT, RESTOCK, REFUND, TELL = "await-goods", "restock-goods", "refund-part", "notify-return"
RECEIVED = "goods-received"  # the signal: {"lines": [{"sku", "accepted", "refused"}]}: what really came

PAID_OUT = "money-returned"  # the signal: {"amount", "currency", "reference"} of the transfer by which an operator paid out

# Why a return is refused at the door, or ends without its goods.
NOT_DELIVERED = "not_delivered"  # the order is not Processed
BEYOND = "beyond_delivered"  # more than was delivered and is not on its way back
CORRECT = "correct-return"  # the verb that corrects a report, for the approval of another operator
SOLD_AGAIN = "sold_again"  # pieces are to be taken out of stock that are not there any more
NOT_PAID = "not_paid"  # a further refund is due, and no money came
NOTHING_CHANGES = "nothing_changes"  # the report says this already
NOTHING_ACCEPTED = "nothing_accepted"  # a return that was not paid yet would have no piece left
UNDONE = "return_undone"  # the return is cancelled or being undone
NOT_REPORTED = "not_reported"  # the goods have not come yet
REPORTED = "already_reported"  # they have come, and were looked at
ON_ITS_WAY = "return_under_way"  # the return is being paid, or may have been
GOODS_MISSING = "goods_missing"  # the goods did not come in time
NOT_RECORDED = "goods_not_recorded"  # the result of await-goods is not what the return's lines say
_MOST = Decimal(10) ** 12


def amount_said(said: Any) -> Decimal:
    """An amount in a step's result. An operator may have written it by hand: what is no amount counts as 0."""
    try:
        amount = Decimal(str(said or "0.00"))
    except ArithmeticError:
        return Decimal("0.00")
    return amount if amount.is_finite() and abs(amount) < _MOST else Decimal("0.00")

"""The shop's own problems, for the catalogue."""

from __future__ import annotations

from supervision.api.reference.problems import Problem, add

# The doors, by their operations.
RETURNS, PAID_BACK, CORRECTIONS = "return_goods|correct_return", "refund_.*|correct_return", "correct.*|plan_correction"

add(
    {
        "not_allowed": Problem(
            403,
            "priority: High priority needs a permission that this account lacks.",
            "Use normal priority, or ask for the permission.",
            "place_orders?",
        ),
        "price_changed": Problem(
            409, "The total is now 27.80 EUR.", "Show the customer `total`, and send it as `expected_total`.", "place_orders?"
        ),
        "out_of_stock": Problem(
            409, "Something in this order is out of stock.", "Order fewer of the lines that `errors` names.", "place_orders?"
        ),
        "key_reused": Problem(
            422,
            "This idempotency key was used before, for another request.",
            "Take a new key for a new order.",
            "place_orders?|return_goods|refund_order|pay_refund_again|correct_return",
        ),
        "payment_not_refused": Problem(
            409, "The payment of this order was not refused.", "There is nothing to pay again.", "pay_order_again"
        ),
        "too_many_payments": Problem(
            409, "The payment was tried again 5 times, which is the most.", "Cancel the order, and place another.", "pay_order_again"
        ),
        "transfer_came": Problem(
            409,
            "A bank transfer has come for this order.",
            "Pay by bank_transfer, which takes it, or cancel the order.",
            "pay_order_again|resubmit_order|resume_order_from_step",
        ),
        "not_delivered": Problem(409, "The order was not delivered.", "Wait for the delivery, or cancel the order.", "return_goods"),
        "beyond_delivered": Problem(
            409,
            "More than was delivered and is not yet returned.",
            "Return fewer pieces of the lines that `errors` names.",
            RETURNS,
        ),
        "not_paid": Problem(409, "The order is not done, or no money came for it.", "Cancel an order that is not done.", PAID_BACK),
        "no_failed_refund": Problem(
            409,
            "This order has no failed refund of this id.",
            "List the failed refunds of the order.",
            "pay_refund_again",
        ),
        "refund_under_way": Problem(
            409, "Something else may be paying this money at the moment.", "Wait until it has ended, and look again.", "pay_refund_again"
        ),
        "beyond_charge": Problem(409, "Only 10.00 EUR of the charge are left.", "Pay back less.", "refund_.*"),
        "lines_not_editable": Problem(
            409, "charge-payment is done: the lines cannot be changed any more.", "Cancel the order, or wait for a return.", "change_lines"
        ),
        "nothing_left": Problem(409, "Nothing of the order would be left.", "Cancel the order.", "change_lines"),
        "nothing_to_change": Problem(409, "The order has these lines already.", "Read the order again.", "change_lines"),
        "not_sent_yet": Problem(409, "This mail was not sent yet.", "Wait until the order is on its way.", ".*mail.*"),
        "sent_too_often": Problem(409, "This mail was sent 5 times, which is the most.", "Write to the customer.", ".*mail.*"),
        "wrong_payout": Problem(
            409, "amount: expected 12.90, which is what has to be paid back.", "Pay what is owed, and send that.", ".*signal.*"
        ),
        "no_payout": Problem(409, "It waits for no payout.", "Look at it: nothing is to be paid out by hand.", ".*pay.*"),
        "not_reported": Problem(409, "There is no report on this return yet.", "Report what came.", CORRECTIONS),
        "already_reported": Problem(
            409, "The goods of this return were looked at already.", "Correct the report instead.", "report_goods|signal_order"
        ),
        "nothing_changes": Problem(409, "The report says this already.", "Nothing is to be done.", CORRECTIONS),
        "nothing_accepted": Problem(
            409, "No piece would be accepted, and nothing was paid yet.", "Cancel the return instead.", CORRECTIONS
        ),
        "return_undone": Problem(409, "This return is cancelled or being undone.", "Ask for another return.", CORRECTIONS),
        "return_under_way": Problem(
            409,
            "This return is on its way, or money of it may have gone out.",
            "Correct it once it has ended.",
            CORRECTIONS,
        ),
        "sold_again": Problem(
            409, "MUG-BLUE was sold again.", "Correct the stock of the product first, then the report.", "correct_return"
        ),
        "too_many_streams": Problem(
            503, "Too many orders are being followed.", "Connect again after `Retry-After` seconds.", "list_events"
        ),
    }
)

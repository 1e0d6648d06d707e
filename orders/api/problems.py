"""The shop's own problems, for the catalogue."""

from __future__ import annotations

from supervision.api.reference.problems import Problem, add

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
            "place_orders?|return_goods",
        ),
        "payment_not_refused": Problem(
            409, "The payment of this order was not refused.", "There is nothing to pay again.", "pay_order_again"
        ),
        "too_many_payments": Problem(
            409, "The payment was tried again 5 times, which is the most.", "Cancel the order, and place another.", "pay_order_again"
        ),
        "not_delivered": Problem(409, "The order was not delivered.", "Wait for the delivery, or cancel the order.", "return_goods"),
        "beyond_delivered": Problem(
            409, "More than was delivered and is not yet returned.", "Return fewer pieces of the lines that `errors` names.", "return_goods"
        ),
        "too_many_streams": Problem(
            503, "Too many orders are being followed.", "Connect again after `Retry-After` seconds.", "list_events"
        ),
    }
)

"""The workflow of an order. New developers should read this module first.

It has four steps, each done by the agent of one service. If a service permanently refuses a step, the order either stops
for an operator (`error`), undoes the steps that are done (`compensate`) or continues without the step (`skip`).
The workflow of a return is in `orders.returns.workflow`, of a refund in `orders.refunds.workflow`.

The second version is for orders that were placed with SHOP_CAPTURE=after-booking. It reserves the money at the checkout, and
charges it once the goods are booked.

An order whose products come from several warehouses runs the split version of its plan: `orders.parcels.plan` books a parcel for each
warehouse.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from orders import accounting, lifecycle
from orders.agents.email import EmailAgent
from orders.agents.payment import PaymentAgent
from orders.agents.shipping import ShippingAgent
from orders.agents.stock import StockAgent
from orders.directory import OrderDirectory
from orders.intake import RESERVES_AT_CHECKOUT, OrderIntake
from orders.mails.resending import RESEND_MAIL
from orders.parcels.plan import SHIP_PARCEL, split
from orders.payments import by_hand, codes, patience
from orders.refunds.workflow import REFUND_ORDER
from orders.returns.workflow import RETURN_GOODS
from supervision import OnExhausted, OnPermanent, RetryPolicy, Step, Workflow, register, register_agent
from supervision.insight import directory

for agent in (StockAgent(), PaymentAgent(), ShippingAgent(), EmailAgent()):
    register_agent(agent)

FULFIL_ORDER = register(
    Workflow(
        "fulfil-order",
        (
            Step(
                "reserve-stock",
                agent="stock",
                complete_within=timedelta(seconds=15),
                retry=RetryPolicy(on_permanent=OnPermanent.COMPENSATE),
            ),
            Step(
                "charge-payment",
                agent="payment",
                complete_within=timedelta(seconds=30),
                amendable=("payment_method",),
            ),
            Step(
                "book-shipment",
                agent="shipping",
                complete_within=timedelta(seconds=30),
                amendable=("shipping_address",),
            ),
            Step(
                "notify-customer",
                agent="email",
                complete_within=timedelta(seconds=30),
                retry=RetryPolicy(on_permanent=OnPermanent.SKIP, on_exhausted=OnExhausted.SKIP),
                amendable=("email",),
                reads=("book-shipment",),
            ),
        ),
        intake=OrderIntake(),
        on_processed=accounting.record_processed,
        on_cancelled=lifecycle.close_cancelled,
        on_error=patience.begin,
        on_completed_by_hand=by_hand.completed,
    )
)

_stock, _charge, _shipment, _mail = FULFIL_ORDER.steps
RESERVE_AT_CHECKOUT = register(
    replace(
        FULFIL_ORDER,
        version=RESERVES_AT_CHECKOUT,
        by_choice=True,
        steps=(
            _stock,
            replace(_charge, name=codes.AUTHORISE),
            _shipment,
            replace(_charge, name=codes.CAPTURE, reads=(codes.AUTHORISE,)),
            _mail,
        ),
    )
)

register(RETURN_GOODS)
register(SHIP_PARCEL)
register(REFUND_ORDER)
register(RESEND_MAIL)
register(split(FULFIL_ORDER))
register(split(RESERVE_AT_CHECKOUT))

directory.use(OrderDirectory())

"""The workflow of an order. New developers should read this module first.

It has four steps, each done by the agent of one service. If a service permanently refuses a step, the order either stops
for an operator (`error`), undoes the steps that are done (`compensate`) or continues without the step (`skip`).
"""

from __future__ import annotations

from datetime import timedelta

from orders import accounting, lifecycle
from orders.agents.email import EmailAgent
from orders.agents.payment import PaymentAgent
from orders.agents.shipping import ShippingAgent
from orders.agents.stock import StockAgent
from orders.directory import OrderDirectory
from orders.intake import OrderIntake
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
            ),
        ),
        intake=OrderIntake(),
        on_processed=accounting.record_processed,
        on_cancelled=lifecycle.close_cancelled,
    )
)

directory.use(OrderDirectory())

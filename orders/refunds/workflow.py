"""The workflow of a refund: the money goes back, and the customer hears of it."""

from __future__ import annotations

from datetime import timedelta

from orders.payments import told
from orders.refunds import codes, ending
from orders.returns.codes import REFUND
from orders.returns.intake import AfterIntake
from supervision import OnExhausted, OnPermanent, RetryPolicy, Step, Workflow

REFUND_ORDER = Workflow(
    codes.WORKFLOW,
    (
        Step(REFUND, agent="payment", complete_within=timedelta(seconds=30)),
        Step(
            codes.TELL,
            agent="email",
            complete_within=timedelta(seconds=30),
            retry=RetryPolicy(on_permanent=OnPermanent.SKIP, on_exhausted=OnExhausted.SKIP),
            amendable=("email",),
            reads=(REFUND,),
        ),
    ),
    intake=AfterIntake(),
    on_processed=ending.record_processed,
    on_signal=told.signalled,
    on_completed_by_hand=told.completed_by_hand,
    on_cancelled=ending.record_cancelled,
)

"""The workflow of a return. It has four steps: the goods come, go back into stock, are paid back, and the customer hears of it.

A return of which nothing is accepted goes on without stock and money. A return whose goods never come is cancelled.
"""

from __future__ import annotations

from datetime import timedelta

from orders.returns import by_hand, codes, ending, reports
from orders.returns.intake import ReturnIntake
from supervision import OnExhausted, OnPermanent, RetryPolicy, Step, Workflow
from supervision.workflow import Facts


def something_was_accepted(facts: Facts) -> bool:
    """Whether at least one piece was accepted."""
    return bool(facts.results.get(codes.AWAIT, {}).get("accepted"))


RETURN_GOODS = Workflow(
    codes.WORKFLOW,
    (
        Step(
            codes.AWAIT,
            agent="stock",
            complete_within=timedelta(seconds=15),
            retry=RetryPolicy(on_permanent=OnPermanent.COMPENSATE),
            label="the returned goods",
        ),
        Step(
            codes.RESTOCK,
            agent="stock",
            complete_within=timedelta(seconds=15),
            reads=(codes.AWAIT,),
            when=something_was_accepted,
        ),
        Step(
            codes.REFUND,
            agent="payment",
            complete_within=timedelta(seconds=30),
            reads=(codes.AWAIT,),
            when=something_was_accepted,
        ),
        Step(
            codes.TELL,
            agent="email",
            complete_within=timedelta(seconds=30),
            retry=RetryPolicy(on_permanent=OnPermanent.SKIP, on_exhausted=OnExhausted.SKIP),
            amendable=("email",),
            reads=(codes.AWAIT, codes.REFUND),
        ),
    ),
    intake=ReturnIntake(),
    on_processed=ending.record_processed,
    on_signal=reports.signalled,
    on_completed_by_hand=by_hand.completed,
    on_cancelled=ending.close_cancelled,
)

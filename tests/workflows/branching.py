"""The process of `worker` with a workflow whose plan branches: `python -m tests.workflows.branching DATABASE CALLS`."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from supervision import (
    Agent,
    OnPermanent,
    PermanentFailure,
    RetryPolicy,
    Step,
    Timer,
    WaitForSignal,
    Workflow,
    parallel,
    plan,
    register,
    register_agent,
)
from tests.workflows import worker

NAME = "killed-branches"


def is_undone(n: int) -> bool:
    """Whether a step of this order fails, so that the order is undone."""
    return n % 7 == 3


class Clerk(Agent):
    """Notes each call and each undo."""

    name = "clerk"

    def perform(self, request):
        worker.note(request)
        time.sleep(0.01)
        if request.step == "label" and is_undone(request.payload["n"]):
            raise PermanentFailure("no label")
        if request.step == "insure" and request.payload["n"] % 5 == 1:
            raise PermanentFailure("no insurance")
        return {"read": request.results.get("paid")}

    def compensate(self, request):
        worker.note(request)
        time.sleep(0.01)
        return {}


register_agent(Clerk())
STEPS = plan(
    Step("ask", agent="clerk"),
    parallel(
        [WaitForSignal("paid", within=timedelta(hours=1)), Step("book", agent="clerk", when=lambda order: order.payload["n"] % 2 == 0)],
        [
            Step("pick", agent="clerk"),
            parallel(
                [Step("label", agent="clerk", retry=RetryPolicy(on_permanent=OnPermanent.COMPENSATE)), Step("print", agent="clerk")],
                Step("insure", agent="clerk", retry=RetryPolicy(on_permanent=OnPermanent.SKIP)),
            ),
        ],
        [Timer("rest", lasts=timedelta(milliseconds=200)), Step("tell", agent="clerk")],
    ),
    Step("ship", agent="clerk", reads=("paid",)),
)
register(Workflow(NAME, STEPS))

if __name__ == "__main__":
    worker.main(*sys.argv[1:])

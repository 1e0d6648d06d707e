"""A process that works on orders with branches, waits and children until it dies (`main`).

It is also the operator of the orders that change (`CHANGED`): each begins under version 1, is moved to version 2 while it waits,
fails at its last step, and goes on from its first step. It cancels the orders that can never end (`LEFT`) without undo.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
django.setup()

from django.db import connection, connections  # noqa: E402

from supervision import (  # noqa: E402
    Agent,
    AwaitSignal,
    ChildRun,
    ForEach,
    OnPermanent,
    PermanentFailure,
    RetryPolicy,
    Step,
    Timer,
    TransientFailure,
    WaitForSignal,
    Workflow,
    parallel,
    plan,
    register,
    register_agent,
    testing,
)
from supervision.models import Run  # noqa: E402
from supervision.operations import moving, resuming  # noqa: E402
from supervision.operations.ending import abandoning  # noqa: E402
from supervision.recovery import supervisor  # noqa: E402
from supervision.runtime import failpoints  # noqa: E402
from supervision.wakeup import hints  # noqa: E402
from supervision.workflow import Intake, NewRun  # noqa: E402

NAME, CHILD, ITEMS, CHANGED, LEFT = "crash-graph", "crash-child", 2, "crash-changed", "crash-left"
HOUR, SOON = timedelta(hours=1), RetryPolicy(threshold=100, first_delay=timedelta(0), jitter=0)
REFUSED = RetryPolicy(threshold=100, first_delay=timedelta(0), jitter=0, on_permanent=OnPermanent.COMPENSATE)
CALLS: list[Path] = []


class Clerk(Agent):
    """Notes each call. The payload's `fails`: the label of the step whose first call fails. `undone`: the last step is refused."""

    name, signals = "crash-clerk", ("captured",)

    def perform(self, request):
        self.note(request, request.step)
        if request.step == "capture" and request.signal is None:
            raise AwaitSignal("captured", within=HOUR)
        if request.step == "close" and request.payload["undone"]:
            raise PermanentFailure("no")
        if request.step == "never":
            raise PermanentFailure("it is never possible")
        if request.step == "join" and request.generation == 1:
            raise PermanentFailure("it does not fit")
        return {"signal": request.signal}

    def compensate(self, request):
        self.note(request, f"undo:{request.step}")
        return {}

    def note(self, request, label):
        with CALLS[0].open("a") as file:
            file.write(f"{request.idempotency_key}\n")
        if label == request.payload.get("fails") and request.attempt == 1:
            raise TransientFailure("not now")


def items(order):
    return [{"n": n, "fails": order.payload.get("fails"), "undone": False} for n in range(ITEMS)]


STEPS = plan(
    Step("ask", agent="crash-clerk", retry=SOON),
    parallel(
        [WaitForSignal("paid", within=HOUR), Step("capture", agent="crash-clerk", retry=SOON)],
        [
            Timer("rest", lasts=timedelta(milliseconds=50)),
            Step("tell", agent="crash-clerk", retry=SOON, when=lambda order: not order.payload.get("silent")),
        ],
        ChildRun("one", workflow=CHILD),
        ForEach("each", workflow=CHILD, items=items, at_once=1),
    ),
    Step("close", agent="crash-clerk", retry=REFUSED),
)
PAID, JOIN = WaitForSignal("paid", within=HOUR), Step("join", agent="crash-clerk", retry=SOON)
CUT, DRILL = (Step(name, agent="crash-clerk", retry=SOON) for name in ("cut", "drill"))
connections.close_all()  # a forked process must not share what loading the application has opened


class Older(Intake):
    """New orders begin under version 1."""

    def read(self, body):
        return NewRun(payload=json.loads(body), version=1)


def declare() -> None:
    """Register the agent and the workflows."""
    register_agent(Clerk())
    register(Workflow(CHILD, (Step("pack", agent="crash-clerk", retry=SOON),)))
    register(Workflow(NAME, STEPS))
    register(Workflow(LEFT, tuple(Step(name, agent="crash-clerk", retry=SOON) for name in ("ask", "tell", "never"))))
    register(Workflow(CHANGED, (CUT, PAID, JOIN), intake=Older()))
    register(Workflow(CHANGED, plan(CUT, parallel(PAID, DRILL, ChildRun("one", workflow=CHILD)), JOIN), version=2, intake=Older()))


def calls_of(file: Path) -> Counter[str]:
    """How often each idempotency key was called."""
    return Counter(file.read_text().split())


def operate() -> None:
    """What an operator does: move the orders that wait under version 1, and let those go back whose last step has failed."""
    orders = Run.objects.filter(workflow=CHANGED).order_by("pk")
    for key in orders.filter(version=1, steps__awaits="paid", steps__turn_at=None).values_list("key", flat=True):
        moving.move(key, by="operator", reason="to drill, too")
    for key in orders.filter(process_state="Error", steps__name="join", steps__process_state="Error").values_list("key", flat=True):
        resuming.resume_from(key, "cut", by="operator", reason="to cut it anew")
    for key in Run.objects.filter(workflow=LEFT, process_state="Error").order_by("pk").values_list("key", flat=True):
        abandoning.abandon(key, by="operator", reason="it is never possible")


def main(database: str, calls: str) -> None:
    """Schedule, perform, sweep and operate. calls: a file to which each call of an agent appends its idempotency key."""
    CALLS.append(Path(calls))
    connection.settings_dict["NAME"] = database
    hints.enabled = False
    failpoints.load()
    declare()
    while True:
        for place, claims in testing.schedule():
            testing.perform(place, claims)
        supervisor.sweep_once()
        operate()
        time.sleep(0.01)

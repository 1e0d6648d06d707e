"""A process that schedules, performs and sweeps until it is killed: `python -m tests.workflows.worker DATABASE CALLS`.

CALLS: a file to which each call of an agent appends its idempotency key.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
django.setup()

from django.db import connection  # noqa: E402

from supervision import (  # noqa: E402
    Agent,
    AwaitSignal,
    ChildRun,
    ForEach,
    Step,
    Timer,
    WaitForSignal,
    Workflow,
    register,
    register_agent,
    testing,
)
from supervision.recovery import supervisor  # noqa: E402
from supervision.wakeup import hints  # noqa: E402

CALLS: list[Path] = []


def note(request):
    with CALLS[0].open("a") as file:
        file.write(f"{request.idempotency_key}\n")


class Desk(Agent):
    """Notes each call; hands the step `capture` over to a signal."""

    name, signals = "counter", ("captured",)

    def perform(self, request):
        note(request)
        if request.step == "capture" and request.signal is None:
            raise AwaitSignal("captured", within=timedelta(hours=1))
        if request.signal is not None:
            time.sleep(0.3)  # kills find calls that have taken a signal
        return {"signal": request.signal, "read": request.results.get("paid")}

    def compensate(self, request):
        note(request)
        return {}


register_agent(Desk())
register(Workflow("killed-child", (Step("pack", agent="counter"), Step("seal", agent="counter"))))
register(
    Workflow(
        "killed-parent",
        (
            ChildRun("one", workflow="killed-child"),
            ForEach("each", workflow="killed-child", items=lambda order: list(range(order.payload["n"])), at_once=2),
            Step("close", agent="counter"),
        ),
    )
)
register(
    Workflow(
        "killed",
        (
            Step("ask", agent="counter"),
            WaitForSignal("paid", within=timedelta(hours=1)),
            Step("capture", agent="counter", when=lambda order: order.payload["n"] % 2 == 0),
            Timer("rest", lasts=timedelta(milliseconds=200)),
            Step("ship", agent="counter", reads=("paid",)),
        ),
    )
)


def main(database: str, calls: str) -> None:
    CALLS.append(Path(calls))
    connection.settings_dict["NAME"] = database
    hints.enabled = False
    print("ready", flush=True)
    while True:
        for place, claims in testing.schedule():
            testing.perform(place, claims)
        supervisor.sweep_once()
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])

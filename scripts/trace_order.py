"""Measures the way of one order: which functions of the engine and of the shop run, and how deep the stack of calls is.

    .venv/bin/python scripts/trace_order.py [--functions]

It places an order as the checkout does, lets a scheduler turn it into a run, claim and dispatch it, and lets an agents worker
perform the first step (stock) from the message that the scheduler sent. PostgreSQL is real (DATABASE_URL, or an embedded one);
the broker is Celery's in-memory one. One order after the other goes the way: the first is reported as cold, and of the later
ones the shortest, because a pass may also read again what the process keeps for half a second (resources, steps in flight).

What counts: calls of functions of `supervision/`, `orders/` and `sasproject/` on the thread that does the work, from
`place_order`, `schedule_once` and the function of the task `supervision.perform` on. What the shop does before it calls
`accept` (form, prices) and after it (answer) is counted apart, as `checkout`. A comprehension or generator expression is part of
its function. Libraries count neither as files nor as frames, nor do our receivers of Celery's signals.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS = tuple(f"{ROOT / package}{os.sep}" for package in ("supervision", "orders", "sasproject"))
IN_THEIR_FUNCTION = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
ACCEPT = "supervision/intake/submission.py:accept"
PRODUCT = "MUG-TRACED"
REQUEST = {
    "email": "ada@example.com",
    "shipping_address": {"name": "Ada L.", "line1": "Via Roma 1", "line2": "", "city": "Torino", "postal_code": "10121", "country": "IT"},
    "lines": [{"sku": PRODUCT, "quantity": 2}],
    "payment_method": "pm_card_visa",
}


@dataclass
class Phase:
    """The calls of one phase. stack: the deepest one, as functions of ours from the outermost to the innermost."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    stack: list[str] = field(default_factory=list)

    @property
    def files(self) -> set[str]:
        """The files whose functions were called."""
        return {path for path, _ in self.calls}

    @property
    def depth(self) -> int:
        """How many of our functions stood in each other."""
        return len(self.stack)


Pass = dict[str, Phase]
WARM_PASSES = 6  # the first of them still fills caches


@contextmanager
def traced(phase: Phase, *, within: tuple[str, Phase] | None = None) -> Iterator[None]:
    """Note this thread's calls of our functions in `phase`; those inside the function `within` names in its own phase instead."""
    stack: list[str] = []
    inner, apart = within or ("", phase)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(OURS) or code.co_name in IN_THEIR_FUNCTION:
            return
        if not code.co_flags & CO_OPTIMIZED:  # a module or a class body
            return
        if event == "return":
            stack.pop()
            return
        path = str(Path(code.co_filename).relative_to(ROOT))
        name = getattr(code, "co_qualname", code.co_name)
        stack.append(f"{path}:{name}")
        into = apart if inner in stack else phase
        into.calls[path, name] += 1
        if len(stack) > into.depth:
            into.stack = list(stack)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def one_pass() -> Pass:
    """One order's way on the default database, which has the product PRODUCT. Raises AssertionError if the step is not done."""
    from celery import current_app

    from orders import services
    from supervision.dispatch import scheduler
    from supervision.models import StepState

    with current_app.connection_for_write() as connection:
        connection.default_channel.queue_purge("agent.stock")  # in a process of tests, messages of others may wait there
    phases = {name: Phase() for name in ("checkout", "place", "schedule", "step")}
    with traced(phases["checkout"], within=(ACCEPT, phases["place"])):
        placed = services.place_order(REQUEST, account=None)
    with traced(phases["schedule"]):
        scheduler.schedule_once()
    with current_app.connection_for_read() as connection:
        message: Any = connection.default_channel.basic_get("agent.stock", no_ack=True)
        args, kwargs, embedded = message.decode()
        task = current_app.tasks[message.headers["task"]]
        task.push_request(**{**message.headers, **embedded, "args": args, "kwargs": kwargs})
        with traced(phases["step"]):
            task.run(*args, **kwargs)
        task.pop_request()
    state = StepState.objects.get(run__key=placed.public_id, position=0).process_state
    if state != "Processed":
        raise AssertionError(f"the first step of the traced order is {state}")
    return phases


def measure() -> tuple[Pass, Pass]:
    """The cold pass, and the shortest of the warm ones, on an empty store."""
    from celery import current_app

    from orders.models import Product
    from supervision.testing import quiet

    current_app.loader.import_default_modules()  # the tasks
    Product.objects.get_or_create(sku=PRODUCT, defaults={"name": "A mug", "price": "12.90", "available": 50})
    with quiet():
        cold = one_pass()
        warm = [one_pass() for _ in range(WARM_PASSES)][1:]
    return cold, min(warm, key=lambda phases: (len(files_of(phases)), depth_of(phases)))


def files_of(phases: Pass) -> set[str]:
    """The files of a pass, from the accepted submission on."""
    return set().union(*(phase.files for name, phase in phases.items() if name != "checkout"))


def depth_of(phases: Pass) -> int:
    """The depth of a whole pass, with the checkout."""
    return max(phase.depth for phase in phases.values())


def report(phases: Pass, *, functions: bool = False) -> str:
    """The figures and the list as text."""
    lines = []
    for name, phase in phases.items():
        lines.append(f"{name}: {len(phase.files)} files, {sum(phase.calls.values())} calls, deepest frame {phase.depth}")
        for path in sorted(phase.files):
            called = {function: count for (at, function), count in phase.calls.items() if at == path}
            lines.append(f"    {path}: {sum(called.values())}" + (f" ({', '.join(called)})" if functions else ""))
        lines.append("  deepest: " + " > ".join(phase.stack) if functions else "")
    more = len(phases["checkout"].files - files_of(phases))
    lines.append(f"in all: {len(files_of(phases))} files and {more} of the checkout, deepest frame {depth_of(phases)}")
    return "\n".join(filter(None, lines))


def main() -> int:
    """Measure on a database of its own, which is dropped again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", action="store_true", help="name the functions, too")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from supervision.embedded.server import EmbeddedPostgres, database_url

    state = tempfile.mkdtemp(prefix="sas-trace-")
    server = None
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = database_url(state)
        server = EmbeddedPostgres(state, fast=True)
        server.start()
    os.environ.update(DJANGO_SETTINGS_MODULE="sasproject.settings", DEBUG="1", CELERY_BROKER_URL="memory://", JOURNAL_DIR=state)
    try:
        import django

        django.setup()
        from django.test.utils import setup_databases, teardown_databases

        databases = setup_databases(verbosity=0, interactive=False, aliases=["default"])  # type: ignore[arg-type]
        try:
            cold, warm = measure()
        finally:
            teardown_databases(databases, verbosity=0)
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(state, ignore_errors=True)
    print(report(warm, functions=given.functions))
    print(f"the first pass of a process: {len(files_of(cold))} files, deepest frame {depth_of(cold)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a consumer and starts it again after each kill: `python -m tests.intake.process DATABASE intake|submissions`.

Prints one line for each consumer that ended. With FAIL_ONCE=1 only the first consumer has the failpoints. With WAIT=1
it prints "ready" and begins after a line on standard input.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
django.setup()

from django.db import connection  # noqa: E402

from sasproject import celery_app  # noqa: E402
from supervision.intake import consuming  # noqa: E402
from supervision.intake.amqp_consumer import Intake  # noqa: E402
from supervision.models import Submission  # noqa: E402
from supervision.runtime import failpoints  # noqa: E402
from supervision.wakeup import hints  # noqa: E402
from supervision.workflow import AcceptedRun, NewRun  # noqa: E402
from tests.support import toy  # noqa: E402


def intake() -> None:
    """Consume the intake for ever."""
    Intake(celery_app).run()


class Deadly(toy.ToyIntake):
    """Kills the process that reads an order "killer", or that writes an order "killer when written"."""

    def read(self, body: str) -> NewRun:
        if '"killer"' in body:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(body)

    def write(self, runs: Sequence[AcceptedRun]) -> None:
        if any(run.new.payload["n"] == "killer when written" for run in runs):
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(runs)


def submissions() -> None:
    """Consume until no submission waits."""
    object.__setattr__(toy.PLAIN, "intake", Deadly())
    while Submission.objects.filter(consumed_at=None).exists():
        consuming.consume_batch()


def again_and_again(work: Callable[[], None]) -> None:
    """Run `work` in a child process, and in a new one after each kill."""
    while True:
        child = os.fork()
        if not child:
            try:
                work()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "ended", flush=True)
        if not os.WIFSIGNALED(status):
            return
        if os.environ.get("FAIL_ONCE"):
            failpoints.load({})


if __name__ == "__main__":
    connection.settings_dict["NAME"] = sys.argv[1]
    hints.enabled = False
    failpoints.load()
    logging.basicConfig(level=logging.INFO)
    if os.environ.get("WAIT"):
        print("ready", flush=True)
        sys.stdin.readline()
    again_and_again({"intake": intake, "submissions": submissions}[sys.argv[2]])

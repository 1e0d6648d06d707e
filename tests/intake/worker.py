"""The project's Celery application with two more tasks, a healthy and a deadly one: `celery -A tests.intake.worker`."""

from __future__ import annotations

import os
import signal

from sasproject.celery import app
from supervision.postgres import db


@app.task(name="tests.neighbour", ignore_result=True)
def neighbour(number: int) -> None:
    """Note that this message was performed."""
    db.run("INSERT INTO tests_neighbour (number) VALUES (%(number)s)", {"number": number})


def _die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="tests.deadly", ignore_result=True, reads=staticmethod(_die))
def deadly(number: int) -> None:
    """Is never performed: its message kills the worker that reads it."""

"""The project's Celery application with two more tasks, poison and its neighbours: `celery -A tests.intake.worker`."""

from __future__ import annotations

import os
import signal

from sasproject.celery import app
from supervision import db


@app.task(name="tests.neighbour", ignore_result=True)
def neighbour(number: int) -> None:
    """Note that this message was worked off."""
    db.run("INSERT INTO tests_neighbour (number) VALUES (%(number)s)", {"number": number})


def _die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="tests.deadly", ignore_result=True, reads=staticmethod(_die))
def deadly(number: int) -> None:
    """Never comes to be performed: its message ends the worker that reads it."""

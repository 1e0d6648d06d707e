"""The project's Celery application with one more task, for the neighbours of poison: `celery -A tests.intake.worker`."""

from __future__ import annotations

from sasproject.celery import app
from supervision import db


@app.task(name="tests.neighbour", ignore_result=True)
def neighbour(number: int) -> None:
    """Note that this message was worked off."""
    db.run("INSERT INTO tests_neighbour (number) VALUES (%(number)s)", {"number": number})

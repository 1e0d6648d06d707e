"""A process that schedules, performs and sweeps, whose agent beats: `python -m tests.workflows.beating DATABASE NOTES DONE`.

NOTES: a file for a line at each heartbeat. DONE: the agent works until this file exists.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
django.setup()

from django.db import connection  # noqa: E402

from supervision import Agent, RetryPolicy, Step, TransientFailure, Workflow, register, register_agent, testing  # noqa: E402
from supervision.recovery import supervisor  # noqa: E402
from supervision.wakeup import hints  # noqa: E402

FILES: list[Path] = []


def note(line: str) -> None:
    with FILES[0].open("a") as file:
        file.write(f"{line}\n")


class Beating(Agent):
    """Works until the file exists, and beats ten times a second."""

    name = "beating"

    def perform(self, request):
        while not FILES[1].exists():
            try:
                request.heartbeat()
            except TransientFailure:
                note(f"lost {request.attempt}")
                raise
            note(f"beat {request.attempt}")
            time.sleep(0.1)
        return {"attempt": request.attempt}

    def compensate(self, request):
        return {}


register_agent(Beating())
LONG = Step(
    "long",
    agent="beating",
    complete_within=timedelta(seconds=1),
    longest=timedelta(minutes=5),
    retry=RetryPolicy(threshold=9, first_delay=timedelta(milliseconds=50)),
)
register(Workflow("beating", (LONG,)))


def work() -> None:
    """Schedule and perform, in a thread: `perform` waits for calls under way."""
    while True:
        for place, claims in testing.schedule():
            testing.perform(place, claims)
        time.sleep(0.02)


def main(database: str, *files: str) -> None:
    FILES.extend(map(Path, files))
    connection.settings_dict["NAME"] = database
    hints.enabled = False
    threading.Thread(target=work, daemon=True).start()
    note("ready")
    while True:
        supervisor.sweep_once()
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])

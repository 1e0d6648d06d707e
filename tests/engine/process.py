"""A process for the tests that need real ones: `python -m tests.engine.process DATABASE VERB ARGUMENTS`."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
django.setup()

from django.db import connection  # noqa: E402

from supervision.dispatch import scheduler  # noqa: E402
from supervision.history import linking  # noqa: E402
from supervision.insight import directory  # noqa: E402
from supervision.jobs import steering, working  # noqa: E402
from supervision.operations import archive  # noqa: E402
from supervision.operations.ending import unarchiving  # noqa: E402
from supervision.recovery import supervisor  # noqa: E402
from supervision.runtime import failpoints  # noqa: E402
from supervision.store import claiming  # noqa: E402
from supervision.wakeup import hints  # noqa: E402
from tests.support import toy  # noqa: E402, F401


def claim(size: str) -> list[int]:
    """Claim until no step is left; returns the run ids in the order of the claims."""
    mine: list[int] = []
    while places := claiming.claim(int(size)):
        mine += [item.run_id for claims in places.values() for item in claims]
    return mine


def sweep() -> int:
    """Sweep until no claim is overdue; returns how many claims this process recovered."""
    return supervisor.sweep_once().overdue


def schedule() -> int:
    """One pass of the scheduler; its messages are dropped."""
    return scheduler.schedule_once(lambda place, claims: None).claimed


def archived(size: str) -> int:
    """Archive all finished orders in batches; returns how many orders this process moved."""
    return sum(moved.runs for moved in archive.batches(timedelta(0), size=int(size)))


def unarchived(size: str, *keys: str) -> int:
    """Bring these orders back in batches; returns how many got their rows from this process."""
    return sum(back.brought for back in unarchiving.bring_back(keys, by="a test", reason="a test", size=int(size)))


def job() -> int:
    """Work on jobs until none is left; returns how many turns that took."""
    turns = 1
    while working.turn(seconds=1.0, rest=0.0):
        turns += 1
    return turns


def start_job() -> int:
    """Start a job for all orders in Error; returns its number."""
    directory.use(directory.Directory())
    return steering.start("resubmit", {"process_state": "Error"}, by="olga", reason="mended").pk


def job_that_freezes() -> int:
    """Work on jobs as a process whose transactions the server ends after a second without a word."""
    working.FREEZE_SECONDS = 1.0
    return job()


def link(size: str) -> int:
    """Link all that rests, in batches of this size; returns how many turns that took."""
    linking.SIZE = int(size)
    turns = 1
    while linking.turn(60.0):
        turns += 1
    return turns


if __name__ == "__main__":
    database, verb, *arguments = sys.argv[1:]
    connection.settings_dict["NAME"] = database
    connection.settings_dict["OPTIONS"]["application_name"] = f"tests:{os.getpid()}"  # `kit.Process` waits for its end
    hints.enabled = False
    failpoints.load()
    connection.ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    verbs = {"claim": claim, "sweep": sweep, "schedule": schedule, "archive": archived, "unarchive": unarchived}
    verbs |= {"job": job, "start_job": start_job, "job_that_freezes": job_that_freezes, "link": link}
    print(json.dumps(verbs[verb](*arguments)))

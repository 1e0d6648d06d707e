"""What a second database for the engine's state takes: a directory that maps entities to databases, and a process for each database.

The directory is the front of such a shop: `place` sends each order to one database. It is simulated here; the two databases,
their processes and the engine are real. docs/two-databases.md says what a shop would have to build.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from django.db import connection

from supervision import Agent, Intake, NewRun, RetryPolicy, Step, Workflow, register, register_agent, testing
from supervision.governance import resources
from supervision.intake import submission
from supervision.models import Run, Submission
from supervision.recovery import supervisor
from supervision.wakeup import hints

NAME = "of-two-databases"
SLICES = 8  # of the entities; each slice is in one database
CALLS: list[Path] = []


class ByEntity(Intake):
    """Runs one entity's orders one after another."""

    def read(self, body):
        return NewRun(payload=json.loads(body), session_key=json.loads(body)["entity"])


class Clerk(Agent):
    """Notes the beginning and the end of each call, so that a test sees which calls ran at the same time, in both databases."""

    name = "two-databases-clerk"

    def perform(self, request):
        self.note("+", request)
        time.sleep(0.03)
        self.note("-", request)
        return {}

    def compensate(self, request):
        raise AssertionError("no order of this test is undone")

    def note(self, sign, request):
        with CALLS[0].open("a") as file:
            file.write(f"{sign} {connection.settings_dict['NAME']} {request.idempotency_key} {request.attempt}\n")


def declare() -> None:
    """Register the agent and the workflow."""
    register_agent(Clerk())
    retry = RetryPolicy(threshold=1000)
    register(Workflow(NAME, tuple(Step(name, agent=Clerk.name, retry=retry) for name in ("begin", "end")), intake=ByEntity()))


@contextmanager
def at(database: str) -> Iterator[None]:
    """Let this process work on this database."""
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = database
    resources.forget()
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before
        resources.forget()


class Order(NamedTuple):
    """An order as its client sends it: `key` is the client's own."""

    entity: str
    key: str


class Directory:
    """Which database has which slice of the entities. moved: slices whose earlier orders are still in their old database."""

    def __init__(self, databases: list[str]) -> None:
        self.databases = databases
        self.home = {number: databases[number % len(databases)] for number in range(SLICES)}
        self.moved: dict[int, str] = {}
        self.held: list[Order] = []

    def slice_of(self, entity: str) -> int:
        """The static rule of the resolver: the same in every process."""
        return int(resources.partition_of(entity, count=SLICES))

    def move(self, number: int, database: str) -> None:
        """Send this slice's new orders to this database, once its earlier orders have ended where they are."""
        self.moved[number] = self.home[number]
        self.home[number] = database

    def place(self, order: Order) -> str | None:
        """Submit the order; returns its database, or None if it is held until its slice has moved.

        An order that a client sends again is in the database that has it, wherever its slice is now.
        """
        number = self.slice_of(order.entity)
        if number in self.moved and not self.has_it(self.moved[number], order):
            overtakes = any(self.slice_of(one.entity) == number for one in self.held)
            if overtakes or self.busy(self.moved[number], number):
                self.held.append(order)
                return None
            del self.moved[number]
        database = next((name for name in self.databases if self.has_it(name, order)), self.home[number])
        with at(database):
            new = submission.NewSubmission(
                public_id=f"{order.entity}-{order.key}",
                workflow=NAME,
                payload=json.dumps({"entity": order.entity}),
                client="shop",
                client_key=f"{order.entity}-{order.key}",
                session_key=order.entity,
            )
            submission.accept([new])
        return database

    def place_held(self) -> None:
        """Try again to place the orders that are held, in the order in which they came."""
        held, self.held = self.held, []
        for number, former in list(self.moved.items()):
            if not self.busy(former, number):
                del self.moved[number]
        for order in held:
            self.place(order)

    def has_it(self, database: str, order: Order) -> bool:
        """Whether this database has accepted this order before."""
        with at(database):
            return Submission.objects.filter(client_key=f"{order.entity}-{order.key}").exists()

    def busy(self, database: str, number: int) -> bool:
        """Whether an order of this slice has not ended in this database."""
        with at(database):
            waiting = Submission.objects.filter(workflow=NAME, consumed_at=None).values_list("session_key", flat=True)
            running = Run.objects.filter(workflow=NAME, finished_at=None).values_list("session_key", flat=True)
            return number in {self.slice_of(entity) for entity in [*waiting, *running]}


def main(database: str, calls: str) -> None:
    """Schedule, perform and sweep on one database. calls: the file for `Clerk`."""
    CALLS.append(Path(calls))
    connection.settings_dict["NAME"] = database
    hints.enabled = False
    declare()
    while True:
        for place, claims in testing.schedule():
            testing.perform(place, claims)
        supervisor.sweep_once()
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])

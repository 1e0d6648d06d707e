"""A step's work uses the database on a thread of its own. What if that thread's connection is lost?"""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connection

from supervision import Step, Workflow
from supervision.agent import Agent, registered
from supervision.errors import TransientFailure
from supervision.workflow import _newest, _workflows
from tests.engine.kit import another_connection
from tests.support import toy

CUT = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid = ANY(%s)"


class Reader(Agent):
    """Reads the database and keeps each thread's server process. It looks away from the errors that it meets, or tells them."""

    name = "reader"

    def __init__(self, *, tells: bool) -> None:
        self.tells = tells
        self.failed = 0
        self.pids: dict[int, int] = {}
        self.before = lambda: None

    def perform(self, request):
        self.before()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                [self.pids[threading.get_ident()]] = cursor.fetchone()
        except OperationalError as lost:
            self.failed += 1
            if self.tells:
                raise TransientFailure("the database does not answer") from lost
            raise
        return {}

    def cut(self) -> None:
        """End this agent's connections, as a failover does."""
        with another_connection() as other:
            other.execute(CUT, [list(self.pids.values())])


@pytest.fixture(params=[True, False], ids=["an agent that tells", "an agent that does not"])
def reader(sas, monkeypatch, request):
    agent = Reader(tells=request.param)
    monkeypatch.setitem(registered, "reader", agent)
    workflow = Workflow("reading", (Step("read", agent="reader", retry=toy.RETRY),))
    monkeypatch.setitem(_workflows, ("reading", 1), workflow)
    monkeypatch.setitem(_newest, "reading", workflow)
    sas.others_succeed("read")
    return agent


def test_a_connection_that_was_lost_between_two_steps_fails_no_call(sas, reader):
    for _ in range(8):
        sas.start("reading", {}).assert_state("Processed")
    reader.cut()

    for _ in range(8):
        sas.start("reading", {}).assert_state("Processed")
    assert reader.failed == 0


def test_a_connection_that_is_lost_in_a_call_fails_that_call_alone(sas, reader):
    sas.start("reading", {}).assert_state("Processed")

    def once():
        reader.before = lambda: None
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [reader.pids[0]] = cursor.fetchone()
        reader.cut()

    reader.before = once
    runs = [sas.submit("reading", {}) for _ in range(6)]
    sas.run()
    sas.advance("5m")

    for run in runs:
        run.assert_state("Processed")
    assert reader.failed == 1

"""The fixture `sas` with agents that only write the database: they are called as a worker calls them, for a whole cohort at once."""

from __future__ import annotations

import pytest
from django.db import connection

from supervision import Agent, PermanentFailure, Step, TransientFailure, Workflow
from supervision.agent import registered
from supervision.workflow import _newest, _workflows
from tests.support import toy


class Clerk(Agent):
    """Works in this database only. refuses: the order whose refusal it raises; returns: that it returns it instead."""

    name, transactional = "clerk", True

    def __init__(self):
        self.cohorts, self.refuses, self.returns = [], None, False

    def perform_many(self, requests):
        self.cohorts.append([request.payload["n"] for request in requests])
        with connection.cursor() as cursor:
            for request in requests:
                cursor.execute("INSERT INTO clerk_entries VALUES (%s)", [request.payload["n"]])
        if self.refuses in self.cohorts[-1] and not self.returns:
            raise PermanentFailure("no")
        return [PermanentFailure("no") if n == self.refuses else {"clerk": n} for n in self.cohorts[-1]]

    def compensate_many(self, requests):
        return [{} for _ in requests]


@pytest.fixture
def clerk(sas, monkeypatch):
    agent = Clerk()
    workflow = Workflow("clerks", (Step("file", agent="clerk", retry=toy.RETRY), Step("sign", agent="clerk", retry=toy.RETRY)))
    monkeypatch.setitem(registered, "clerk", agent)
    monkeypatch.setitem(_workflows, ("clerks", 1), workflow)
    monkeypatch.setitem(_newest, "clerks", workflow)
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS clerk_entries; CREATE TABLE clerk_entries (n int)")
    yield agent
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE clerk_entries")


def entries():
    with connection.cursor() as cursor:
        cursor.execute("SELECT n FROM clerk_entries ORDER BY n")
        return [n for (n,) in cursor.fetchall()]


def test_agents_that_only_write_the_database_are_watched_faked_and_killed_too(sas, clerk):
    sas.fake("sign", raises=TransientFailure("busy"), times=1)
    sas.kill("file")

    run = sas.start("clerks", {"n": 3})
    assert run.results == {}
    sas.advance("10m")

    run.assert_state("Processed")
    assert run.results["file"] == {"clerk": 3}
    assert sas.performed == ["file", "file", "sign", "sign"]


def test_orders_that_are_due_together_are_one_call(sas, clerk):
    runs = [sas.submit("clerks", {"n": n}) for n in range(3)]
    sas.run()

    assert clerk.cohorts == [[0, 1, 2]] * 2
    assert [run.results["file"] for run in runs] == [{"clerk": 0}, {"clerk": 1}, {"clerk": 2}]
    assert sas.performed == ["file"] * 3 + ["sign"] * 3


def test_a_failure_that_the_agent_raises_rolls_the_cohort_back_and_is_transient(sas, clerk):
    clerk.refuses = 1
    refused, other = (sas.submit("clerks", {"n": n}) for n in (1, 2))
    sas.run()

    assert clerk.cohorts[:3] == [[1, 2], [1], [2]]
    assert refused.steps["file"] == "Pending", "it is tried again: a failure that is raised counts as transient"
    other.assert_state("Processed")
    assert entries() == [2, 2], "what the refused order wrote is rolled back"


def test_a_failure_that_the_agent_returns_is_that_orders_own(sas, clerk):
    clerk.refuses, clerk.returns = 1, True
    refused, other = (sas.submit("clerks", {"n": n}) for n in (1, 2))
    sas.run()

    refused.assert_state("Error")
    other.assert_state("Processed")
    assert clerk.cohorts == [[1, 2], [2]]


def test_fakes_answer_their_share_of_a_cohort_in_its_place(sas, clerk):
    sas.fake("file", does=lambda request: {"fake": request.payload["n"]}, times=1)
    runs = [sas.submit("clerks", {"n": n}) for n in range(3)]
    sas.run()

    assert [run.results["file"] for run in runs] == [{"fake": 0}, {"clerk": 1}, {"clerk": 2}]
    assert clerk.cohorts == [[1, 2], [0, 1, 2]]


def test_a_fake_waits_for_a_cohort_that_the_agent_lets_through(sas, clerk):
    clerk.refuses = 1
    sas.fake("file", raises=PermanentFailure("the fake's"), times=1)
    faked, refused = (sas.submit("clerks", {"n": n}) for n in (0, 1))
    sas.run()

    faked.assert_state("Error")
    assert refused.steps["file"] == "Pending"

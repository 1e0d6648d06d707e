"""At rest the statement that accepts an order notifies the schedulers; under load the hints' thread does it."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection

from supervision.testing import submit, submit_many
from supervision.wakeup import hints, notify
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def hinter(monkeypatch, tuned):
    """A process's hinter with a long pause between hints; what it sends is kept in `hinter.sent`."""
    tuned(HINT_SECONDS=5)
    sent: list[str] = []
    monkeypatch.setattr(hints, "enabled", True)
    monkeypatch.setattr(notify, "is_heard", lambda: True)
    monkeypatch.setattr(notify, "send", lambda: sent.append("notify"))
    monkeypatch.setattr(hints, "publish", lambda task: sent.append(task))
    one = hints._Hinter(hints.CONSUME)
    one.sent = sent
    monkeypatch.setattr(hints, "_hinter", lambda _task: one)
    assert kit.until(lambda: one.is_quiet)
    return one


@pytest.fixture
def heard(store_database):
    """A function that returns how many notifications came since its last call."""
    parameters = {**connection.get_connection_params(), "autocommit": True}
    known = {name: parameters[name] for name in ("host", "port", "user", "password", "dbname", "autocommit") if parameters.get(name)}
    with psycopg.connect(**known) as listening:
        listening.execute(f"LISTEN {notify.CHANNEL}")
        yield lambda: len(list(listening.notifies(timeout=0.5, stop_after=10)))


def test_at_rest_the_commit_notifies_and_the_thread_does_not(hinter, heard):
    submit("toy", {"n": 1})

    assert heard() == 1
    assert hinter.sent == []


def test_while_hints_follow_each_other_the_commit_does_not_notify(hinter, heard):
    submit("toy", {"n": 1})
    assert heard() == 1

    for n in range(3):
        submit("toy", {"n": n})

    assert heard() == 0


def test_several_orders_in_one_commit_are_left_to_the_thread(hinter, heard):
    submit_many("toy", [{"n": n} for n in range(3)])

    assert heard() == 0
    assert kit.until(lambda: hinter.sent == ["notify"])


def test_an_announced_order_that_no_scheduler_takes_is_told_by_a_message(monkeypatch, tuned, hinter):
    tuned(HINT_SECONDS=0.001)
    submit("toy", {"n": 1})

    assert kit.until(lambda: hints.CONSUME in hinter.sent, within=30)
    assert "notify" not in hinter.sent

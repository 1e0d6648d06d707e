"""NOTIFY wakes a scheduler for a new order; a hint through the broker follows only if no consumer took the order."""

from __future__ import annotations

import threading

import pytest
from celery import current_app

from supervision.intake import consuming
from supervision.testing import submit
from supervision.wakeup import hints, notify

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def messages():
    """A function that returns how many hints wait in the broker."""
    with current_app.connection_for_write() as connection:
        connection.default_channel.queue_declare("submissions")
        connection.default_channel.queue_purge("submissions")
        yield lambda: connection.default_channel._size("submissions")


@pytest.fixture
def hinter(monkeypatch):
    """Ask for a hint as a web process does, with NOTIFY switched on although this session's broker is in memory."""

    def want() -> hints._Hinter:
        monkeypatch.setattr(hints, "enabled", True)
        monkeypatch.setattr(notify, "is_heard", lambda: True)
        asked = hints._Hinter(hints.CONSUME)
        asked.want()
        return asked

    return want


@pytest.fixture
def listening():
    """A running listener; yields the event that its callback sets."""
    called = threading.Event()
    listener = notify.listen(called.set).start()
    assert called.wait(10), "the listener calls back when it starts"
    called.clear()
    yield called
    assert listener.stop(20)


def test_who_listens_is_called_when_a_submission_is_committed(listening, hinter):
    hinter()

    assert listening.wait(5)


def test_an_order_that_was_taken_needs_no_message(hinter, messages):
    submit("toy-plain", {"n": 1})
    consuming.consume_batch()

    assert hinter().drain(5)
    assert messages() == 0


def test_an_order_that_still_waits_is_told_over_the_broker(hinter, messages):
    submit("toy-plain", {"n": 1})

    assert hinter().drain(5)
    assert messages() == 1


def test_a_database_that_does_not_answer_leaves_it_to_the_broker(hinter, messages, monkeypatch):
    monkeypatch.setattr(notify, "UNANSWERED", "SELECT 1 / 0")

    assert hinter().drain(5)
    assert messages() == 1

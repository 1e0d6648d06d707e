"""The listener on a connection of its own, and the periodic loops that every process has."""

from __future__ import annotations

import os
import resource
import threading
from contextlib import ExitStack

import pytest

from supervision.intake import consuming
from supervision.postgres.listener import Listener
from supervision.runtime.periodic import PeriodicLoop, listening
from supervision.testing import submit
from supervision.wakeup import hints
from supervision.wakeup import notify as submissions
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")
CHANNEL = "listener_test"


def notify(payload: str) -> None:
    kit.fetch("SELECT pg_notify(%s, %s)", [CHANNEL, payload])


def cut() -> None:
    """End the listener's connection."""
    cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query = %s AND datname = current_database()"
    assert kit.fetch(cut, [f"LISTEN {CHANNEL}"]) == [(True,)]


@pytest.fixture
def heard():
    """What a running loop heard, call by call."""
    calls: list[list[str] | None] = []
    loop = listening("test", CHANNEL, calls.append).start()
    kit.until(lambda: calls == [None])
    yield calls
    assert loop.stop(20)


def test_a_notification_between_two_connections_is_not_lost(heard):
    """The first call comes after LISTEN. After a cut the loop listens again before its owner looks again."""
    notify("a")
    kit.until(lambda: heard == [None, ["a"]])

    cut()
    notify("unheard")

    kit.until(lambda: heard == [None, ["a"], None])
    notify("b")
    kit.until(lambda: heard == [None, ["a"], None, ["b"]])


def test_a_call_that_failed_is_made_again():
    calls: list[list[str] | None] = []

    def hear(payloads: list[str] | None) -> None:
        calls.append(payloads)
        if payloads:
            raise ZeroDivisionError

    loop = listening("test", CHANNEL, hear).start()
    kit.until(lambda: calls == [None])
    notify("a")

    kit.until(lambda: calls == [None, ["a"], None])
    assert loop.stop(20)


def test_a_notification_that_comes_with_another_answer_is_heard():
    listener = Listener(CHANNEL)
    assert listener.wait(0) is None
    notify("a")
    listener.execute("SELECT 1", {})

    assert listener.wait(60) == ["a"]
    listener.close()


def test_a_listener_with_a_descriptor_that_select_does_not_take_hears_and_is_interrupted():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, limits[1]))
    try:
        with ExitStack() as files:
            while files.enter_context(open(os.devnull)).fileno() < 1100:
                pass
            listener = Listener(CHANNEL)
            assert listener.wait(0) is None
        notify("a")
        assert listener.wait(60) == ["a"]
        listener.interrupt()
        assert listener.wait(60) == []
        listener.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_listener_that_waits_ends_when_it_is_stopped():
    listener, waits = Listener(CHANNEL), threading.Event()

    def work() -> None:
        listener.wait(3600)  # the first one only connects
        waits.set()

    loop = PeriodicLoop("test", 0.0, work, listener.close, interrupt=listener.interrupt).start()
    kit.until(waits.is_set)

    assert loop.stop(20)
    open_ones = "SELECT 1 FROM pg_stat_activity WHERE query = %s AND datname = current_database()"
    kit.until(lambda: not kit.fetch(open_ones, [f"LISTEN {CHANNEL}"]))


def test_a_loop_outlives_what_goes_wrong_and_ends_in_order():
    done: list[str] = []

    def work() -> None:
        done.append("work")
        raise ZeroDivisionError

    loop = PeriodicLoop("test", 0.001, work, lambda: done.append("end")).start()
    kit.until(lambda: len(done) >= 2)

    assert loop.stop(20)
    assert done[-1] == "end"
    assert done.count("end") == 1


def test_a_loop_that_is_woken_does_not_wait_for_its_time():
    done: list[str] = []
    loop = PeriodicLoop("test", 3600.0, lambda: done.append("work"), at_once=True).start()
    kit.until(lambda: done == ["work"])

    loop.wake()

    kit.until(lambda: done == ["work", "work"])
    assert loop.stop(20)


@pytest.fixture
def hinter(monkeypatch):
    """Ask for a hint as a web process does, with NOTIFY switched on although this session's broker is in memory."""

    def want() -> hints._Hinter:
        monkeypatch.setattr(hints, "enabled", True)
        monkeypatch.setattr(submissions, "is_heard", lambda: True)
        asked = hints._Hinter(hints.CONSUME)
        asked.want()
        return asked

    return want


@pytest.fixture
def called():
    """A running listener; yields the event that its callback sets."""
    event = threading.Event()
    listener = submissions.listen(event.set).start()
    assert event.wait(10), "the listener calls back when it starts"
    event.clear()
    yield event
    assert listener.stop(20)


def test_who_listens_is_called_when_a_submission_is_committed(called, hinter):
    hinter()

    assert called.wait(5)


def test_an_order_that_was_taken_needs_no_message(hinter, broker):
    submit("toy-plain", {"n": 1})
    consuming.consume_batch()

    assert hinter().drain(5)
    assert broker("submissions") == []


def test_an_order_that_still_waits_is_told_over_the_broker(hinter, broker):
    submit("toy-plain", {"n": 1})

    assert hinter().drain(5)
    assert len(broker("submissions")) == 1


def test_a_database_that_does_not_answer_leaves_it_to_the_broker(hinter, broker, monkeypatch):
    monkeypatch.setattr(submissions, "UNANSWERED", "SELECT 1 / 0")

    assert hinter().drain(5)
    assert len(broker("submissions")) == 1

"""A worker that sends heartbeats but consumes nothing ends itself. Healthy workers live on."""

from __future__ import annotations

import math
import time

import pytest

from supervision.worker import consumption_check
from tests.crash.lane import Lane
from tests.support.shop import until

LANE = {"SUPERVISION_CANARY_SECONDS": "2"}  # five times as fast as in production
ENOUGH = (
    math.ceil(consumption_check.DEAF_ROUNDS) + 1
)  # rounds after which a deaf worker has ended, and so would a healthy one taken for deaf
DEAF = {"FAILPOINTS": "worker.deaf=drop"}


def rounds(lane: Lane) -> int:
    """How many rounds of canaries were sent so far."""
    found = lane.rows("SELECT detail->'round' FROM supervision_heartbeat WHERE incarnation = 'the canaries'")
    return int(found[0][0]) if found else 0


def rounds_pass(lane: Lane) -> None:
    """Wait until as many rounds were sent as a deaf worker lives."""
    before = rounds(lane)
    until(lambda: rounds(lane) >= before + ENOUGH, within=90)


@pytest.mark.nightly
def test_a_worker_that_consumes_nothing_ends_itself_and_the_others_live_on(lane: Lane) -> None:
    lane.all_work()
    others = [f"agents.{number}" for number in range(2)]
    for name in others:
        lane.work(name)
    rounds_pass(lane)

    lane.work("agents.deaf", **DEAF)
    before = rounds(lane)

    assert lane.dies("agents.deaf", within=60) == consumption_check.EXIT_CODE
    assert rounds(lane) >= before + int(consumption_check.DEAF_ROUNDS)
    assert "nothing has come from agent." in lane.log("agents.deaf")
    rounds_pass(lane)
    assert all(lane.lives(name) for name in ("scheduler", "agents", "supervisor", *others))
    heard = lane.rows(
        "SELECT detail->'canary' FROM supervision_heartbeat WHERE detail->'queues' ? 'agent.email' AND seen_at > now() - interval '3 s'"
    )
    assert all(row[0]["agent.email"] > 1 for row in heard)
    for name in others:
        lane.end(name)


@pytest.mark.nightly
def test_nobody_ends_while_no_canaries_are_sent(lane: Lane) -> None:
    lane.all_work("supervisor")
    lane.end("supervisor")
    until(
        lambda: not lane.rows("SELECT 1 FROM supervision_heartbeat WHERE incarnation = 'the canaries' AND seen_at > now() - interval '2 s'")
    )

    lane.work("agents.deaf", **DEAF)
    time.sleep(2 * consumption_check.DEAF_ROUNDS + 1)  # no round is sent that could be counted

    assert lane.lives("agents.deaf")
    lane.end("agents.deaf")


# ----------------------------------------------------------------------------------------- how a worker decides


class Clock:
    """The process's clock, in seconds. It passes at a test's word."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(consumption_check, "time", clock)
    return clock


def for_long(clock: Clock) -> None:
    """The clock passes by more than a deaf queue's silence."""
    clock.now += consumption_check.DEAF_ROUNDS * consumption_check.every() + 0.001


def test_a_queue_that_is_silent_for_too_long_is_named(clock):
    watch = consumption_check.Watch(["agent.stock", "agent.email"], threads=2)
    assert watch.silent(consumption_check.DEAF_ROUNDS) == []

    for_long(clock)
    watch.received("agent.email")
    watch.done()

    assert watch.silent(consumption_check.DEAF_ROUNDS) == ["agent.stock"]


def test_a_queue_is_deaf_once_rounds_were_missed_and_not_by_time_alone(clock):
    """On a machine that is too slow, no round may have been sent for so long."""
    watch = consumption_check.Watch(["agent.stock", "agent.email"], threads=2)
    for_long(clock)

    assert watch.deaf(newest=7) == []
    assert watch.deaf(newest=8) == []
    assert watch.deaf(newest=9) == ["agent.stock", "agent.email"]
    watch.received("agent.email")
    watch.done()
    assert watch.deaf(newest=10) == ["agent.stock"]
    for_long(clock)
    assert watch.deaf(newest=11) == ["agent.stock"]
    assert watch.deaf(newest=13) == ["agent.stock", "agent.email"]
    watch.reset()
    for_long(clock)
    assert watch.deaf(newest=20) == []


def test_a_queue_is_found_deaf_although_the_numbers_of_the_rounds_have_begun_anew(clock):
    watch = consumption_check.Watch(["agent.stock"], threads=2)
    for_long(clock)

    assert [watch.deaf(newest) for newest in (5000, 1, 2, 3)] == [[], [], [], ["agent.stock"]]


def test_a_process_without_a_free_thread_is_busy_and_not_deaf(clock):
    watch = consumption_check.Watch(["agent.stock"], threads=1)
    watch.received("agent.email")
    for_long(clock)

    assert watch.silent(consumption_check.DEAF_ROUNDS) == []
    watch.done()
    assert watch.silent(consumption_check.DEAF_ROUNDS) == []


@pytest.fixture
def quick(settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "CANARY_SECONDS": 0.1}
    return consumption_check.DEAF_ROUNDS * 0.1


def test_the_second_canary_of_a_round_is_meant_for_somebody_else():
    watch = consumption_check.Watch(["agent.stock"], threads=1)

    assert [watch.is_second("agent.stock", number) for number in (1, 1, 2, 1)] == [False, True, False, True]


def test_a_series_of_rounds_counts_as_unbroken_until_a_message_cannot_be_sent(engine, quick, monkeypatch):
    sent = []
    monkeypatch.setattr(consumption_check, "_send", lambda *message: sent.append(message))
    consumption_check.db.run(
        "INSERT INTO supervision_heartbeat (incarnation, role, detail) VALUES ('one', 'agents', '{\"queues\": [\"agent.stock\"]}')"
    )
    began = time.monotonic()
    while time.monotonic() - began < quick + 0.2:
        consumption_check.send_round()
        time.sleep(0.02)
    assert consumption_check.newest_sent() == sent[-1][1]
    assert {message[0] for message in sent} == {"agent.stock"}

    def broken(*message):
        raise OSError("the broker is away")

    monkeypatch.setattr(consumption_check, "_send", broken)
    time.sleep(0.11)
    consumption_check.send_round()

    assert consumption_check.newest_sent() is None

"""What poison costs healthy messages: two workers run at the same time, and one of their queues contains poison.

They run at the same time so that other load on the machine slows both alike. They change places every round.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from django.db import connection

from tests.intake import corpus
from tests.intake.brokers import QUEUE, Broker
from tests.intake.conftest import worker_on
from tests.intake.corpus import Case
from tests.support.shop import until

QUEUES = (QUEUE, "agent.email")
HEALTHY = 4000
ONE_IN = 50  # one of this many mixed messages is poison: the whole corpus, and parts of it again
ROUNDS = 6


def messages(first: int, poison: list[Case]) -> list[Case]:
    """Healthy messages, numbered from `first`, with poison between them."""
    mixed: list[Case] = []
    for number in range(HEALTHY):
        mixed.append(corpus.healthy(first + number))
        if poison and number % (ONE_IN - 1) == 0:
            mixed.append(poison[number // (ONE_IN - 1) % len(poison)])
    return mixed


@dataclass(frozen=True)
class Cost:
    """What one worker did in a race: healthy messages a second while both were busy, and its own CPU seconds."""

    rate: float
    cpu: float


def race(url: str, raw: Broker, directory: Path, poisoned: int) -> tuple[Cost, Cost]:
    """The cost of the healthy messages alone and among poison."""
    poison = [case for case in corpus.MESSAGES if raw.name in case.brokers]
    with (
        connection.cursor() as cursor,
        worker_on(url, QUEUES[0], directory) as one,
        worker_on(url, QUEUES[1], directory) as other,
    ):
        both = (one, other)

        def counted() -> Any:
            cursor.execute("SELECT (SELECT count(*) FROM tests_neighbour), (SELECT count(*) FROM supervision_deadletter)")
            return cursor.fetchone()

        cursor.execute("TRUNCATE tests_neighbour; DELETE FROM supervision_deadletter")
        for worker in both:
            worker.start()
        # The first poison costs more (it reads source for tracebacks, opens a connection); that does not belong to throughput.
        for queue in QUEUES:
            raw.publish([*poison, corpus.healthy(-1)], queue)
        until(lambda: counted() == (2, 2 * len(poison)), within=60, what="the warm-up")
        cursor.execute("TRUNCATE tests_neighbour; DELETE FROM supervision_deadletter")
        for worker in both:
            worker.send(signal.SIGSTOP)
        for place, queue in enumerate(QUEUES):
            raw.publish(messages(place * HEALTHY, poison if place == poisoned else []), queue)
        before = [worker.cpu_seconds() for worker in both]
        for worker in both:
            worker.send(signal.SIGCONT)

        poisonous = (HEALTHY - 1) // (ONE_IN - 1) + 1
        until(lambda: counted() == (2 * HEALTHY, poisonous), within=240, what="the end of the race")
        cpu = [worker.cpu_seconds() - began for worker, began in zip(both, before, strict=True)]
        cursor.execute(_RATES, {"n": HEALTHY})
        rates = [float(rate) for (rate,) in cursor.fetchall()]
    costs = [Cost(rate, seconds) for rate, seconds in zip(rates, cpu, strict=True)]
    return costs[1 - poisoned], costs[poisoned]


_RATES = """
WITH place AS (SELECT number / %(n)s AS queue, at FROM tests_neighbour),
     span AS (SELECT queue, min(at) AS first, max(at) AS last FROM place GROUP BY queue),
     busy AS (SELECT max(first) AS first, min(last) AS last FROM span)
SELECT count(*) / extract(epoch FROM busy.last - busy.first) FROM place, busy
 WHERE at BETWEEN busy.first AND busy.last GROUP BY queue, busy.first, busy.last ORDER BY queue
"""


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_poison_takes_no_more_than_a_tenth_of_its_neighbours_throughput(
    broker: tuple[str, Broker], neighbours: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, raw = broker
    for queue in QUEUES:
        with worker_on(url, queue, tmp_path) as worker:
            worker.start()  # declares the queue

    pairs = [race(url, raw, tmp_path, turn % 2) for turn in range(ROUNDS)]

    rates = sorted(among.rate / alone.rate for alone, among in pairs)
    work = sorted(alone.cpu / among.cpu for alone, among in pairs)
    with capsys.disabled():
        print(
            f"\n{raw.name}: {median(alone.rate for alone, _ in pairs):,.0f} healthy messages/s alone,"
            f" {median(among.rate for _, among in pairs):,.0f}/s with one in {ONE_IN} poisonous:"
            f" {median(rates):.0%} ({', '.join(f'{share:.0%}' for share in rates)});"
            f" by the worker's CPU {median(work):.0%} ({', '.join(f'{share:.0%}' for share in work)})"
        )
    assert median(work) >= 0.9  # compared by CPU, because other load on the machine changes the rates more than poison does

"""Poison in the workers' queues on three brokers: each message is kept unchanged, and healthy messages are performed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervision.models import DeadLetter, Receipt
from supervision.postgres.json_safe import restored
from supervision.transports.envelope import UNREADABLE
from tests.intake import corpus
from tests.intake.brokers import QUEUE, Amqp, Broker
from tests.intake.conftest import database_away, worker_on
from tests.intake.corpus import Case


def as_kept(body: bytes, content_type: str | None, headers: Any) -> str:
    return repr((body, content_type or "", sorted(headers.items(), key=repr)))


def test_every_poisonous_message_is_kept_as_it_was_and_its_neighbours_are_worked_off(
    broker: tuple[str, Broker], neighbours: Any, tmp_path: Path, eventually: Any
) -> None:
    url, raw = broker
    poison = [case for case in corpus.MESSAGES if raw.name in case.brokers]
    assert len(poison) >= 20

    with worker_on(url, QUEUE, tmp_path) as worker:
        worker.start()  # declares the queue
        for number, case in enumerate(poison):
            raw.publish([corpus.healthy(number), case])
        items = raw.publish_items()
        raw.publish([corpus.healthy(len(poison))])

        expected = len(poison) + len(items)
        eventually(lambda: DeadLetter.objects.count() >= expected and len(neighbours()) > len(poison), within=40, what="the corpus")
        eventually(lambda: raw.left() == 0, what="every message acknowledged")
        assert worker.lives()

    letters = [letter for letter in DeadLetter.objects.order_by("pk") if UNREADABLE not in letter.headers]
    kept = Counter(as_kept(bytes(letter.body), letter.content_type, restored(letter.headers)) for letter in letters)
    assert kept == Counter(as_kept(case.body, case.content_type, case.headers) for case in poison)
    whole = [bytes(letter.body) for letter in DeadLetter.objects.order_by("pk") if UNREADABLE in letter.headers]
    assert Counter(whole) == Counter(items)
    assert neighbours() == list(range(len(poison) + 1))
    assert all(letter.source == f"queue {QUEUE}" and letter.reason and letter.delivery["queue"] == QUEUE for letter in letters)
    reasons = {as_kept(bytes(letter.body), "", restored(letter.headers)): letter.reason for letter in letters}
    for words, case in corpus.OUT_OF_BOUNDS:
        assert words in reasons[as_kept(case.body, "", case.headers)], case.name
    broken = next(letter for letter in letters if bytes(letter.body).startswith(b'[[1], {}, {"callbacks"'))
    assert "Traceback" in broken.reason
    assert {letter.delivery["content_encoding"] for letter in letters} == {case.content_encoding for case in poison}


@pytest.mark.amqp
@pytest.mark.usefixtures("engine")
def test_poison_is_not_acknowledged_while_the_database_is_away_nor_lost_with_its_worker(
    amqp_url: str, tmp_path: Path, eventually: Any
) -> None:
    case = corpus.MESSAGES[0]
    raw = Amqp(amqp_url)

    with worker_on(amqp_url, f"{QUEUE},submissions", tmp_path) as worker:
        worker.start()
        with database_away():
            raw.publish([case])
            eventually(lambda: "is set aside" in worker.log() and "the database did not answer" in worker.log(), what="the attempt")
            worker.end()
            eventually(lambda: raw.left() == 1, what="the message in its queue again")
        worker.start()
        eventually(lambda: DeadLetter.objects.count() == 1, what="the dead letter")
        eventually(lambda: raw.left() == 0, what="its acknowledgement")

        # The worker of `submissions` consumes the intake too. The broker's user has no account, so it accepts no order.
        eventually(lambda: "the intake consumes submissions.intake" in worker.log())
        raw.publish([Case("an order without an account", b"{}")], "submissions.intake")
        eventually(lambda: DeadLetter.objects.filter(source="intake").count() == 1, what="the intake's dead letter")
    raw.close()

    letter = DeadLetter.objects.get(source=f"queue {QUEUE}")
    assert (bytes(letter.body), letter.headers, letter.deliveries) == (case.body, case.headers, 2)


def test_a_periodic_task_of_another_release_is_dropped_and_one_with_arguments_is_kept(
    broker: tuple[str, Broker], neighbours: Any, tmp_path: Path, eventually: Any
) -> None:
    """While two releases run side by side, beat of the newer one sends tasks that only its workers know."""
    url, raw = broker
    periodic = {"celery_beat_task": True, "periodic_task_name": "count the stock"}
    unknown = Case("unknown", corpus.body([]), headers=corpus.task("orders.count_stock", **periodic))
    told = replace(unknown, body=corpus.body([7]))
    by_itself = replace(unknown, headers=corpus.task("orders.count_stock"))

    with worker_on(url, QUEUE, tmp_path) as worker:
        worker.start()
        raw.publish([unknown, told, by_itself, unknown, corpus.healthy(1)])
        eventually(lambda: DeadLetter.objects.count() >= 2 and neighbours() == [1], what="the messages")
        eventually(lambda: raw.left() == 0, what="every message acknowledged")
        assert worker.log().count("beat of another release sent this") == 2

    letters = [(bytes(letter.body), restored(letter.headers)) for letter in DeadLetter.objects.order_by("pk")]
    assert letters == [(told.body, told.headers), (by_itself.body, by_itself.headers)]


OFTEN = 20  # deliveries, in the header of a quorum queue


@pytest.mark.amqp
def test_a_message_that_only_came_often_is_worked_off(amqp_url: str, neighbours: Any, tmp_path: Path, eventually: Any) -> None:
    """Each lost connection returns all messages that its worker had fetched, so many deliveries prove nothing."""
    raw = Amqp(amqp_url)
    often = corpus.healthy(1)

    with worker_on(amqp_url, QUEUE, tmp_path) as worker:
        worker.start()
        raw.publish([replace(often, headers={**often.headers, "x-delivery-count": OFTEN}), corpus.healthy(2)])
        eventually(lambda: neighbours() == [1, 2] or DeadLetter.objects.exists(), what="the messages")
    raw.close()

    assert neighbours() == [1, 2]
    assert (DeadLetter.objects.count(), Receipt.objects.count()) == (0, 0)


@pytest.mark.amqp
def test_a_message_that_ends_its_workers_is_set_aside_after_three_of_them(
    amqp_url: str, neighbours: Any, tmp_path: Path, eventually: Any
) -> None:
    raw = Amqp(amqp_url)
    deadly = Case("deadly", corpus.body([1]), headers=corpus.task("tests.deadly", **{"x-delivery-count": OFTEN}))
    deaths = 0

    with worker_on(amqp_url, QUEUE, tmp_path) as worker:
        worker.start()
        raw.publish([deadly])
        while not DeadLetter.objects.exists() and deaths <= 5:
            eventually(lambda: DeadLetter.objects.exists() or not worker.lives(), what="the worker's death")
            if not worker.lives():
                deaths += 1
                worker.launch()
        raw.publish([corpus.healthy(2)])
        eventually(lambda: neighbours() == [2], what="the neighbour")
    raw.close()

    letter = DeadLetter.objects.get()
    assert deaths == 3
    assert bytes(letter.body) == deadly.body
    assert "read alone 3 times" in letter.reason

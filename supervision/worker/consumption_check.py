"""Finds a worker that lives and sends heartbeats but consumes nothing: a broker connection can die without an error.

1. The supervisor sends canaries to every queue that living processes say they serve, one for each such process.
2. A process that receives a canary notes it. Processes share a queue, so one may get a second canary of the same round.
   After a moment it sends that one to the queue again, so that it reaches a process that has had none.
3. A process ends itself if it has received nothing at all from one of its queues for DEAF_ROUNDS rounds, although it had
   a free thread and the database shows that canaries were sent all that time. Its process manager starts it again. On a machine
   that is too slow, rounds are late: MISSED_ROUNDS must have been sent since the process first noticed the silence.

While the broker is away no canary is sent, and no process ends. Correctness does not depend on any of this: a deaf worker
costs capacity, and its claims expire.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from celery import current_app

from supervision import conf
from supervision.deadletters.bounds import MOST_HOPS
from supervision.postgres import db
from supervision.runtime.periodic import PeriodicLoop

log = logging.getLogger(__name__)

TASK = "supervision.canary"
NAME = "the canaries"  # their row among the heartbeats
DEAF_ROUNDS = 3.5  # the silence in usual times between two rounds
QUIET_ROUNDS, MISSED_ROUNDS = 1.5, 2  # the silence after which rounds are counted by their numbers, and how many must be missed
EXIT_CODE = 75  # "temporary failure; try again"

# Starts a new round if the last one is old enough; a second sender gets no row. `since`: when the unbroken series of
# rounds began in which every canary was sent.
_ROUND = """
INSERT INTO supervision_heartbeat AS h (incarnation, role, detail)
VALUES (%(name)s, 'supervisor-canaries', jsonb_build_object('round', 1, 'since', now()))
ON CONFLICT (incarnation) DO UPDATE
   SET seen_at = now(),
       detail = jsonb_build_object('round', (h.detail->>'round')::int + 1, 'since',
                CASE WHEN h.seen_at > now() - 3 * %(every)s::float8 * interval '1 s' THEN h.detail->'since'
                     ELSE to_jsonb(now()) END)
 WHERE h.seen_at <= now() - %(every)s::float8 * interval '1 s'
RETURNING detail
"""
_BROKEN = "UPDATE supervision_heartbeat SET detail = detail || jsonb_build_object('since', now()) WHERE incarnation = %(name)s"
_SERVED = """
SELECT queue, count(*) FROM supervision_heartbeat h, jsonb_array_elements_text(h.detail->'queues') queue
 WHERE h.seen_at > now() - interval '30 s' AND jsonb_typeof(h.detail->'queues') = 'array' GROUP BY queue
"""
_SERIES = """
SELECT extract(epoch FROM now() - (detail->>'since')::timestamptz)::float8, extract(epoch FROM now() - seen_at)::float8,
       (detail->>'round')::int
  FROM supervision_heartbeat WHERE incarnation = %(name)s
"""


def every() -> float:
    """Seconds from one round to the next."""
    return conf.get().canary_every.total_seconds()


def send_round() -> int:
    """Send canaries if it is time; returns how many went out."""
    rows = db.run(_ROUND, {"name": NAME, "every": every()})
    if not rows:
        return 0
    detail = rows[0][0]
    sent = 0
    try:
        for queue, processes in db.run(_SERVED):
            for _ in range(processes):
                _send(queue, int(detail["round"]), 0)
                sent += 1
    except Exception as error:
        log.warning("could not send the canaries: %s", error)
        db.run(_BROKEN, {"name": NAME})
    return sent


def _send(queue: str, number: int, hops: int) -> None:
    current_app.send_task(TASK, args=(queue, number, hops), queue=queue, ignore_result=True, retry=False)


class Watch:
    """When one worker process last received from each of its queues, and how many of its threads are busy."""

    def __init__(self, queues: Sequence[str], threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._busy = 0
        self._heard = dict.fromkeys(queues, time.monotonic())
        self._rounds: dict[str, int] = {}
        self._quiet_since: dict[str, int] = {}  # the round that was the newest when the queue was first found quiet

    def received(self, queue: str) -> None:
        """Note a message from this queue; a thread is busy with it."""
        with self._lock:
            self._busy += 1
            if queue in self._heard:
                self._heard[queue] = time.monotonic()
                self._quiet_since.pop(queue, None)

    def done(self) -> None:
        """Note that a message is done. A process without a free thread can receive nothing: then the clocks start anew."""
        with self._lock:
            if self._busy >= self._threads:
                self.reset()
            self._busy -= 1

    def reset(self) -> None:
        """Start the clocks of all queues anew."""
        self._heard = dict.fromkeys(self._heard, time.monotonic())
        self._quiet_since.clear()

    def is_second(self, queue: str, number: int) -> bool:
        """Note a canary. Returns whether this process has already had one of this round."""
        with self._lock:
            known = self._rounds.get(queue, 0) >= number
            self._rounds[queue] = max(number, self._rounds.get(queue, 0))
            return known

    def serves(self, queue: str) -> bool:
        """Whether this process consumes the queue."""
        return queue in self._heard

    def newest(self) -> int:
        """The newest round received, of any queue."""
        with self._lock:
            return max(self._rounds.values(), default=0)

    def silent(self, rounds: float) -> list[str]:
        """The queues from which this process has received nothing for the time of so many rounds, although it had a free thread."""
        with self._lock:
            if self._busy >= self._threads:
                return []
            now = time.monotonic()
            return [queue for queue, at in self._heard.items() if now - at > rounds * every()]

    def deaf(self, newest: int) -> list[str]:
        """The queues that are silent for DEAF_ROUNDS and have missed MISSED_ROUNDS. newest: the number of the newest round sent."""
        for queue in self.silent(QUIET_ROUNDS):
            self._quiet_since[queue] = min(self._quiet_since.get(queue, newest), newest)  # the numbers begin anew with their row
        return [queue for queue in self.silent(DEAF_ROUNDS) if newest - self._quiet_since.get(queue, newest) >= MISSED_ROUNDS]

    def rounds(self) -> dict[str, int]:
        """The newest round received, by queue; for the heartbeat."""
        with self._lock:
            return dict(self._rounds)


watch: Watch | None = None


def heard(queue: str, number: int, hops: int) -> None:
    """Handle a canary. A second one of the same round goes back to the queue, for another process.

    A canary of another queue, or of a round that has not begun, was not sent by a supervisor: it is dropped.
    """
    if watch is None or not watch.serves(queue):
        return
    if number > watch.newest() and number > _begun():
        log.warning("a canary of round %d, which has not begun, is dropped", number)
        return
    if not watch.is_second(queue, number) or not 0 <= hops < MOST_HOPS:
        return
    pause = every() * random.uniform(0.005, 0.03)  # noqa: S311 - spreads messages, protects nothing
    timer = threading.Timer(pause, _pass_on, (queue, number, hops + 1))
    timer.daemon = True
    timer.start()


def _begun() -> int:
    """The newest round of canaries that a supervisor has begun."""
    rows = db.run("SELECT (detail->>'round')::int FROM supervision_heartbeat WHERE incarnation = %(name)s", {"name": NAME})
    return int(rows[0][0]) if rows else 0


def _pass_on(queue: str, number: int, hops: int) -> None:
    try:
        _send(queue, number, hops)
    except Exception as error:
        log.info("could not pass a canary on: %s", error)


def newest_sent() -> int | None:
    """The number of the newest round; None unless the database shows that canaries were sent all through the last DEAF_ROUNDS."""
    rows = db.run(_SERIES, {"name": NAME}, patience=0)
    return int(rows[0][2]) if rows and rows[0][0] > DEAF_ROUNDS * every() and rows[0][1] < 2 * every() else None


def keep_watching(queues: Sequence[str], threads: int, end: Callable[[int], Any] = os._exit) -> Watch:
    """Watch this process on a thread of its own, and end it when it receives nothing any more."""
    global watch
    mine = watch = Watch(queues, threads)
    pause = every() / 2
    checked = time.monotonic()

    def check() -> None:
        nonlocal checked
        before, checked = checked, time.monotonic()
        if checked - before > 3 * pause:
            mine.reset()  # the process was frozen, not deaf
        elif mine.silent(QUIET_ROUNDS) and (newest := newest_sent()) is not None and (deaf := mine.deaf(newest)):
            log.critical("nothing has come from %s though canaries are sent: this process ends", ", ".join(deaf))
            end(EXIT_CODE)

    PeriodicLoop("watchdog", pause, check).start()
    return mine

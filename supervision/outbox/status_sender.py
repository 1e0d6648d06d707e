"""Sends the status messages that one process has claimed.

One thread takes turns: it fans out notifications, claims deliveries and records results. Only this thread uses the database.
The threads of a bounded pool only send. An endpoint gets at most LANES of them. All endpoints that failed lately or are slow
together get half of the pool, so that receivers which answer always find a thread. Replies have a thread of their own. A
reply queue that fails gets nothing for a while, and delays no other.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from django.utils.translation import gettext as _

from supervision.outbox import deliveries
from supervision.outbox.deliveries import Due, Try
from supervision.outbox.reply_queues import Post, Reply
from supervision.outbox.webhooks import Caller
from supervision.sealing.texts import Unreadable, opened
from supervision.telemetry import measures, spans

log = logging.getLogger(__name__)

THREADS = 32
LANES = 8  # parallel connections to one endpoint that answers
MESSAGES = 20  # messages that one lane claims
LANE_SECONDS = 20.0  # after this time a lane, or a batch of replies, gives back the messages that it has not tried
SLOW_SECONDS = 1.0  # a receiver that takes longer for a message shares the threads of failing receivers
REPLIES = 200
LONGEST_PAUSE_SECONDS = 60.0  # of the broker, or of one reply queue, that has failed
POLL_SECONDS = 1.0
TIDY_SECONDS = 300.0


class Sending:
    """The deliveries under way. One thread calls `turn`; many threads return results."""

    def __init__(self) -> None:
        self.stopping = False
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="delivery")
        self._replier = ThreadPoolExecutor(1, thread_name_prefix="reply")
        self._post = Post()
        self._results: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._tried: list[Try] = []
        self._untried: list[Due] = []
        self._lanes: Counter[int] = Counter()
        self._suspects: Counter[int] = Counter()
        self._slow: set[int] = set()
        self._replying = False
        self._shut: dict[str, tuple[int, float]] = {}  # reply queues that failed: how often, and until when they get nothing
        self._broker_failures = 0
        self._broker_after = 0.0
        self._tidied = float("-inf")

    # ------------------------------------------------------------------------------------------ the one thread

    def wake(self) -> None:
        """Wake the thread that waits in `turn`: there is something new to send."""
        self._results.put(None)

    @property
    def busy(self) -> bool:
        """Whether a delivery is under way or its result is not yet recorded."""
        return bool(self._lanes or self._replying or self._tried or self._untried)

    def turn(self, patience: float = POLL_SECONDS) -> int:
        """Record results and send due messages; returns how many items that were.

        If there was nothing to do, it waits up to `patience` seconds for a result or a wake.
        """
        moved = self._collect(patience if self.stopping else 0.0)
        if self.stopping:
            return moved
        moved += deliveries.fan_out()
        moved += self._send_webhooks(suspect=False) + self._send_webhooks(suspect=True) + self._send_replies()
        if time.monotonic() - self._tidied > TIDY_SECONDS:
            self._tidied = time.monotonic()
            deliveries.give_up_hopeless(_("for three days its receiver was not there, or it was removed"))
        return moved or self._collect(patience)

    def _collect(self, patience: float) -> int:
        results = 0
        try:
            result = self._results.get(timeout=patience) if patience else self._results.get_nowait()
            while True:
                if result is not None:
                    result()
                    results += 1
                result = self._results.get_nowait()
        except queue.Empty:
            pass
        if self._tried:
            deliveries.record(self._tried)
            self._tried = []
        if self._untried:
            deliveries.release(self._untried)
            self._untried = []
        return results

    def _send_webhooks(self, *, suspect: bool) -> int:
        room = THREADS - self._lanes.total()
        if suspect:
            room = min(room, THREADS // 2 - self._suspects.total())
        if room <= 0:
            return 0
        most = 1 if suspect else LANES
        busy = [endpoint for endpoint, lanes in self._lanes.items() if lanes >= most]
        found = deliveries.claim_webhooks(room, MESSAGES, suspect=suspect, busy=busy, slow=sorted(self._slow))
        for endpoint, group in found.items():
            self._lanes[endpoint] += 1
            if suspect:
                self._suspects[endpoint] += 1
            self._pool.submit(self._lane, endpoint, group, suspect)
        return len(found)

    def _send_replies(self) -> int:
        now = time.monotonic()
        if self._replying or now < self._broker_after:
            return 0
        shut = [name for name, (_failures, until) in self._shut.items() if now < until]
        group = deliveries.claim_replies(REPLIES // 10, REPLIES // 10, shut=shut)
        if group:
            self._replying = True
            self._replier.submit(self._reply, group)
        return len(group)

    def _lane_ended(self, endpoint: int, suspect: bool, tried: list[Try], untried: Sequence[Due]) -> None:
        for counts in (self._lanes, self._suspects) if suspect else (self._lanes,):
            counts[endpoint] -= 1
            if counts[endpoint] <= 0:
                del counts[endpoint]
        _count("webhook", tried)
        if tried and sum(each.seconds for each in tried) / len(tried) > SLOW_SECONDS:
            self._slow.add(endpoint)
        else:
            self._slow.discard(endpoint)
        self._tried += tried
        self._untried += untried

    def _replies_ended(self, tried: list[Try], untried: Sequence[Due], away: bool) -> None:
        self._replying = False
        _count("reply", tried)
        now, failing = time.monotonic(), {each.due.address for each in tried if not each.delivered}
        taking = {each.due.address for each in tried} - failing
        for name in taking:
            self._shut.pop(name, None)
        if away or (len(failing) > 1 and not taking):
            self._broker_failures += 1
            self._broker_after = now + _pause(self._broker_failures)
        else:
            self._broker_failures = 0
            for name in failing:
                failures = self._shut.get(name, (0, 0.0))[0] + 1
                self._shut[name] = failures, now + _pause(failures)
        self._tried += tried
        self._untried += untried

    # ---------------------------------------------------------------------------------------- the other threads

    def _lane(self, endpoint: int, group: Sequence[Due], suspect: bool) -> None:
        """Send messages one after another over one connection, until one gets no answer or the time is up."""
        until = time.monotonic() + LANE_SECONDS
        tried: list[Try] = []
        try:
            caller = Caller(group[0].address, opened(group[0].secret))
            try:
                for due in group:
                    tried.append(_tell(caller, due))
                    if not tried[-1].answered or time.monotonic() > until or self.stopping:
                        break
            finally:
                caller.close()
        except Unreadable as problem:
            log.warning("webhook %s: %s", endpoint, problem)
            tried.append(Try(group[0], delivered=False, answered=False, error=str(problem)))
        except Exception as error:
            log.exception("could not deliver to a webhook")
            tried += [_failed(due, error) for due in group[len(tried) :][:1]]  # none, where only the connection's end has failed
        self._results.put(partial(self._lane_ended, endpoint, suspect, tried, group[len(tried) :]))

    def _reply(self, group: Sequence[Due]) -> None:
        """Publish replies one after another, until the time is up or the broker is away. A queue that fails gets no more of them."""
        until = time.monotonic() + LANE_SECONDS
        tried: list[Try] = []
        failing: set[str] = set()
        away = False
        self._post.renew()
        for due in group:
            if due.address in failing:
                continue
            began = time.monotonic()
            try:
                self._post.publish(Reply(due.address, due.message_id, due.order, due.event, due.body))
            except Exception as error:
                log.warning("the broker did not take a reply: %s", error)
                tried.append(_failed(due, error, time.monotonic() - began))
                failing.add(due.address)
                away = not self._post.reaches_the_broker()
            else:
                tried.append(Try(due, delivered=True, answered=True, seconds=round(time.monotonic() - began, 3)))
            if away or self.stopping or time.monotonic() > until:
                break
        done = {each.due.id for each in tried}
        self._results.put(partial(self._replies_ended, tried, [due for due in group if due.id not in done], away))

    def close(self) -> None:
        """Wait until the threads have sent their current messages, then close threads and connections."""
        self._pool.shutdown(cancel_futures=True)
        self._replier.shutdown(cancel_futures=True)
        self._post.close()


def _pause(failures: int) -> float:
    return min(2.0 ** min(failures, 10), LONGEST_PAUSE_SECONDS)


def _count(kind: str, tried: Sequence[Try]) -> None:
    for each in tried:
        outcome = "delivered" if each.delivered else "refused" if each.answered else "no_answer"
        measures.DELIVERIES.observe(each.seconds, kind, outcome)
        if spans.on and each.due.run_id is not None:
            spans.active.delivered(each.due.order, kind, outcome, each.seconds)


def _tell(caller: Caller, due: Due) -> Try:
    outcome = caller.send(due.message_id, due.body)
    return Try(due, outcome.delivered, outcome.answered, outcome.status_code, outcome.error, outcome.seconds)


def _failed(due: Due, error: Exception, seconds: float = 0.0) -> Try:
    return Try(due, delivered=False, answered=False, error=f"{type(error).__name__}: {error}", seconds=round(seconds, 3))


def deliver_all(within: float = 60.0) -> None:
    """Take turns in this thread until nothing is due or under way: for tests, and where no supervisor runs."""
    sending = Sending()
    deadline = time.monotonic() + within
    try:
        while (sending.turn(patience=0.02) or sending.busy) and time.monotonic() < deadline:
            pass
    finally:
        sending.close()

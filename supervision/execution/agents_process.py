"""The parts that all cohorts of an agents process share: its queues, the pool of calls, and three threads that serve it.

Threads of the pool never touch the database. One thread writes the agents' checkpoints and ledger entries, one reports
answers that come after their cohort has moved on, one reserves the moments of further requests.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import DataError, InterfaceError, OperationalError

from supervision import conf
from supervision.agent import JSON, StepRequest, agents
from supervision.dispatch import partitions
from supervision.effects import Book, Settlement
from supervision.errors import OutcomeUnknown
from supervision.execution import notes
from supervision.execution.call_pool import CallPool
from supervision.execution.notes import Extender, LedgerBook, Note
from supervision.governance import rate_limiter
from supervision.governance.admission import CallPermit
from supervision.retry import Failure
from supervision.runtime import failpoints
from supervision.store.records import Started
from supervision.workflow import StepPosition

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """One call's end. handed_over, began, ended: `time.monotonic()` values. ended: 0 if it was not called, or raised what it may not."""

    place: StepPosition
    started: Started
    result: JSON | None
    failure: Failure | None
    settled: Sequence[Settlement] = ()
    handed_over: float = 0.0  # to the threads that make calls
    began: float = 0.0
    ended: float = 0.0


class AgentsProcess:
    """What this process shares between its cohorts. There is one per process, `runner.process`; it begins its threads when needed.

    report: the function that gets the late answers of one place.
    queues: those that this process consumes. agents: the names of the agents all of whose queues are among them. Both are empty
    in a process that hands every next step on through the broker.
    cohorts: those that it performs now. idle_since: `time.monotonic()` value at which the last one ended.
    """

    def __init__(self, report: Callable[[StepPosition, Sequence[Answer]], None]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._pool: CallPool | None = None
        self.queues: frozenset[str] = frozenset()
        self.agents: frozenset[str] = frozenset()
        self.cohorts: deque[StepPosition] = deque()
        self.idle_since = 0.0
        self.under_way: dict[int, StepRequest] = {}  # the calls of agents, by thread
        self.late: queue.Queue[Answer] = queue.Queue()  # it counts the answers that are not reported yet
        self._notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
        self._moments: queue.SimpleQueue[_Moment] = queue.SimpleQueue()

    def serve(self, queues: Iterable[str]) -> None:
        """Say which queues this process consumes from now on."""
        self.queues = frozenset(queues)
        self.agents = frozenset(agent.name for agent in agents() if self.queues.issuperset(partitions.queues(agent)))

    def reset(self) -> None:
        """For tests: serve no queue, and forget how quick the agents of earlier tests were."""
        self.serve(())
        if self._pool is not None:
            self._pool.forget()

    @property
    def pool(self) -> CallPool:
        """The pool of calls. It begins with the first use, and so do the threads that serve it."""
        if self._pool is None:
            with self._lock:
                if self._pool is None:
                    for loop in (self._gather_late, self._write_checkpoints, self._reserve_moments):
                        threading.Thread(target=loop, name=loop.__name__.strip("_"), daemon=True).start()
                    self._pool = CallPool(conf.get().agent_threads)
        return self._pool

    def is_idle(self, seconds: float) -> bool:
        """Whether this process has performed no cohort for this long, and no call of an earlier one is under way."""
        quiet = not self.cohorts and time.monotonic() - self.idle_since >= seconds
        return quiet and (self._pool is None or self._pool.is_idle())

    def overdue_in_all_threads(self, now: float) -> Sequence[StepRequest]:
        """The calls under way, if they hold all threads for agents' calls and the time of each is over; else none."""
        if self._pool is None or len(self.under_way) < self._pool.size:
            return ()
        calls = list(self.under_way.values())
        return calls if len(calls) >= self._pool.size and all(call.deadline < now for call in calls) else ()

    def finish_up(self, seconds: float) -> None:
        """Before this process ends, wait up to `seconds` for the calls under way to be reported. The other claims expire."""
        if self._pool is None:
            return
        until = time.monotonic() + seconds
        self._pool.wait_until_idle(seconds)
        with self.late.all_tasks_done:
            self.late.all_tasks_done.wait_for(lambda: not self.late.unfinished_tasks, max(until - time.monotonic(), 0.0))

    def _gather_late(self) -> None:
        """Report answers that came after their cohort moved on: together, each place in a chain of its own."""
        for batch in _batches(self.late, conf.get().linger_seconds):
            places: dict[StepPosition, list[Answer]] = {}
            for answer in batch:
                places.setdefault(answer.place, []).append(answer)
            for place, answers in places.items():
                try:
                    self._report(place, answers)
                except Exception:
                    # Their claims expire and the supervisor recovers them; the thread must live on.
                    log.exception("could not report %d late answers of %s", len(answers), place)
            for _ in batch:
                self.late.task_done()

    def _write_checkpoints(self) -> None:
        for batch in _batches(self._notes, 0.0):
            self._write(batch)

    def _write(self, batch: Sequence[Note]) -> None:
        try:
            allowed = notes.commit(batch)
        except Exception as error:
            quotes = isinstance(error, DataError) and any(note.place.step.personal for note in batch)
            log.exception("could not write %d notes of agents: %s", len(batch), type(error).__name__, exc_info=not quotes)
            if len(batch) == 1 or isinstance(error, OperationalError | InterfaceError):
                for note in batch:
                    note.settle(OutcomeUnknown(f"its note could not be recorded: {type(error).__name__}") if quotes else error)
            else:  # one by one, so that only the faulty note fails
                for note in batch:
                    self._write([note])
            return
        for note in batch:
            note.settle(None if id(note) in allowed else notes.lost_claim())

    def _reserve_moments(self) -> None:
        for batch in _batches(self._moments, 0.0):
            by_resource: dict[str, list[_Moment]] = {}
            for moment in batch:
                by_resource.setdefault(moment.resource, []).append(moment)
            for name, moments in by_resource.items():
                try:
                    reserved = rate_limiter.reserve(name, len(moments))
                except Exception:
                    log.exception("could not reserve %d requests of %s", len(moments), name)
                    reserved = [float("inf")] * len(moments)  # the request is not made, because it could break the rate limit
                for moment, at in zip(moments, reserved, strict=True):
                    moment.at.put(at)

    def pacer(self, permit: CallPermit) -> Callable[[], float]:
        """A function that says when the next request of this call may be made: the first as granted, later ones as reserved."""
        first = [permit.not_before]

        def reserve() -> float:
            if first:
                return first.pop()
            moment = _Moment(str(permit.resource))
            self._moments.put(moment)
            return moment.at.get()

        return reserve

    def checkpointer(self, place: StepPosition, started: Started) -> Callable[[Mapping[str, Any]], None]:
        """A function with which the agent of this attempt saves a fact durably."""

        def save(data: Mapping[str, Any]) -> None:
            self.note(Note(place, started.claim, data))
            failpoints.hit("agent.after_checkpoint", [place.label])

        return save

    def extender(self, place: StepPosition, started: Started) -> Callable[[], tuple[float, bool]]:
        """A function with which the agent of this attempt says that its work goes on."""
        return Extender(self.note, place, started.claim)

    def note(self, note: Note) -> None:
        """Wait until the note is committed, together with other agents' notes. Raises TransientFailure for a lost claim."""
        self._notes.put(note)
        note.wait()

    def book(self, place: StepPosition, started: Started) -> Book:
        """The operations of this attempt, kept in the ledger."""
        return LedgerBook(self.note, self._notes.put, place, started)


class _Moment:
    """One more request of a call under way, which waits for its reserved moment."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.at: queue.SimpleQueue[float] = queue.SimpleQueue()


def _batches(source: queue.SimpleQueue[Any] | queue.Queue[Any], linger: float, most: int = 2000) -> Any:
    """The queue's items in batches, for ever; `linger` seconds let a batch grow."""
    while True:
        batch = deque([source.get()])
        if linger:
            time.sleep(linger)
        try:
            while len(batch) < most:
                batch.append(source.get_nowait())
        except queue.Empty:
            pass
        yield list(batch)

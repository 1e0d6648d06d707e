"""The state and the results of a run, for code that has submitted it: read at once, or awaited until the run has come to rest.

A caller that waits looks again and again. The first look comes at once; each later one comes after a tenth of the time that it has
waited, and not before 20 ms nor after a second. All coroutines of a process share one thread, one connection, and one statement
for those whose look is due. Nothing is written, and no event is announced for them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import connection
from django.utils.asyncio import async_unsafe

from supervision.agent import JSON
from supervision.errors import SupervisionError, UnknownRun, UnreadableSubmission
from supervision.postgres import db, json_safe
from supervision.runtime.periodic import PeriodicLoop
from supervision.states import Direction, ProcessState, RunState

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, SHARE = 0.02, 1.0, 0.1
LINGER_SECONDS = 0.5  # how long the connection is kept after the last caller has its answer
AT_REST = (RunState.PROCESSED, RunState.CANCELLED, RunState.ERROR)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A run that has come to rest.

    state: Processed, Cancelled or Error. In Error an operator decides, and the run may go on. results: what the steps that are
    done returned, by name; of a cancelled run also those that were undone since. failed_step, error: the step that stopped the
    run and why, in Error, and of a run that was undone afterwards; `undo:` before the name of an undo.
    """

    key: str
    state: RunState
    results: Mapping[str, JSON]
    failed_step: str | None = None
    error: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the run is Processed."""
        return self.state == RunState.PROCESSED


@async_unsafe("This call blocks the event loop. Await supervision.astate instead.")
def state(key: str) -> RunState:
    """The state of the run with this key. Pending before it is a run. Raises UnknownRun."""
    return _known(_look_at(key))


@async_unsafe("This call blocks the event loop. Await supervision.aresult instead.")
def result(key: str, *, timeout: float = 30.0) -> RunResult:
    """Wait until the run has come to rest (Processed, Cancelled or Error), and return its state and results.

    timeout: seconds; 0 looks once. Raises TimeoutError after that, and the run goes on. Raises UnknownRun if no run and no accepted
    submission has this key, UnreadableSubmission if the submission became a dead letter. Inside a transaction it does not
    wait, because it would wait for a run that cannot begin before the transaction ends: it raises SupervisionError instead.
    """
    _check(timeout)
    waiting = _Waiting(key, Future())
    while (found := _ended(_look_at(key))) is None:
        if timeout and connection.in_atomic_block:
            raise SupervisionError(f"order {key!r} has not ended, and a transaction is open: wait for it after the transaction")
        left = waiting.began + timeout - time.monotonic()
        if left <= 0:
            raise _too_late(key, timeout)
        time.sleep(min(waiting.pause(), left))
    return found


async def astate(key: str) -> RunState:
    """As `state`, for coroutines: the event loop is not blocked, and no database connection is kept."""
    seen: _Seen = await asyncio.wrap_future(_looks.add(_storable(key), at_once=True))
    return _known(seen)


async def aresult(key: str, *, timeout: float = 30.0) -> RunResult:
    """As `result`, for coroutines: the event loop is not blocked, and no database connection is kept while it waits."""
    _check(timeout)
    try:
        seen: _Seen = await asyncio.wait_for(asyncio.wrap_future(_looks.add(_storable(key), at_once=not timeout)), timeout or None)
    except TimeoutError:
        raise _too_late(key, timeout) from None
    if (found := _ended(seen)) is None:
        raise _too_late(key, timeout)
    return found


def _look_at(key: str) -> _Seen:
    return _look([_storable(key)])[key]


def _storable(key: str) -> str:
    """Raises UnknownRun for a text that no key can be."""
    if not isinstance(key, str) or json_safe.text(key) != key:
        raise UnknownRun(key)
    return key


def _check(timeout: float) -> None:
    if not timeout >= 0 or timeout == float("inf"):
        raise ValueError(f"timeout: expected seconds, 0 or more, got {timeout!r}")


def _too_late(key: str, timeout: float) -> TimeoutError:
    return TimeoutError(f"order {key!r} has not ended within {timeout:g} s; it goes on")


# ---------------------------------------------------------------------------------------------------- looking

# One snapshot for each key: its state, whether its submission was consumed without a run, and its steps if it is at rest.
_LOOK = """
SELECT v.key, coalesce(r.process_state, a.process_state, CASE WHEN s.public_id IS NOT NULL THEN 'Pending' END),
       r.id IS NULL AND a.key IS NULL AND s.consumed_at IS NOT NULL,
       CASE WHEN r.process_state IN ('Processed', 'Cancelled', 'Error') THEN (
                 SELECT jsonb_agg(jsonb_build_object('name', t.name, 'direction', t.direction, 'process_state', t.process_state,
                                                     'result', t.result, 'last_error', t.last_error) ORDER BY t.direction, t.position)
                   FROM supervision_stepstate t WHERE t.run_id = r.id)
            WHEN a.key IS NOT NULL THEN a.body -> 'steps' END
  FROM unnest(%(keys)s::text[]) v(key)
  LEFT JOIN supervision_run r ON r.key = v.key
  LEFT JOIN supervision_archivedrun a ON a.key = v.key
  LEFT JOIN supervision_submission s ON s.public_id = v.key
"""
_WHY_UNREAD = "SELECT reason FROM supervision_deadletter WHERE public_id = %(key)s ORDER BY id DESC LIMIT 1"


class _Seen(NamedTuple):
    key: str
    state: RunState | None
    unread: bool
    steps: Sequence[Mapping[str, Any]]
    why_unread: str = ""


def _look(keys: Sequence[str]) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}
    for key, word, unread, steps in db.run(_LOOK, {"keys": list(keys)}):
        why = db.run(_WHY_UNREAD, {"key": key}) if unread else []
        found[key] = _Seen(key, None if word is None else RunState(word), bool(why), steps or (), why[0][0] if why else "")
    return found


def _known(seen: _Seen) -> RunState:
    if seen.state is None:
        raise UnknownRun(seen.key)
    return seen.state


def _ended(seen: _Seen) -> RunResult | None:
    """The run's result; None if it has not come to rest. Raises what `result` raises."""
    state = _known(seen)
    if seen.unread:
        raise UnreadableSubmission(f"order {seen.key!r} is a dead letter: {seen.why_unread}")
    if state not in AT_REST:
        return None
    done = [step for step in seen.steps if step["direction"] == Direction.DO and step["process_state"] == ProcessState.PROCESSED]
    results = {step["name"]: step["result"] for step in done}
    failed = next((step for step in reversed(seen.steps) if step["process_state"] == ProcessState.ERROR), None)
    if failed is None:
        return RunResult(key=seen.key, state=state, results=results)
    prefix = "undo:" if failed["direction"] == Direction.UNDO else ""
    return RunResult(key=seen.key, state=state, results=results, failed_step=prefix + failed["name"], error=failed.get("last_error"))


# ------------------------------------------------------------------------------------------------- coroutines


@dataclass(eq=False)
class _Waiting:
    key: str
    answer: Future[_Seen]
    at_once: bool = False  # the first look is the answer
    began: float = field(default_factory=time.monotonic)
    look_at: float = 0.0

    def pause(self) -> float:
        """Seconds until the next look."""
        return min(max(SHARE * (time.monotonic() - self.began), FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)

    def heard(self, seen: _Seen) -> bool:
        """Take a look's finding; whether it is the answer."""
        if not (self.at_once or seen.state is None or seen.unread or seen.state in AT_REST):
            self.look_at = time.monotonic() + self.pause()
            return False
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(seen)
        return True


class _Looks:
    """The coroutines of this process that wait, and the thread that looks for them as long as there are any."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._waiting: set[_Waiting] = set()
        self._loop: PeriodicLoop | None = None

    def add(self, key: str, *, at_once: bool) -> Future[_Seen]:
        """The future answer for this key. Cancel it to wait no longer."""
        waiting = _Waiting(key, Future(), at_once)
        with self._news:
            self._waiting.add(waiting)
            self._news.notify()
            if self._loop is None:
                self._loop = PeriodicLoop("results", 0.0, self._turn).start()
        return waiting.answer

    def _turn(self) -> None:
        with self._news:
            self._waiting = {one for one in self._waiting if not one.answer.done()}
            if not self._waiting and not self._news.wait_for(lambda: self._waiting, LINGER_SECONDS):
                if self._loop is not None:
                    self._loop.ask_to_stop()  # the connection is closed
                self._loop = None
                return
            due = [one for one in self._waiting if one.look_at <= time.monotonic()]
            if not due:
                self._news.wait(max(0.0, min(one.look_at for one in self._waiting) - time.monotonic()))
                return
        found = _look(list({one.key for one in due}))
        answered = {one for one in due if one.heard(found[one.key])}
        with self._news:
            self._waiting -= answered


_looks = _Looks()


def _forget() -> None:
    """In a forked process there is no thread that looks."""
    global _looks
    _looks = _Looks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

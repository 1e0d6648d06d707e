"""Steps that only wait: for a signal, or for a moment.

A waiting step is a Pending row that no claim finds. A signal makes it claimable, and so does the supervisor when its time is
over. Then the agent `wait` looks what has come. The claim, the lease and the recovery are those of every other step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from supervision.agent import JSON, WAIT, StepRequest
from supervision.errors import MOST_WAIT, MOST_YEAR, AgentFailure, DefinitionError, PermanentFailure, Waits
from supervision.retry import OnPermanent, RetryPolicy, chosen, demand_time
from supervision.workflow import Facts, Step

SIGNAL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
TIMED_OUT, TIMER_FAILED = "timed_out", "timer_failed"
REMINDED = "_reminded"  # in a step's checkpoint: up to which second of its wait the reminders are made


class OnTimeout(StrEnum):
    """What happens if the signal has not come in time."""

    ERROR = "error"  # the run stops, and an operator decides
    COMPENSATE = "compensate"  # what was done is undone
    SKIP = "skip"  # the step is Skipped with an alert, and the run goes on
    GO_ON = "go on"  # the step is Processed with the result {"came": false}


def _bounded(step: str, what: str, time: timedelta) -> None:
    demand_time(f"step {step!r}: {what}", time)
    if not timedelta(0) < time <= MOST_WAIT:
        raise DefinitionError(f"step {step!r}: {what} must be positive and at most {MOST_WAIT.days} days")


@dataclass(frozen=True)
class WaitForSignal(Step):
    """Waits until a signal of this name has come, at most `within`. Its result is {"came": true, "payload": ...}.

    signal: the signal's name; without it the step's own. A signal that came before the step's turn is taken at once. Of
    several signals of one name, each wait takes one, in the order in which they came.
    remind_after: when `remind` is called, counted from the beginning of the wait, while no signal has come.
    remind: called once at each of these moments, with the step's request and in the transaction in which the step waits on: it may
        write the application's tables and queue mails, and may not call the network. If it raises, the step fails like any other.
    The time of the wait does not count against the run's own `complete_within`.
    """

    agent: str = field(default=WAIT, init=False)
    signal: str = field(default="", kw_only=True)
    within: timedelta = field(default=timedelta(days=1), kw_only=True)
    on_timeout: OnTimeout = field(default=OnTimeout.ERROR, kw_only=True)
    remind_after: tuple[timedelta, ...] = field(default=(), kw_only=True)
    remind: Callable[[StepRequest], object] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not SIGNAL_NAME.fullmatch(self.awaited):
            raise DefinitionError(f"step {self.name!r}: a signal's name has 1 to 100 letters, digits, -, _ and ., got {self.awaited!r}")
        _bounded(self.name, "within", self.within)
        for moment in self.remind_after:
            demand_time(f"step {self.name!r}: remind_after", moment)
        moments = (timedelta(0), *self.remind_after, self.within)
        if bool(self.remind_after) != (self.remind is not None) or any(one >= other for one, other in pairwise(moments)):
            raise DefinitionError(f"step {self.name!r}: remind_after needs remind, and moments that rise from 0 to within")
        object.__setattr__(self, "on_timeout", chosen(f"step {self.name!r}: on_timeout", OnTimeout, self.on_timeout))
        if self.on_timeout != OnTimeout.GO_ON:
            object.__setattr__(self, "retry", RetryPolicy(on_permanent=OnPermanent(self.on_timeout)))

    @property
    def awaited(self) -> str:
        """The signal's name."""
        return self.signal or self.name

    def look(self, request: StepRequest) -> JSON | AgentFailure:
        """The step's result if the signal has come or the wait is over; otherwise what it waits for."""
        if request.signal is not None:
            return {"came": True, "payload": request.signal}
        if not request.wait_is_over:
            return self._wait_on(request)
        if self.on_timeout == OnTimeout.GO_ON:
            return {"came": False}
        return PermanentFailure(f"the signal {self.awaited} has not come in time", TIMED_OUT)

    def _wait_on(self, request: StepRequest) -> Waits:
        """Begin the wait, or remind and wait on. Of several reminders that were missed, one is made. None is made twice in a wait."""
        left, reminded = self.within, 0.0
        if request.wait_left is not None:
            left, reminded = timedelta(seconds=request.wait_left), request.checkpoint_data.get(REMINDED, 0.0)
        waited = self.within - left
        if self.remind is not None and any(timedelta(seconds=reminded) < moment <= waited for moment in self.remind_after):
            self.remind(request)
            request.checkpoint(**{REMINDED: waited.total_seconds()})
        elif request.wait_left is None and REMINDED in request.checkpoint_data:  # by an earlier wait of the step
            request.checkpoint(**{REMINDED: 0.0})
        following = next((moment for moment in self.remind_after if moment > waited), None)
        return Waits(self.awaited, within=left, look_after=following and following - waited)


@dataclass(frozen=True)
class Timer(Step):
    """Waits for so long (`lasts`), or until a moment that is found from the payload and earlier results (`until`).

    until: a function of `Facts` that returns a datetime with a time zone. A moment that is over ends the wait at once.
    The time of the wait does not count against the run's own `complete_within`.
    """

    agent: str = field(default=WAIT, init=False)
    lasts: timedelta | None = field(default=None, kw_only=True)
    until: Callable[[Facts], datetime] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if (self.lasts is None) == (self.until is None):
            raise DefinitionError(f"step {self.name!r}: a timer has either lasts or until")
        if self.lasts is not None:
            _bounded(self.name, "lasts", self.lasts)

    def look(self, request: StepRequest) -> JSON | AgentFailure:
        """The step's result if its time is over; otherwise until when it waits."""
        if request.wait_is_over:
            return {}
        if self.until is None:
            return Waits(within=self.lasts if request.wait_left is None else timedelta(seconds=request.wait_left))
        try:
            moment = self.until(Facts(request.payload, request.results))
            fits = moment.tzinfo is not None and moment.year < MOST_YEAR
        except Exception as error:
            return PermanentFailure(f"the moment of {self.name} could not be found: {type(error).__name__}: {error}", TIMER_FAILED)
        if not fits:
            why = f"the moment of {self.name} has no time zone or is not before the year {MOST_YEAR}: {moment}"
            return PermanentFailure(why, TIMER_FAILED)
        return Waits(until=moment)

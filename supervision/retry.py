"""From a failure to a decision: pure functions, no clock, no database.

The supervisor and the reporting worker only execute what `decide` returns (S11). Counting follows X2, X3 and X14 of
the requirements: `failure_count` rises for attempts that had started, `failure_count >= threshold` ends retrying,
and an attempt that expires before an agent started it is a lost dispatch, not a failure.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from supervision.breaker import Blame
from supervision.errors import AwaitSignal, DefinitionError, did_you_mean

Choice = TypeVar("Choice", bound=StrEnum)


def demand_time(what: str, value: object) -> None:
    """Raise DefinitionError unless this is a timedelta. what: names it in the error."""
    if not isinstance(value, timedelta):
        raise DefinitionError(f"{what} must be a timedelta, for example timedelta(seconds=30), got {value!r}")


def chosen(what: str, choices: type[Choice], value: str) -> Choice:
    """This choice, which may be given as its text. Raises DefinitionError if there is no such one. what: names it in the error."""
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(map(repr, map(str, choices)))
        raise DefinitionError(f"{what} must be one of {known}, got {value!r}{did_you_mean(str(value), map(str, choices))}") from None


class OnExhausted(StrEnum):
    """What happens when `failure_count` has reached the threshold."""

    ERROR = "error"
    WAIT = "wait"
    COMPENSATE = "compensate"
    SKIP = "skip"


class OnPermanent(StrEnum):
    """What happens after a permanent failure."""

    ERROR = "error"
    COMPENSATE = "compensate"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How a step is tried again. Delays double (by `factor`) from `first_delay` up to `max_delay`, plus jitter.

    threshold: started attempts that may fail or expire before `on_exhausted` applies; None = the setting
    FAILURE_THRESHOLD.
    long_wait: how long `wait` waits; None = the setting LONG_WAIT.
    """

    threshold: int | None = None
    first_delay: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_delay: timedelta = timedelta(minutes=5)
    jitter: float = 0.2
    on_exhausted: OnExhausted = OnExhausted.ERROR
    on_permanent: OnPermanent = OnPermanent.ERROR
    long_wait: timedelta | None = None

    def __post_init__(self) -> None:
        for name in ("first_delay", "max_delay", *(["long_wait"] if self.long_wait is not None else [])):
            demand_time(name, getattr(self, name))
        # A word that is none of the choices would count as `error` where a step fails, and undo nothing.
        for name, choices in (("on_exhausted", OnExhausted), ("on_permanent", OnPermanent)):
            object.__setattr__(self, name, chosen(name, choices, getattr(self, name)))
        if self.threshold is not None and self.threshold < 1:
            raise DefinitionError("threshold must be at least 1")
        if self.first_delay < timedelta(0) or self.max_delay < self.first_delay:
            raise DefinitionError("delays must satisfy 0 <= first_delay <= max_delay")
        if self.factor < 1:
            raise DefinitionError("factor must be at least 1")
        if not 0 <= self.jitter <= 1:
            raise DefinitionError("jitter must be between 0 and 1")

    def patience(self, failing_for: float, roll: float) -> timedelta:
        """The wait after a failure that is not counted, of a step that has been failing for so many seconds."""
        grown = max(self.first_delay.total_seconds(), failing_for * (self.factor - 1))
        return timedelta(seconds=min(grown, self.max_delay.total_seconds()) * (1 + self.jitter * roll))

    def delay(self, failures: int, roll: float) -> timedelta:
        """The wait after the `failures`-th failure (1 is the first); `roll` in [0, 1) places it within the jitter."""
        exponent = min(max(failures - 1, 0), 64)
        base = min(self.first_delay.total_seconds() * self.factor**exponent, self.max_delay.total_seconds())
        return timedelta(seconds=base * (1 + self.jitter * roll))


class Outcome(StrEnum):
    """How an attempt ended without success."""

    EXPIRED = "expired"
    TRANSIENT = "transient"
    UNKNOWN = "unknown"
    PERMANENT = "permanent"
    POSTPONED = "postponed"
    NOT_NEEDED = "not needed"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One attempt's end. `started`: an agent had started it. `not_before`: the pause that the service asks for."""

    outcome: Outcome
    started: bool = True
    message: str = ""
    code: str = ""
    not_before: timedelta | None = None
    abandoned: bool = False  # the run is being undone: this attempt is not to be repeated
    reconcile: bool = False  # only a person can find out whether a repetition would be harmless
    run_overdue: bool = False  # the order's own complete_by has passed
    of_resource: bool = False  # the fault of the remote service or of this order: the circuit breaker decides which
    unreachable: bool = False  # the connection was refused
    refuses_us: bool = False  # the service does not accept our key
    at: float = 0.0  # when the call failed, a `time.monotonic()` value
    for_customer: bool = False  # the customer must correct it, not an operator
    outage: timedelta | None = None  # how long to wait because the service's breaker is open; this failure is not counted
    blame: Blame | None = None  # whose failure it is; None where no service is involved
    awaits: AwaitSignal | None = None  # what the step waits for before it runs again; nothing failed


@dataclass(frozen=True)
class Retry:
    """Back to Pending, to be claimed after `delay`; `counted` says whether failure_count rises."""

    delay: timedelta
    counted: bool


@dataclass(frozen=True)
class Wait:
    """Past the threshold: back to Pending after a longer wait (S22)."""

    delay: timedelta


@dataclass(frozen=True)
class Compensate:
    """The step failed for good: undo what was done."""

    reason: str


@dataclass(frozen=True)
class Fail:
    """The step failed for good: Error and an operator."""

    reason: str


@dataclass(frozen=True)
class Skip:
    """The step failed for good and the order can do without it: go on, with an alert."""

    reason: str


@dataclass(frozen=True)
class Abandon:
    """The run is being undone: the attempt is over, its effect is undone by key."""

    reason: str = field(default="the order is being undone")


Decision = Retry | Wait | Compensate | Fail | Skip | Abandon


@dataclass(frozen=True, kw_only=True)
class RetryLimits:
    """The numbers in force for one decision: the policy's own, or the settings' where it names none."""

    threshold: int
    long_wait: timedelta
    on_exhausted: OnExhausted
    on_permanent: OnPermanent


def decide(failure_count: int, failure: Failure, policy: RetryPolicy, limits: RetryLimits, roll: float | None = None) -> Decision:
    """What to do about one failed attempt of a step that has failed `failure_count` times before it.

    `roll` in [0, 1) places the retry within the policy's jitter; by default it is drawn.
    """
    if failure.abandoned:
        return Abandon()
    if failure.outcome is Outcome.NOT_NEEDED:
        return Skip(failure.message)
    if failure.reconcile:
        return Fail(failure.message)
    if failure.run_overdue and failure.outcome is not Outcome.PERMANENT:
        return _give_up(limits.on_exhausted, "the time for the whole order is over", wait=None)
    if failure.outage is not None and failure.outcome in (Outcome.TRANSIENT, Outcome.UNKNOWN):
        return Retry(delay=failure.outage, counted=False)
    drawn = random.random() if roll is None else roll  # noqa: S311 - spreads load, protects nothing
    if failure.blame is not None and not failure.blame.own and failure.outcome in (Outcome.TRANSIENT, Outcome.UNKNOWN):
        # There is no evidence yet whether the service is out or this order is at fault: it waits, longer each time.
        patience = policy.patience(failure.blame.failing_for, drawn)
        return Retry(delay=max(patience, failure.not_before or patience), counted=False)
    match failure.outcome:
        case Outcome.PERMANENT:
            match limits.on_permanent:
                case OnPermanent.COMPENSATE:
                    return Compensate(failure.message)
                case OnPermanent.SKIP:
                    return Skip(failure.message)
                case _:
                    return Fail(failure.message)
        case Outcome.POSTPONED:
            return Retry(delay=failure.not_before or timedelta(seconds=5), counted=False)
        case Outcome.EXPIRED if not failure.started:
            return Retry(delay=failure.not_before or timedelta(0), counted=False)
    failures = failure_count + 1
    if failures >= limits.threshold:
        reason = f"{failures} attempts failed; the last: {failure.message or failure.outcome}"
        return _give_up(limits.on_exhausted, reason, wait=limits.long_wait)
    delay = policy.delay(failures, drawn)
    if failure.not_before is not None:
        delay = max(delay, failure.not_before)
    return Retry(delay=delay, counted=True)


def _give_up(how: OnExhausted, reason: str, *, wait: timedelta | None) -> Decision:
    match how:
        case OnExhausted.WAIT if wait is not None:
            return Wait(delay=wait)
        case OnExhausted.COMPENSATE:
            return Compensate(reason)
        case OnExhausted.SKIP:
            return Skip(reason)
        case _:
            return Fail(reason)

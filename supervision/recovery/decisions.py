"""What follows from one failed or expired attempt: the decision of `retry.decide`, as the values that SETTLE writes."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from supervision import conf
from supervision.errors import (
    AgentFailure,
    AwaitSignal,
    DefinitionError,
    NotNeeded,
    OutcomeUnknown,
    PermanentFailure,
    Postpone,
    TransientFailure,
)
from supervision.incidents.lifecycle import INFO, WARNING
from supervision.models import Alert
from supervision.postgres import db
from supervision.recovery import attribution
from supervision.retry import (
    Abandon,
    Compensate,
    Decision,
    Fail,
    Failure,
    OnExhausted,
    OnPermanent,
    Outcome,
    Retry,
    RetryLimits,
    RetryPolicy,
    Skip,
    Wait,
    decide,
)
from supervision.states import Direction, Effect, ProcessState, RunState
from supervision.store.records import UnfitResult
from supervision.workflow import StepPosition, version_of

NO_TIME, CLAIM_LOST, UNRECORDED = "no_time", "claim_lost", "unrecorded"
OUR_OWN = (NO_TIME, CLAIM_LOST, UNRECORDED)  # transient failures for which the remote service is not to blame
MOST_CODE = 100  # characters of a failure's code, which names its incident
LOST_DISPATCHES = 5  # so many claims in a row that no agent started raise an alert
DAY_SECONDS = 86_400.0


class Facts(NamedTuple):
    """The facts for a decision about one failed attempt, read under its row's lock. waited: the step has waited before."""

    run_id: int
    direction: str
    position: int
    attempt: int
    started: bool
    failure_count: int
    dispatch_count: int
    waited: bool
    workflow: str
    version: int
    run_direction: str
    run_overdue: bool | None
    run_state: str


@dataclass
class Tally:
    """How many steps got which decision."""

    retried: int = 0
    redispatched: int = 0
    waiting: int = 0
    compensating: int = 0
    errors: int = 0
    skipped: int = 0
    stale: int = 0

    @property
    def total(self) -> int:
        """The number of settled steps."""
        return self.retried + self.redispatched + self.waiting + self.compensating + self.errors + self.skipped

    def add(self, other: Tally) -> None:
        """Add the counts of another batch."""
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)


def as_failure(error: BaseException) -> Failure:
    """What an agent's exception means. One that is not an AgentFailure leaves the outcome unknown."""
    # A remote service's message may hold characters that PostgreSQL cannot store: NUL and lone surrogates.
    message = (str(error) or type(error).__name__).replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    match error:
        case PermanentFailure():
            return Failure(outcome=Outcome.PERMANENT, message=message, code=error.code, for_customer=error.for_customer)
        case NotNeeded():
            return Failure(outcome=Outcome.NOT_NEEDED, message=message, code=error.code)
        case AwaitSignal():
            return Failure(outcome=Outcome.POSTPONED, message=message, code=error.code, awaits=error)
        case Postpone():
            return Failure(outcome=Outcome.POSTPONED, message=message, code=error.code, not_before=error.delay)
        case OutcomeUnknown():
            outcome = Outcome.UNKNOWN
        case TransientFailure():
            outcome = Outcome.TRANSIENT
        case _:
            return Failure(outcome=Outcome.UNKNOWN, message=f"{type(error).__name__}: {message}", code=AgentFailure.code)
    return Failure(
        outcome=outcome,
        message=message,
        code=error.code,
        not_before=_pause(error.retry_after),
        of_resource=error.code not in OUR_OWN,
        unreachable=error.unreachable,
        refuses_us=error.refuses_us,
        at=error.since or time.monotonic(),
    )


def unfit(place: StepPosition, error: UnfitResult, *, done: bool = True) -> Failure:
    """What an agent returned cannot be kept: the step stops in Error under every policy. An operator decides.

    done: whether the step's work may have been done. Then its effect is unknown, and a resubmission keeps its key.
    """
    told = f"step {place.label}: the agent {place.agent.name} returned {error}; return a dict of text, numbers, true, false, None, lists"
    message = f"{told} and dicts, for example str(amount) and moment.isoformat()"
    return Failure(outcome=Outcome.UNKNOWN if done else Outcome.PERMANENT, message=message, code="unfit_result", reconcile=True)


def left_open(place: StepPosition, *, done: bool = True) -> Failure:
    """The agent returned with a transaction open, which was rolled back: the step stops in Error, as after an unfit result."""
    told = f"step {place.label}: the agent {place.agent.name} returned with a transaction open; what it wrote there is rolled back."
    message = f"{told} Let it leave every atomic block, and commit where it has switched autocommit off"
    outcome = Outcome.UNKNOWN if done else Outcome.PERMANENT
    return Failure(outcome=outcome, message=message, code="transaction_left_open", reconcile=True)


def unrecorded(place: StepPosition, error: Exception, why: str) -> Failure:
    """The agent has answered, and its answer cannot be recorded. why: the error in words that quote no personal data."""
    if isinstance(error, UnfitResult):
        return unfit(place, error)
    return as_failure(OutcomeUnknown(f"its answer could not be recorded: {why}", UNRECORDED))


def rolled_back(place: StepPosition, error: Exception) -> Failure:
    """A transactional agent's transaction was rolled back as a whole: certainly nothing was done."""
    if isinstance(error, UnfitResult):
        return unfit(place, error, done=False)
    if isinstance(error, db.TransactionLeftOpen):
        return left_open(place, done=False)
    return as_failure(TransientFailure(f"{type(error).__name__}: {error}"))


def _pause(seconds: float | None) -> timedelta | None:
    """The pause that a service asks for, at most one day. None for a value that is not above 0."""
    return timedelta(seconds=min(seconds, DAY_SECONDS)) if seconds is not None and seconds > 0 else None


def retry_limits(policy: RetryPolicy, direction: str) -> RetryLimits:
    """The limits in force, from the policy and the settings. An undo step that is given up always goes to Error."""
    settings = conf.get()
    undoing = direction == Direction.UNDO
    return RetryLimits(
        threshold=policy.threshold or settings.failure_threshold,
        long_wait=policy.long_wait or settings.long_wait,
        on_exhausted=OnExhausted.ERROR if undoing else OnExhausted(settings.on_exhausted or policy.on_exhausted),
        on_permanent=OnPermanent.ERROR if undoing else OnPermanent(settings.on_permanent or policy.on_permanent),
    )


def decided(fact: Facts, failure: Failure) -> Decision:
    """The policy's decision about this failed attempt, within the limits in force."""
    try:
        policy, overdue = version_of(fact.workflow, fact.version).step(fact.position).retry, bool(fact.run_overdue)
    except (DefinitionError, IndexError):
        policy, overdue = RetryPolicy(), False  # the default policy: other processes know this plan and decide about the order
    undoing_forward = fact.direction == Direction.DO and fact.run_direction == Direction.UNDO
    told = replace(
        failure,
        abandoned=undoing_forward,
        run_overdue=overdue and fact.direction == Direction.DO,
    )
    return decide(fact.failure_count, told, policy, retry_limits(policy, fact.direction))


class Row(NamedTuple):
    """The values that SETTLE writes for one attempt. stops: whether this failure stops its run."""

    run_id: int
    direction: str
    position: int
    attempt: int
    state: str
    delay: float
    failures: int
    dispatches: int
    effect: str | None
    error: str | None
    why: str
    alert: str | None
    failing: float | None
    blame: int | None
    code: str
    severity: str
    stops: bool


# SETTLE's arrays, in the order of Row's fields.
COLUMNS = (
    "runs",
    "directions",
    "positions",
    "attempts",
    "states",
    "delays",
    "failures",
    "dispatches",
    "effects",
    "errors",
    "whys",
    "alerts",
    "failings",
    "blames",
    "codes",
    "severities",
    "stops",
)


def as_row(fact: Facts, failure: Failure, decision: Decision, tally: Tally) -> Row:
    """What SETTLE writes for this decision. It is counted in `tally`."""
    state, delay, counted, dispatched, alert = ProcessState.PENDING, 0.0, 0, 0, None
    match decision:
        case Retry(delay=pause, counted=counts):
            delay, counted = pause.total_seconds(), int(counts)
            if failure.outcome is not Outcome.EXPIRED or counts:
                tally.retried += 1
            else:
                dispatched = 1
                tally.redispatched += 1
                if (fact.dispatch_count + 1) % LOST_DISPATCHES == 0:
                    alert = Alert.Kind.LOST_DISPATCH
            why = failure.message or str(failure.outcome)
        case Wait(delay=pause):
            delay, counted, alert = pause.total_seconds(), 1, Alert.Kind.EXHAUSTED
            tally.waiting += 1
            why = f"waits longer: {failure.message}"
        case Compensate(reason=why):
            # No alert: the run does not stop here, it is undone in the same transaction.
            state, counted = ProcessState.ERROR, int(failure.started)
            tally.compensating += 1
        case Fail(reason=why):
            state, counted, alert = ProcessState.ERROR, int(failure.started), Alert.Kind.ERROR
            tally.errors += 1
        case Skip(reason=why):
            needed = failure.outcome is not Outcome.NOT_NEEDED
            state, counted, alert = ProcessState.SKIPPED, int(failure.started and needed), Alert.Kind.SKIPPED if needed else None
            tally.skipped += 1
        case Abandon(reason=why):
            state = ProcessState.CANCELLED
            tally.compensating += 1
    handed_over = failure.awaits is not None and failure.awaits.hands_over
    unknown = failure.started and (handed_over or failure.outcome in (Outcome.EXPIRED, Outcome.UNKNOWN))
    return Row(
        fact.run_id,
        fact.direction,
        fact.position,
        fact.attempt,
        str(state),
        delay,
        counted,
        dispatched,
        str(Effect.UNKNOWN) if unknown else None,
        None if failure.outcome in (Outcome.POSTPONED, Outcome.NOT_NEEDED) else failure.message[:2000] or None,
        why[:2000],
        None if alert is None else str(alert),
        None if failure.blame is None else failure.blame.failing_for,
        attribution.blamed(failure, counted),
        "overdue" if failure.run_overdue else (failure.code or str(failure.outcome))[:MOST_CODE],
        INFO if failure.for_customer else WARNING,
        alert is Alert.Kind.ERROR and fact.run_state != RunState.ERROR,
    )

"""FAIL settles attempts that failed. SWEEP settles attempts whose claim expired.

Both read the facts under the step's lock, let `retry.decide` decide, and write all decisions in one statement that
checks attempt and state again. The reporting worker and the supervisor use the same code; neither decides by itself.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import transaction

from supervision import conf
from supervision.errors import AgentFailure, AwaitSignal, DefinitionError, OutcomeUnknown, PermanentFailure, Postpone, TransientFailure
from supervision.incidents.lifecycle import INFO, WARNING
from supervision.models import Alert
from supervision.postgres import db
from supervision.recovery import attribution, held_time
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
from supervision.runtime import failpoints
from supervision.runtime.identity import me
from supervision.states import Claim, Direction, Effect, ProcessState
from supervision.store import failure_sql, run_verbs, sleeping
from supervision.store.step_verbs import addressed, lock_earlier, record_strays
from supervision.workflow import StepPosition, known_labels, version_of

NO_TIME, CLAIM_LOST, UNRECORDED = "no_time", "claim_lost", "unrecorded"
OUR_OWN = (NO_TIME, CLAIM_LOST, UNRECORDED)  # transient failures for which the remote service is not to blame
MOST_CODE = 100  # characters of a failure's code, which names its incident
LOST_DISPATCHES = 5  # so many claims in a row that no agent started raise an alert
DAY_SECONDS = 86_400.0
CLOCK_SLACK = timedelta(minutes=1)  # a clock that was ahead by less is not corrected for: it costs no more than this delay

log = logging.getLogger(__name__)


class Facts(NamedTuple):
    """The facts for a decision about one failed attempt, read under its row's lock."""

    run_id: int
    direction: str
    position: int
    attempt: int
    started: bool
    failure_count: int
    dispatch_count: int
    workflow: str
    version: int
    run_direction: str
    run_overdue: bool | None


def _facts(locked: Sequence[tuple[Any, ...]]) -> list[Facts]:
    """The facts for decisions about these locked steps. Their runs are read after the lock."""
    if not locked:
        return []
    runs = {run_id: facts for run_id, *facts in db.fetch(failure_sql.RUN_FACTS, {"runs": [row[0] for row in locked]})}
    # A step whose run was deleted by hand is left out; the audit reports it.
    facts = [Facts(*row, *runs[row[0]]) for row in locked if row[0] in runs]
    late = [fact.run_id for fact in facts if fact.run_overdue and fact.run_direction == Direction.DO]
    over = {look.run_id: look.over for look in held_time.extend(late)}
    return [fact._replace(run_overdue=over.get(fact.run_id, fact.run_overdue)) for fact in facts]


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


def _pause(seconds: float | None) -> timedelta | None:
    """The pause that a service asks for, at most one day. None for a value that is not above 0."""
    return timedelta(seconds=min(seconds, DAY_SECONDS)) if seconds is not None and seconds > 0 else None


def fail(place: StepPosition, failed: Sequence[tuple[Claim, Failure]]) -> Tally:
    """FAIL: settle attempts that failed within their deadline, each as its policy says.

    Claims that no longer stand change nothing and are recorded as stray replies.
    """
    failed = attribution.tell(place, failed)
    by_run = {claim.run_id: failure for claim, failure in failed}
    claims = [claim for claim, _ in failed]
    params = addressed(place, claims)

    def work() -> tuple[Tally, set[int]]:
        if place.direction == Direction.DO:  # a failed undo step never leads to changes of other steps of its run
            lock_earlier(place, claims)
        facts = _facts(db.fetch(failure_sql.HOLD_FAILED, params))
        tally = _settle([(fact, by_run[fact.run_id]) for fact in facts], set())
        return tally, {fact.run_id for fact in facts}

    tally, held = db.transact(work)
    stale = [(claim, str(failure.outcome), failure.message) for claim, failure in failed if claim.run_id not in held]
    if stale:
        record_strays(place, stale)
        tally.stale = len(stale)
    return tally


def sweep(limit: int, passed_over: set[int] | None = None, *, versions: Sequence[str] | None = None) -> Tally:
    """SWEEP: recover up to `limit` expired claims. Two sweeps at once share the work and count each expiry once.

    passed_over: runs to leave alone. Runs that could not be settled now are added to it.
    versions: labels of the workflow versions to recover. None: all versions that this process's code knows.
    """
    known = known_labels() if versions is None else list(versions)
    left = set() if passed_over is None else passed_over

    def work() -> tuple[Tally, list[str], set[int]]:
        overdue = db.fetch(failure_sql.HOLD_OVERDUE, {"limit": limit, "passed_over": sorted(left), "known": known})
        facts = _facts(_with_earlier(overdue))
        expired = [
            (
                fact,
                Failure(
                    outcome=Outcome.EXPIRED,
                    started=fact.started,
                    message="no answer by complete_by" if fact.started else "no agent started it by complete_by",
                ),
            )
            for fact in facts
        ]
        settled: set[int] = set()
        tally = _settle(expired, settled)
        steps = [StepPosition(fact.workflow, fact.version, fact.direction, fact.position).label for fact in facts]
        if steps:
            failpoints.hit("supervisor.before_commit", steps)
        return tally, steps, {row[0] for row in overdue} - settled

    tally, steps, unsettled = db.transact(work)
    left |= unsettled
    if steps:
        failpoints.hit("supervisor.after_commit", steps)
    return tally


def _with_earlier(locked: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The steps whose earlier steps could be locked too, because a decision may change the whole run. The others are left out."""
    positions = {run_id: position for run_id, direction, position, *_ in locked if direction == Direction.DO and position > 0}
    if not positions:
        return list(locked)
    rows = db.fetch(failure_sql.TAKE_EARLIER, {"runs": list(positions), "positions": list(positions.values())})
    taken = Counter(run_id for (run_id,) in rows)
    return [row for row in locked if taken[row[0]] == positions.get(row[0], 0)]


def recall(limit: int) -> None:
    """End the deadlines of attempts that began in the future: the database's clock was ahead and has been corrected."""
    db.run(failure_sql.RECALL, {"slack": CLOCK_SLACK.total_seconds(), "limit": limit})


def forgotten(place: StepPosition, runs: Sequence[int], ttl: timedelta) -> set[int]:
    """The runs whose step has an unknown effect under a key that the service no longer remembers."""
    facts = {"runs": list(runs), "position": place.position, "direction": place.direction, "ttl": ttl.total_seconds()}
    return {row[0] for row in db.run(failure_sql.FORGOTTEN_KEYS, facts)}


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


def _decide(fact: Facts, failure: Failure) -> Decision:
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


class _Row(NamedTuple):
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


# SETTLE's arrays, in the order of _Row's fields.
_COLUMNS = (
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
)


def _settle(items: Sequence[tuple[Facts, Failure]], settled: set[int]) -> Tally:
    """Settle a batch. If that fails, settle one by one, so that only the faulty step stays as it is. Adds the runs to `settled`."""
    try:
        with transaction.atomic():
            tally = _settle_all(items)
    except Exception as error:
        if db.passes(error):
            raise
        log.exception("could not settle %d failed attempts", len(items))
        tally = Tally()
        if len(items) > 1:
            for item in items:
                tally.add(_settle([item], settled))
        return tally
    settled |= {fact.run_id for fact, _ in items}
    return tally


def _settle_all(items: Sequence[tuple[Facts, Failure]]) -> Tally:
    """Execute the decisions about locked, failed attempts; inside the caller's transaction."""
    tally, rows = Tally(), []
    compensate: dict[int, str] = {}
    sleepers: list[sleeping.Sleeper] = []
    for fact, failure in items:
        decision = _decide(fact, failure)
        if failure.awaits is not None and isinstance(decision, Retry):
            sleepers.append(sleeping.Sleeper(fact.run_id, fact.direction, fact.position, failure.awaits))
        rows.append(_row(fact, failure, decision, tally))
        if isinstance(decision, Compensate):
            compensate[fact.run_id] = decision.reason
    if not rows:
        return tally
    settled = db.fetch(
        failure_sql.SETTLE,
        {
            **dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)),
            "pickup": conf.get().pickup_within.total_seconds(),
            "me": me(),
        },
    )
    run_verbs.after_settling(
        errors=[row[0] for row in settled if row[3] == ProcessState.ERROR and row[0] not in compensate],
        skipped=[row[0] for row in settled if row[3] == ProcessState.SKIPPED],
        abandoned=[row[0] for row in settled if row[3] == ProcessState.CANCELLED],
        compensate=compensate,
        actor=me(),
    )
    if sleepers:  # last, because a sender may have to wait until this transaction ends
        sleeping.fall_asleep(sleepers)
    return tally


def _row(fact: Facts, failure: Failure, decision: Decision, tally: Tally) -> _Row:
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
    return _Row(
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
    )

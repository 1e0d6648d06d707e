"""FAIL settles attempts that failed. SWEEP settles attempts whose claim expired.

Both read the facts under the step's lock, let `retry.decide` decide, and write all decisions in one statement that
checks attempt and state again. The reporting worker and the supervisor use the same code; neither decides by itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction

from supervision import conf
from supervision.postgres import db
from supervision.recovery import attribution, held_time
from supervision.recovery.decisions import (
    COLUMNS,
    Facts,
    Tally,
    as_row,
    decided,
)
from supervision.retry import Compensate, Failure, Outcome, Retry
from supervision.runtime import failpoints
from supervision.runtime.identity import me
from supervision.states import Claim, Direction, ProcessState, RunState
from supervision.store import failure_sql, run_verbs, sleeping
from supervision.store.step_verbs import addressed, lock_earlier, record_strays
from supervision.telemetry import spans
from supervision.workflow import StepPosition, known_labels

CLOCK_SLACK = timedelta(minutes=1)  # a clock that was ahead by less is not corrected for: it costs no more than this delay

log = logging.getLogger(__name__)


def _facts(locked: Sequence[tuple[Any, ...]]) -> list[Facts]:
    """The facts for decisions about these locked steps. Their runs are read after the lock."""
    if not locked:
        return []
    runs = {run_id: facts for run_id, *facts in db.fetch(failure_sql.RUN_FACTS, {"runs": [row[0] for row in locked]})}
    # A step whose run was deleted by hand is left out; the audit reports it.
    facts = [Facts(*row, *runs[row[0]]) for row in locked if row[0] in runs]
    # A step that has waited: its row tells when it woke, until it is put off again.
    looked_at = [fact.run_id for fact in facts if (fact.run_overdue or fact.waited) and fact.run_direction == Direction.DO]
    over = {look.run_id: look.over for look in held_time.extend(looked_at)}
    return [fact._replace(run_overdue=over.get(fact.run_id, fact.run_overdue)) for fact in facts]


def fail(place: StepPosition, failed: Sequence[tuple[Claim, Failure]]) -> Tally:
    """FAIL: settle attempts that failed within their deadline, each as its policy says.

    Claims that no longer stand change nothing and are recorded as stray replies.
    """
    failed = attribution.tell(place, failed)
    by_run = {claim.run_id: failure for claim, failure in failed}
    claims = [claim for claim, _ in failed]
    params = addressed(place, claims)

    def work() -> tuple[Tally, set[int]]:
        locks: list[db.Statement] = []
        if not place.is_known or place.definition.shape is not None:
            locks = [(failure_sql.LOCK_BRANCHED, {"runs": params["runs"]})]
        elif place.direction == Direction.DO:  # a failed undo step never leads to changes of other steps of its run
            locks = lock_earlier(place, claims)
        *_, locked = db.fetch_together(*locks, (failure_sql.HOLD_FAILED, params))
        facts = _facts(locked)
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
    recovered: list[Facts] = []

    def work() -> tuple[Tally, list[str], set[int]]:
        overdue = db.fetch(failure_sql.HOLD_OVERDUE, {"limit": limit, "passed_over": sorted(left), "known": known})
        settled: set[int] = set()
        tally, steps = Tally(), list[str]()
        recovered.clear()
        for rows in _each_run_once(_with_earlier(_whole(overdue))):
            facts = _facts(rows)
            tally.add(_settle([(fact, _expired(fact)) for fact in facts], settled))
            recovered.extend(facts)
            steps += [StepPosition(fact.workflow, fact.version, fact.direction, fact.position).label for fact in facts]
        if steps:
            failpoints.hit("supervisor.before_commit", steps)
        return tally, steps, {row[0] for row in overdue} - settled

    tally, steps, unsettled = db.transact(work)
    left |= unsettled
    if steps and spans.on:
        _tell(recovered)
    if steps:
        failpoints.hit("supervisor.after_commit", steps)
    return tally


def _tell(recovered: Sequence[Facts]) -> None:
    """Tell of these recoveries in the traces of their orders."""
    keys: dict[int, str] = dict(
        db.run("SELECT id, key FROM supervision_run WHERE id = ANY(%(runs)s)", {"runs": [fact.run_id for fact in recovered]})
    )
    for fact in recovered:
        facts = {"sas.attempt": fact.attempt, "sas.direction": fact.direction, "sas.position": fact.position, "sas.started": fact.started}
        spans.active.told(keys[fact.run_id], "recover expired attempt", facts)


def _expired(fact: Facts) -> Failure:
    message = "no answer by complete_by" if fact.started else "no agent started it by complete_by"
    return Failure(outcome=Outcome.EXPIRED, started=fact.started, message=message)


def _whole(locked: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The steps whose whole run could be locked, where its plan branches. The others are left out."""
    if not locked:
        return []
    taken = dict(db.fetch(failure_sql.TAKE_BRANCHED, {"runs": [row[0] for row in locked]}))  # type: ignore[arg-type]
    return [row for row in locked if taken.get(row[0], True)]


def _each_run_once(locked: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """These steps in batches. What is decided about a step of a run is known to the decision about the run's next step."""
    rest = list(locked)
    while rest:
        batch = {row[0]: row for row in reversed(rest)}
        yield [row for row in rest if batch[row[0]] is row]
        rest = [row for row in rest if batch[row[0]] is not row]


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
        decision = decided(fact, failure)
        if failure.awaits is not None and isinstance(decision, Retry):
            sleepers.append(sleeping.Sleeper(fact.run_id, fact.direction, fact.position, failure.awaits))
        rows.append(as_row(fact, failure, decision, tally))
        if isinstance(decision, Compensate):
            compensate[fact.run_id] = decision.reason
    if not rows:
        return tally
    settled = db.fetch(
        failure_sql.SETTLE,
        {
            **dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)),
            "pickup": conf.get().pickup_within.total_seconds(),
            "me": me(),
        },
    )
    run_verbs.after_settling(
        errors=[row[0] for row in settled if row[3] == ProcessState.ERROR and row[0] not in compensate and row[4]],
        skipped=[row[0] for row in settled if row[3] == ProcessState.SKIPPED],
        abandoned=[row[0] for row in settled if row[3] == ProcessState.CANCELLED],
        compensate=compensate,
        actor=me(),
    )
    if sleepers:  # last, because a sender may have to wait until this transaction ends
        sleeping.fall_asleep(sleepers)
    stopped = {row.run_id for row in rows if row.stops} | {fact.run_id for fact, _ in items if fact.run_state == RunState.ERROR}
    if held := sorted({row[0] for row in settled if row[5] and row[0] in stopped and row[0] not in compensate}):
        run_verbs.hold_back(held)
    return tally

"""Takes a cohort through one agent, and on to the next.

1. START the claims in one statement. A claim that it does not return is stale, cancelled or a duplicate: it is dropped.
2. Call the agent for each order concurrently, outside any transaction. A transactional agent instead works for the whole
   cohort inside the transaction that records its outcome.
3. FINISH the calls that succeeded and FAIL the others, in batches, as they complete. A slow call never delays the others.
4. If this worker also serves the next agent's queue, FINISH has already started the next steps, and the cohort goes on
   here. Otherwise its claims are the argument of the next task of the chain.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from django.db import InterfaceError, OperationalError

from supervision import conf
from supervision.agent import Agent, StepRequest
from supervision.dispatch import scheduler
from supervision.errors import AgentFailure, TransientFailure
from supervision.execution import first_operations, handback, inputs, notes, observed
from supervision.execution.agents_process import AgentsProcess, Answer
from supervision.execution.call_pool import Gathering
from supervision.governance import admission, resources
from supervision.governance.admission import CallPermit
from supervision.ledger import effect_rows
from supervision.plans import personal
from supervision.postgres import db
from supervision.recovery import attribution, decisions, failures
from supervision.retry import Failure, Outcome
from supervision.runtime import failpoints
from supervision.states import Claim, Direction
from supervision.store import step_verbs
from supervision.store.records import Done, Handover, Started, UnfitResult, checked, together
from supervision.store.step_verbs import Successor
from supervision.wakeup import hints
from supervision.workflow import StepPosition

log = logging.getLogger(__name__)

NO_PERMIT = CallPermit()  # work in this database
PATIENCE_SECONDS = 0.25  # how long a cohort's thread waits for the first answer before it is free for other cohorts


# ------------------------------------------------------------------------------------------------ the chain


def run(place: StepPosition, claims: Sequence[Claim]) -> tuple[StepPosition, list[Claim]] | None:
    """Perform one link of a chain. Returns the next place and its claims, or None when nothing is left to do."""
    process.cohorts.append(place)
    try:
        rest = list(claims)
        # Start only as many calls of a slow agent as can begin at once. The other claims wait unstarted: their time to complete
        # has not begun, and if they wait too long, that counts as a lost dispatch and not as a failure.
        while _has_to_share(place) and len(rest) > (room := process.pool.wait_for_room()):
            part, rest = rest[:room], rest[room:]
            _send_on(_walk(place, _begin(place, part)))
        return _walk(place, _begin(place, rest))
    finally:
        process.idle_since = time.monotonic()
        process.cohorts.pop()


def go_on(place: StepPosition, started: list[Started]) -> None:
    """Perform steps that have already started, and continue their chain."""
    process.cohorts.append(place)
    try:
        _send_on(_walk(place, started))
    finally:
        process.idle_since = time.monotonic()
        process.cohorts.pop()


def _has_to_share(place: StepPosition) -> bool:
    """Whether a cohort's calls have to wait for this process's threads. If the service takes no calls, none has to wait."""
    service = place.agent.resource
    return service is not None and not _quick(place.agent) and not resources.look().shut(service)


def _begin(place: StepPosition, claims: Sequence[Claim]) -> list[Started]:
    """Admit these calls and START them. Call it only when they can be made, because it takes the slots' leases.

    A claim that START does not return is no longer ours: no call is made for it.
    """
    service = place.agent.resource
    if service is not None and not resources.look().free(service):
        answer = admission.admit(place, claims)
        if answer.refused:
            failures.fail(place, answer.refused)
            hints.send(hints.SCHEDULE)  # other orders may take the places that these were claimed for
        claims = answer.admitted
    started = step_verbs.start(place, claims)
    if len(started) < len(claims):
        ours = {item.claim for item in started}
        missing = [claim for claim in claims if claim not in ours]
        admission.over(place, missing)
        handback.mistaken(place, missing)
    return started


def _walk(place: StepPosition, started: list[Started]) -> tuple[StepPosition, list[Claim]] | None:
    while started:
        if failpoints.armed:
            failpoints.hit("agent.after_start", [place.label])
        if not (started := _needed(place, started)):
            return None
        go_on = _serves_next(place, len(started))
        perform = _perform_in_transaction if place.agent.transactional else _perform
        handed = perform(place, started, go_on=go_on)
        if not go_on:
            return (place.following, handed.claims) if handed.claims else None
        place, started = place.following, handed.started
    return None


def _needed(place: StepPosition, started: list[Started]) -> list[Started]:
    """The steps that their condition does not leave out."""
    if place.step.when is None or not (ended := inputs.not_needed(place, started)):
        return started
    _report_failures(place, ended)
    left_out = [claim for claim, _ in ended]
    admission.over(place, left_out)
    return [item for item in started if item.claim not in left_out]


def _quick(agent: Agent) -> bool:
    return agent.transactional or process.pool.is_quick(agent.name)


def _successor(place: StepPosition, *, go_on: bool) -> Successor:
    """What FINISH does with the next steps. The scheduler claims those whose resource has limits, or takes no calls now."""
    if place.direction == Direction.UNDO or place.is_last:
        return Successor.CLAIMED
    service = place.following.agent.resource
    if service is not None and ((seen := resources.look()).governed(service) or seen.shut(service)):
        return Successor.DUE
    return Successor.STARTED if go_on else Successor.CLAIMED


def _serves_next(place: StepPosition, cohort: int) -> bool:
    """Whether this process performs the next step of this many orders itself."""
    return place.direction == Direction.DO and not place.is_last and performs(place.following, cohort)


def performs(place: StepPosition, cohort: int) -> bool:
    """Whether this process performs this many orders at this place itself: it serves the queue and can begin them all."""
    agent = place.agent
    if agent.name not in process.agents or not (agent.resource is None or resources.look().free(agent.resource)):
        return False
    return cohort <= process.pool.size or _quick(agent)


def _send_on(onward: tuple[StepPosition, list[Claim]] | None) -> None:
    if onward is not None:
        scheduler.dispatch(*onward)


def _perform(place: StepPosition, started: Sequence[Started], *, go_on: bool) -> Handover:
    agent = place.agent
    started = _remembered(agent, place, started)
    if not started:
        return Handover([], [], [])
    ask, steps, requests = _asker(place, _given(place, started), checkpoints=True), [place.label], dict[int, StepRequest]()
    if first_operations.needed(agent, place):
        noted, lost = first_operations.note(agent, place, started, ask)
        admission.over(place, [item.claim for item in lost])
        started = [item for item, _ in noted]
        requests = {item.run_id: request for item, request in noted}
    gathering, handed_over = Gathering(len(started), process.late.put), time.monotonic()
    observe = observed.calls(place, handed_over)

    def call(item: Started) -> None:
        request = requests.get(item.run_id) or ask(item)
        process.under_way[thread := threading.get_ident()] = request
        try:
            gathering.report(observe(item, lambda: _call(agent, place, item, request, steps, handed_over)))
        finally:
            del process.under_way[thread]

    todo = process.pool.run(call, started, agent.name)
    answers = gathering.take(patience=PATIENCE_SECONDS, linger=conf.get().linger_seconds)
    if todo and process.pool.is_quick(agent.name):
        # An agent that is usually quick is stuck on one call: more threads make the other calls.
        process.pool.help(call, todo, agent.name, len(todo))
    return _report(place, answers, go_on=go_on)


def _remembered(agent: Agent, place: StepPosition, started: Sequence[Started]) -> Sequence[Started]:
    """The steps that may be called. If a service may have forgotten the key of an unknown effect, an operator looks first."""
    # A step that has handed its work over is called to hear the end of it. Its agent repeats nothing without looking.
    doubtful = [item.run_id for item in started if item.awaits is None]
    forgotten = failures.forgotten(place, doubtful, agent.key_ttl) if agent.key_ttl else set()
    if not forgotten:
        return started
    why = f"reconcile first: {agent.name} may have forgotten this key, and whether the step was done is not known"
    failure = Failure(outcome=Outcome.PERMANENT, started=False, message=why, code="reconcile_first", reconcile=True)
    held_back = [item.claim for item in started if item.run_id in forgotten]
    _report_failures(place, [(claim, failure) for claim in held_back])
    admission.over(place, held_back)
    return [item for item in started if item.run_id not in forgotten]


def _report(place: StepPosition, answers: Sequence[Answer], *, go_on: bool = False) -> Handover:
    try:
        return _record(place, answers, go_on=go_on)
    finally:
        admission.over(place, [answer.started.claim for answer in answers])


def _record(place: StepPosition, answers: Sequence[Answer], *, go_on: bool) -> Handover:
    # Written before the attempts end: if this process dies, it must not lose what is known about external effects.
    if settled := [effect_rows.Settled(a.started.run_id, place.position, one) for a in answers for one in a.settled]:
        effect_rows.settle(settled)
    observed.answered(place, answers)
    done: list[Done] = [(a.started, a.result) for a in answers if a.result is not None]
    failed = [(a.started.claim, a.failure) for a in answers if a.failure is not None]
    if failed:
        _report_failures(place, failed)
    attribution.answered(place, [(answer.started.claim, answer.failure, answer.ended) for answer in answers])
    if not done:
        return Handover([], [], [])
    handed = _finish(place, done, go_on=go_on)
    if failpoints.armed:
        failpoints.hit("agent.after_finish", [place.label])
    if handed.wake_scheduler:
        hints.send(hints.SCHEDULE)
    return handed


def _finish(place: StepPosition, done: Sequence[Done], *, go_on: bool) -> Handover:
    """FINISH these together. If a result cannot be stored or a hook fails, FINISH one by one, so that only the faulty one fails."""
    try:
        handed = step_verbs.finish_at(place, _successor(place, go_on=go_on))(done)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        why = personal.words_of(place.step, error)
        log.exception("could not record %d answers of %s: %s", len(done), place, why, exc_info=not place.step.personal)
        if len(done) > 1:
            return together([_finish(place, [item], go_on=go_on) for item in done])
        _report_failures(place, [(done[0][0].claim, decisions.unrecorded(place, error, why))])
        return Handover([], [], [])
    observed.done(place, len(done) - len(handed.stale))
    return handed


def _report_failures(place: StepPosition, failed: Sequence[tuple[Claim, Failure]]) -> None:
    tally = failures.fail(place, failed)
    observed.failed(place, failed)
    if tally.compensating or tally.skipped or any(failure.awaits for _, failure in failed):
        hints.send(hints.SCHEDULE)
    if tally.errors or tally.compensating or tally.skipped or tally.waiting:
        hints.send(hints.DELIVER)


# -------------------------------------------------------------------------------------------------- the call


Ask = Callable[[Started], StepRequest]


def _given(place: StepPosition, started: Sequence[Started]) -> inputs.Inputs:
    """The results and signals that the calls get, if the step reads results or anything waits."""
    if place.step.reads or place.step.awaited or any(item.awaits for item in started):
        return inputs.load(place, started)
    return inputs.NO_INPUTS


def _asker(place: StepPosition, given: inputs.Inputs, *, checkpoints: bool) -> Ask:
    """A function that builds the agent's request for a step. Values that are the same for the cohort are looked up once."""
    step, permit_of = place.step, admission.permits(place) if place.agent.resource is not None else None
    common = {"step": step.name, "definition": step}

    def ask(started: Started) -> StepRequest:
        (run_id, attempt), own, saved = started.claim, started.idempotency_key, started.checkpoint
        permit = permit_of(started.claim) if permit_of is not None else NO_PERMIT
        # A frozen dataclass sets field by field: 2.8 us instead of 0.3. Fields that are not here have their defaults.
        request = object.__new__(StepRequest)
        facts = request.__dict__
        facts |= common | {
            "run_id": run_id,
            "run_key": started.key,
            "payload": started.payload,
            "idempotency_key": own,
            "perform_key": started.perform_key or own,
            "attempt": attempt,
            "generation": started.generation,
            "deadline": min(started.deadline, permit.until),
            "checkpoint_data": {**before, **saved} if (before := started.performed_checkpoint) or saved else {},
            "performed": started.performed,
            "results": given.results.get(run_id, inputs.NO_RESULTS) if given.results else inputs.NO_RESULTS,
            "signal": given.signals.get(run_id) if given.signals else None,
            "wait_left": started.wait_left,
            "resource": permit.resource,
            "settings": permit.settings,
        }
        facts["save_checkpoint"] = (process.checkpointer if checkpoints else inputs.checkpointer)(place, started)
        if checkpoints:
            facts["book"] = process.book(place, started)
        if checkpoints and step.longest is not None:
            facts["extend"] = process.extender(place, started)
        if permit.paced:
            facts["reserve"] = process.pacer(permit)
        return request

    return ask


def _call(agent: Agent, place: StepPosition, started: Started, request: StepRequest, steps: list[str], handed_over: float) -> Answer:
    undo, began = place.direction == Direction.UNDO, time.monotonic()
    if request.deadline <= began:
        late = TransientFailure("its time was over before an agent was free", decisions.NO_TIME)
        return Answer(place, started, None, decisions.as_failure(late), notes.left(request, late), handed_over, began)
    try:
        if failpoints.armed:
            failpoints.hit("agent.before_call", steps)
        result = agent.compensate(request) if undo else agent.perform(request)
        if db.end_open_transactions():
            return Answer(place, started, None, decisions.left_open(place), notes.left(request), handed_over, began, time.monotonic())
        if failpoints.armed:
            failpoints.hit("undo.after_effect" if undo else "agent.after_effect", steps)
        fit = result if isinstance(result, dict) else checked(result)
        return Answer(place, started, fit, None, notes.left(request), handed_over, began, time.monotonic())
    except UnfitResult as error:
        return Answer(place, started, None, decisions.unfit(place, error), notes.left(request), handed_over, began, time.monotonic())
    except AgentFailure as error:
        db.end_open_transactions()  # before this thread's next call of the same cohort
        db.drop_lost_connections()
        failure = inputs.failure_of(place, started, request, error)
        return Answer(place, started, None, failure, notes.left(request, error), handed_over, began, time.monotonic())
    except BaseException as error:  # the thread survives any error of an agent, and the outcome is reported
        db.end_open_transactions()
        db.drop_lost_connections()
        log.exception("agent %s raised an error of its own at %s", agent.name, request.run_key)
        return Answer(place, started, None, decisions.as_failure(error), notes.left(request, error), handed_over, began)


def _perform_in_transaction(place: StepPosition, started: Sequence[Started], *, go_on: bool) -> Handover:
    """Commit the agent's writes and FINISH together: the effect happens exactly once, or not at all if the claim is not ours."""
    agent, undo, successor = place.agent, place.direction == Direction.UNDO, _successor(place, go_on=go_on)
    finish = step_verbs.finish_at(place, successor)
    asked: list[int] = []

    def work() -> tuple[Handover, list[tuple[Claim, Failure]]]:
        held = step_verbs.hold(place, [item.claim for item in started])
        asked[:] = held
        ours = [item for item in started if item.claim.run_id in held]
        requests = list(map(_asker(place, _given(place, ours), checkpoints=False), ours))
        if failpoints.armed:
            failpoints.hit("agent.before_call", [place.label])
        with db.blocks_of_others():
            results = (agent.compensate_many if undo else agent.perform_many)(requests) if requests else []
        if failpoints.armed:
            failpoints.hit("undo.after_effect" if undo else "agent.after_effect", [place.label])
        done: list[Done] = []
        failed: list[tuple[Claim, Failure]] = []
        for item, request, result in zip(ours, requests, results, strict=True):
            if isinstance(result, AgentFailure):
                failed.append((item.claim, inputs.failure_of(place, item, request, result)))
            else:
                done.append((item, result if isinstance(result, dict) else checked(result)))
        if failed:  # first, because it may lock all steps of its runs, and `finish` locks runs
            failures.fail(place, failed)
        return finish(done) if done else Handover([], [], []), failed

    def after_loss() -> tuple[Handover, list[tuple[Claim, Failure]]]:
        handed, failed = work()
        before = step_verbs.finished_before(place, successor, [(item, {}) for item in started if item.run_id not in asked])
        return together([before, handed]), failed

    began = time.monotonic()
    try:
        handed, failed = db.transact(work, after_loss=after_loss)
    except Exception as error:
        log.exception("agent %s failed for a cohort of %d", agent.name, len(started))
        if len(started) > 1:  # one by one, so that only the faulty one fails
            return together([_perform_in_transaction(place, [item], go_on=go_on) for item in started])
        _report_failures(place, [(item.claim, decisions.rolled_back(place, error)) for item in started])
        return Handover([], [], [])
    ours = [item for item in started if item.claim.run_id in asked]
    observed.committed(place, ours, failed, handed.stale, time.monotonic() - began)
    if failpoints.armed:
        failpoints.hit("agent.after_finish", [place.label])
    if failed or handed.wake_scheduler:
        hints.send(hints.SCHEDULE)
        hints.send(hints.DELIVER)
    return handed


def _report_late(place: StepPosition, answers: Sequence[Answer]) -> None:
    """Record answers that came after their cohort moved on. Their orders continue in a chain of their own."""
    handed = _report(place, answers)
    if handed.claims:
        scheduler.dispatch(place.following, handed.claims)


process = AgentsProcess(_report_late)

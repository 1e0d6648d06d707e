"""A test kit for applications: the whole engine in one thread. Tests move time instead of sleeping.

Only tests import this. `run_until_idle` acts as scheduler and agents. `expire` and `make_due` move deadlines, which lets
time pass on the database's clock.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from supervision.dispatch import scheduler
from supervision.execution import runner
from supervision.intake import submission
from supervision.models import Run, StepState
from supervision.postgres import db
from supervision.states import Claim
from supervision.wakeup import hints
from supervision.workflow import StepPosition

MOST_SECONDS = 10.0


@contextmanager
def quiet() -> Iterator[None]:
    """No hints to any broker while this lasts."""
    before, hints.enabled = hints.enabled, False
    try:
        yield
    finally:
        hints.enabled = before


def submit(workflow: str, payload: Mapping[str, Any], **fields: Any) -> str:
    """Accept one submission and return its key."""
    new = _new(workflow, payload, **fields)
    submission.accept([new])
    return new.public_id


def submit_many(workflow: str, payloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Accept several submissions in one commit and return their keys."""
    return [accepted.public_id for accepted in submission.accept([_new(workflow, payload) for payload in payloads])]


def _new(workflow: str, payload: Mapping[str, Any], **fields: Any) -> submission.NewSubmission:
    fields = {"public_id": submission.new_public_id(), "session_key": payload.get("session_key"), **fields}
    return submission.NewSubmission(payload=json.dumps(payload), workflow=workflow, **fields)


def schedule() -> list[tuple[StepPosition, list[Claim]]]:
    """One pass of the scheduler; returns what it would have dispatched."""
    sent: list[tuple[StepPosition, list[Claim]]] = []
    scheduler.schedule_once(lambda place, claims: sent.append((place, list(claims))))
    return sent


def perform(place: StepPosition, claims: Sequence[Claim]) -> None:
    """Carry a cohort through its chain, link by link, as the agents' workers would.

    What a worker would send as a chain of its own, as for an answer that comes late, is performed here as well. Calls that have
    not ended after MOST_SECONDS are left alone.
    """
    chains = deque([(place, list(claims))])
    send, scheduler.dispatch = scheduler.dispatch, lambda place, claims: chains.append((place, list(claims)))
    try:
        while chains:
            if (onward := runner.run(*chains.popleft())) is not None:
                chains.append(onward)
            elif not chains:
                runner.process.finish_up(MOST_SECONDS)
    finally:
        scheduler.dispatch = send


def run_until_idle(rounds: int = 100) -> None:
    """Schedule and perform until nothing is due. Work that waits for a later time is left alone."""
    for _ in range(rounds):
        sent = schedule()
        if not sent:
            return
        for place, claims in sent:
            perform(place, claims)
    raise AssertionError(f"still busy after {rounds} rounds")


def expire(*keys: str) -> int:
    """Let the deadlines of these runs' running steps pass (of all runs', without keys); returns how many."""
    rows = db.fetch(
        "UPDATE supervision_stepstate s SET complete_by = now() - interval '1 ms' FROM supervision_run r"
        " WHERE r.id = s.run_id AND s.process_state = 'Processing' AND (%(all)s OR r.key = ANY(%(keys)s))"
        " RETURNING s.run_id",
        {"all": not keys, "keys": list(keys)},
    )
    return len(rows)


def make_due(*keys: str) -> int:
    """Let the waits of these runs' Pending steps pass (of all runs', without keys); returns how many."""
    rows = db.fetch(
        "UPDATE supervision_stepstate s SET not_before = now() FROM supervision_run r"
        " WHERE r.id = s.run_id AND s.process_state = 'Pending' AND s.not_before > now()"
        " AND (%(all)s OR r.key = ANY(%(keys)s)) RETURNING s.run_id",
        {"all": not keys, "keys": list(keys)},
    )
    return len(rows)


def step(key: str, name: str, direction: str = "do") -> StepState:
    """A run's step in its present state."""
    return StepState.objects.get(run__key=key, name=name, direction=direction)


def run_of(key: str) -> Run:
    """A run in its present state."""
    return Run.objects.get(key=key)

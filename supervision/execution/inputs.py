"""The results of earlier steps and the signals that calls get, the steps that need no call, and the waits that cannot end.

Each is one statement for the cohort, and only for steps whose definition asks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from supervision.agent import JSON, StepRequest
from supervision.errors import AgentFailure, AwaitChildren, AwaitSignal
from supervision.execution import notes
from supervision.postgres import db
from supervision.recovery import decisions
from supervision.retry import Failure, Outcome
from supervision.states import Claim, Direction
from supervision.store import step_verbs
from supervision.store.records import Started
from supervision.store.runs import attempts
from supervision.workflow import Facts, StepPosition

DECIDED = "_needed"  # in a step's checkpoint: the digest of what its condition was asked about

_RESULTS = """
SELECT s.run_id, s.name, s.result FROM supervision_stepstate s
 WHERE s.run_id = ANY (%(runs)s::bigint[]) AND s.direction = 'do' AND s.position = ANY (%(positions)s::smallint[])
   AND s.process_state || '' = 'Processed'
"""

# The oldest signal that no step has taken, or that this step took in an earlier attempt of the same wait. Only the holder of the
# claim takes one. A wait begins after the attempt that began it, so a later wait does not get an earlier one's signal.
_TAKE = """
WITH c AS MATERIALIZED (
    SELECT s.run_id, s.attempt, g.id
      FROM unnest(%(runs)s::bigint[], %(attempts)s::int[], %(keys)s::text[], %(names)s::text[]) v(run_id, attempt, key, name)
      JOIN supervision_stepstate s
        ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
       AND s.process_state || '' = 'Processing' AND s.complete_by > now()
      CROSS JOIN LATERAL (
           SELECT g.id FROM supervision_signal g
            WHERE g.run_key = v.key AND g.name = v.name
              AND (g.taken_by IS NULL OR (g.taken_by = %(step)s AND g.taken_attempt > s.awaits_attempt))
            ORDER BY g.taken_by IS NULL, g.id LIMIT 1) g
     ORDER BY s.run_id FOR UPDATE OF s)
UPDATE supervision_signal g
   SET taken_by = %(step)s, taken_at = coalesce(g.taken_at, now()), taken_attempt = coalesce(g.taken_attempt, c.attempt)
  FROM c WHERE g.id = c.id AND coalesce(g.taken_by, %(step)s) = %(step)s
RETURNING c.run_id, g.payload
"""


class Inputs(NamedTuple):
    """By run: the results that the step reads, by step; and the payload of the signal that it has waited for."""

    results: Mapping[int, Mapping[str, JSON]] = {}
    signals: Mapping[int, JSON] = {}


NO_INPUTS = Inputs()


def load(place: StepPosition, started: Sequence[Started]) -> Inputs:
    """The inputs of these steps. Signals are taken: no other step gets them, and this step gets them again in every attempt."""
    step = place.step
    waiting = [item for item in started if step.awaited or item.awaits]
    return Inputs(_results(place, started) if step.reads else {}, _take(place, waiting) if waiting else {})


class Results(dict[str, JSON]):
    """The results that a step reads, by step."""

    def __missing__(self, name: str) -> JSON:
        raise KeyError(f"no result of {name!r}: the step has to name it in `reads`, and a step that was skipped has none")


NO_RESULTS: Mapping[str, JSON] = MappingProxyType(Results())


def _results(place: StepPosition, started: Sequence[Started]) -> dict[int, dict[str, JSON]]:
    positions = [position for position, step in enumerate(place.definition.steps) if step.name in place.step.reads]
    found: dict[int, dict[str, JSON]] = {}
    for run_id, name, result in db.run(_RESULTS, {"runs": [item.run_id for item in started], "positions": positions}):
        found.setdefault(run_id, Results())[name] = result
    return found


def _take(place: StepPosition, waiting: Sequence[Started]) -> dict[int, JSON]:
    facts = {
        **step_verbs.addressed(place, [item.claim for item in waiting]),
        "keys": [item.key for item in waiting],
        "names": [item.awaits or place.step.awaited for item in waiting],
        "step": place.label,
    }
    return dict(db.run(_TAKE, facts))


def save_checkpoint(place: StepPosition, started: Started, data: JSON) -> None:
    """Save a fact of a transactional agent. It commits with the agent's outcome."""
    if not attempts.save_checkpoints([(place, started.claim, data)]):
        raise notes.lost_claim()


def not_needed(place: StepPosition, started: Sequence[Started]) -> list[tuple[Claim, Failure]]:
    """Those of these steps that their condition leaves out, and those whose condition raises, each with how it ends.

    The answer "needed" is kept in the step's checkpoint, so that no later attempt asks again.
    """
    condition = place.step.when
    asked = [item for item in started if DECIDED not in item.checkpoint]
    if condition is None or place.direction == Direction.UNDO or not asked:
        return []
    results = _results(place, asked) if place.step.reads else {}
    ended: list[tuple[Claim, Failure]] = []
    decided: list[tuple[StepPosition, Claim, Mapping[str, Any]]] = []
    for item in asked:
        facts = Facts(item.payload, results.get(item.run_id, NO_RESULTS))
        digest = hashlib.sha256(json.dumps([facts.payload, dict(facts.results)], sort_keys=True).encode()).hexdigest()[:16]
        try:
            with db.blocks_of_others():
                needed = condition(facts)
        except Exception as error:
            why = f"its condition failed: {type(error).__name__}: {error}"
            ended.append((item.claim, Failure(outcome=Outcome.PERMANENT, message=why, code="condition_failed")))
            continue
        if needed:
            decided.append((place, item.claim, {DECIDED: digest}))
        else:
            why = f"not needed: its condition is not met (inputs {digest})"
            ended.append((item.claim, Failure(outcome=Outcome.NOT_NEEDED, message=why)))
    if decided:
        attempts.save_checkpoints(decided)
    return ended


def failure_of(place: StepPosition, started: Started, request: StepRequest, failure: AgentFailure) -> Failure:
    """What the agent's failure means. A wait for what cannot come stops the step, whose work may be under way: an operator looks."""
    why = ""
    if isinstance(failure, AwaitSignal) and not isinstance(failure, AwaitChildren):
        if request.wait_is_over and failure.name == started.awaits:
            why, code = "although that wait was over", "wait_was_over"
        elif failure.name and place.direction == Direction.UNDO:
            why, code = "and an undo cannot wait for a signal", "undo_waits"
        elif failure.name and failure.name not in place.definition.signals:
            why, code = f"which agent {place.agent.name} does not name in `signals`", "signal_unknown"
    if why:
        return Failure(outcome=Outcome.UNKNOWN, message=f"{failure}, {why}", code=code, reconcile=True)
    return decisions.as_failure(failure)

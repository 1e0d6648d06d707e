"""The effect ledger: one row for each external operation of a step, committed before its call and settled after it.

A row is one operation under one idempotency key. All attempts share it, because the service makes one effect of them. The
rows are the effects that may exist at services; `intended` and `unknown` both mean "maybe". Undo, retry and resubmit read
all rows instead of trusting the step's own columns, which describe the newest generation only.

Written through `execution.agents_process` (intentions, while a step runs) and `execution.runner` (settlements, with its end).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from supervision.effects import EffectOutcome, Intention, Operation, Settlement
from supervision.postgres import db
from supervision.runtime.identity import me

_OUTCOMES = {outcome.value: outcome for outcome in EffectOutcome}
Step = tuple[int, int]  # run, position
Key = tuple[int, str, int, str, str]  # run, direction, position, key, operation


class Entry(NamedTuple):
    """An intention, and the claim under which it is to be called."""

    run_id: int
    direction: str
    position: int
    attempt: int
    intention: Intention

    @property
    def row(self) -> Key:
        """The row that this intention is written to."""
        return self.run_id, self.direction, self.position, self.intention.key, self.intention.operation


class Settled(NamedTuple):
    """The outcome of an operation of this run and position."""

    run_id: int
    position: int
    settlement: Settlement


# INTEND: an operation is noted only while its claim stands, and the claim's row stays locked until the commit. So a later
# attempt finds every operation that an earlier one was allowed to call: its claim had to wait for that commit. An operation
# that an earlier attempt intended and did not settle may have been done: unknown. An operation known to be done stays done.
_INTEND = """
WITH held AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position, s.attempt, s.generation,
           v.key, v.operation, v.service, v.amount, v.currency, v.external_id
      FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[], %(keys)s::text[],
                  %(operations)s::text[], %(services)s::text[], %(amounts)s::numeric[], %(currencies)s::text[],
                  %(external_ids)s::text[])
             v(run_id, direction, position, attempt, key, operation, service, amount, currency, external_id)
      JOIN supervision_stepstate s
        ON s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position AND s.attempt = v.attempt
       AND s.process_state || '' = 'Processing' AND s.complete_by > now()
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE OF s)
INSERT INTO supervision_effect AS e (run_id, direction, position, key, operation, generation, attempt, service, amount,
                                     currency, external_id, outcome, actor)
SELECT run_id, direction, position, key, operation, generation, attempt, service, amount, currency, external_id,
       'intended', %(me)s FROM held
    ON CONFLICT (run_id, direction, position, key, operation) DO UPDATE
   SET generation = excluded.generation, attempt = excluded.attempt, actor = excluded.actor,
       amount = coalesce(excluded.amount, e.amount), currency = coalesce(excluded.currency, e.currency),
       external_id = CASE excluded.external_id WHEN '' THEN e.external_id ELSE excluded.external_id END,
       settled_at = NULL,
       outcome = CASE WHEN e.outcome IN ('intended', 'unknown') THEN 'unknown' WHEN e.outcome = 'done' THEN 'done'
                      ELSE 'intended' END
RETURNING run_id, direction, position, key, operation, outcome, external_id
"""

# SETTLE: the process that made the call knows the outcome, whether or not its claim still stands. A later outcome never
# hides an effect: done stays done until it is undone, and a late answer does not turn undone into done. If an earlier
# attempt may have done the operation, "refused" is believed only if the agent has looked (sure).
_SETTLE = """
UPDATE supervision_effect e
   SET outcome = v.outcome, settled_at = now(), actor = %(me)s,
       external_id = CASE v.external_id WHEN '' THEN e.external_id ELSE v.external_id END
  FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(keys)s::text[], %(operations)s::text[],
              %(outcomes)s::text[], %(external_ids)s::text[], %(sure)s::bool[])
         v(run_id, direction, position, key, operation, outcome, external_id, sure)
 WHERE e.run_id = v.run_id AND e.direction = v.direction AND e.position = v.position AND e.key = v.key
   AND e.operation = v.operation
   AND CASE v.outcome
            WHEN 'undone' THEN true
            WHEN 'done' THEN e.outcome <> 'undone'
            WHEN 'refused' THEN e.outcome = 'intended' OR (v.sure AND e.outcome = 'unknown')
            WHEN 'unknown' THEN e.outcome IN ('intended', 'unknown')
            ELSE false END
"""

_OF = """
SELECT e.run_id, e.position, e.operation, e.key, e.service, e.amount, e.currency, e.external_id, e.outcome, e.direction,
       e.generation, e.attempt, now() - e.intended_at
  FROM unnest(%(runs)s::bigint[], %(positions)s::smallint[]) v(run_id, position)
  JOIN supervision_effect e ON e.run_id = v.run_id AND e.position = v.position
 ORDER BY e.intended_at, e.key, e.operation
"""


# A submission that is consumed again after a restore is older than its run, and its effects may be older too.
_ORDERED_AT = """
SELECT r.id, least(r.created_at, s.created_at)
  FROM supervision_run r LEFT JOIN supervision_submission s ON s.public_id = r.key
 WHERE r.id = ANY (%(runs)s::bigint[])
"""


def ordered_at(runs: Sequence[int]) -> dict[int, datetime]:
    """When these runs' orders were accepted."""
    return dict(db.run(_ORDERED_AT, {"runs": list(runs)}))


def intend(entries: Sequence[Entry]) -> dict[Key, tuple[EffectOutcome, str]]:
    """Commit that these operations are about to be called. An operation that is missing from the result must not be called.

    Returns each row's outcome (`intended`: no earlier attempt called it) and external id.
    """
    rows = db.run(
        _INTEND,
        {
            "runs": [entry.run_id for entry in entries],
            "directions": [entry.direction for entry in entries],
            "positions": [entry.position for entry in entries],
            "attempts": [entry.attempt for entry in entries],
            "keys": [entry.intention.key for entry in entries],
            "operations": [entry.intention.operation for entry in entries],
            "services": [entry.intention.service for entry in entries],
            "amounts": [None if entry.intention.amount is None else str(entry.intention.amount) for entry in entries],
            "currencies": [entry.intention.currency for entry in entries],
            "external_ids": [entry.intention.external_id for entry in entries],
            "me": me(),
        },
    )
    return {row[:5]: (_OUTCOMES[row[5]], row[6]) for row in rows}


def settle(settled: Sequence[Settled]) -> None:
    """Write the outcomes of these operations; the last outcome of each counts."""
    last = {(run_id, position, *told[:3]): told for run_id, position, told in settled}
    keys = sorted(last)
    told = [last[key] for key in keys]
    db.run(
        _SETTLE,
        {
            "runs": [key[0] for key in keys],
            "positions": [key[1] for key in keys],
            "directions": [key[2] for key in keys],
            "keys": [key[3] for key in keys],
            "operations": [key[4] for key in keys],
            "outcomes": [one.outcome.value for one in told],
            "external_ids": [one.external_id for one in told],
            "sure": [one.sure for one in told],
            "me": me(),
        },
    )


def of(steps: Sequence[Step]) -> dict[Step, list[Operation]]:
    """Every operation of these runs at these positions: all generations, both directions, the oldest first."""
    found: dict[Step, list[Operation]] = defaultdict(list)
    distinct = sorted(set(steps))
    params = {"runs": [run_id for run_id, _ in distinct], "positions": [position for _, position in distinct]}
    for run_id, position, operation, key, service, amount, currency, external_id, outcome, *rest in db.run(_OF, params):
        direction, generation, attempt, age = rest
        found[run_id, position].append(
            Operation(
                operation=operation,
                key=key,
                service=service,
                amount=amount,
                currency=currency,
                external_id=external_id,
                outcome=_OUTCOMES[outcome],
                direction=direction,
                generation=generation,
                attempt=attempt,
                age=age,
            )
        )
    return found

"""Writes the effects that reconciliation has found or made, and no step's attempt has written, into the effect ledger.

The rows name the step that the effect belongs to, with its newest generation and attempt, and the actor who decided.
"""

from __future__ import annotations

from decimal import Decimal

from supervision.postgres import db

_DONE = """
INSERT INTO supervision_effect AS e (run_id, direction, position, key, operation, generation, attempt, service, amount, currency,
                                     external_id, outcome, actor, settled_at)
SELECT s.run_id, %(direction)s, s.position, %(key)s, %(operation)s, s.generation, s.attempt, %(service)s, %(amount)s::numeric,
       %(currency)s, %(external_id)s, 'done', %(by)s, now()
  FROM supervision_stepstate s
 WHERE s.run_id = %(run)s AND s.position = %(position)s AND s.direction = 'do'
    ON CONFLICT (run_id, direction, position, key, operation) DO UPDATE
   SET outcome = 'done', external_id = excluded.external_id, amount = coalesce(excluded.amount, e.amount),
       currency = coalesce(excluded.currency, e.currency), actor = excluded.actor, settled_at = now()
RETURNING 1
"""
_UNDONE = """
UPDATE supervision_effect SET outcome = 'undone', actor = %(by)s, settled_at = now()
 WHERE run_id = %(run)s AND direction = 'do' AND service = %(service)s AND external_id = %(external_id)s AND outcome <> 'undone'
RETURNING 1
"""


def note_done(
    run_id: int,
    position: int,
    *,
    key: str,
    service: str,
    operation: str,
    external_id: str,
    by: str,
    direction: str = "do",
    amount: Decimal | None = None,
    currency: str | None = None,
) -> bool:
    """Record that this operation was done for this step. False if the run has no such step any more (it is archived).

    amount: in the currency's usual unit. A second call for the same operation updates the same row.
    """
    params = {
        "run": run_id,
        "position": position,
        "direction": direction,
        "key": key,
        "service": service,
        "operation": operation,
        "amount": None if amount is None else str(amount),
        "currency": currency,
        "external_id": external_id,
        "by": by,
    }
    return bool(db.run(_DONE, params))


def note_undone(run_id: int, *, service: str, external_id: str, by: str) -> int:
    """Record that the object with this external id no longer exists at the service. Returns how many rows changed."""
    return len(db.run(_UNDONE, {"run": run_id, "service": service, "external_id": external_id, "by": by}))

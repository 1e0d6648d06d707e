"""Our books about an order: its run, its steps and its effects, from the hot tables or the archive.

The steps and effects of an order's child runs, such as its parcels, are the order's. Each row's run is in its idempotency key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from orders.staying import LEFT
from supervision.postgres import db
from supervision.states import Direction, ProcessState, RunState

# One snapshot of run, steps and effects. An order without a run has a submission.
_BOOKS = """
SELECT r.key, r.id, r.process_state, r.payload,
       (SELECT jsonb_agg(to_jsonb(s) ORDER BY s.direction, s.run_id, s.position) FROM supervision_stepstate s
         WHERE s.run_id = ANY (f.runs)),
       (SELECT jsonb_agg(to_jsonb(e) ORDER BY e.intended_at) FROM supervision_effect e WHERE e.run_id = ANY (f.runs))
  FROM supervision_run r
 CROSS JOIN LATERAL (
       SELECT r.id || ARRAY(SELECT k.id FROM supervision_child c JOIN supervision_run k ON k.key = c.key
                             WHERE c.parent_key = r.key) AS runs) f
 WHERE r.key = ANY (%(keys)s)
UNION ALL
SELECT a.key, a.run_id, a.process_state, a.body->'run'->'payload',
       coalesce(a.body->'steps', '[]') || coalesce(f.steps, '[]'),
       coalesce(nullif(a.body->'effects', 'null'), '[]') || coalesce(f.effects, '[]')
  FROM supervision_archivedrun a
 CROSS JOIN LATERAL (
       SELECT jsonb_path_query_array(jsonb_agg(k.body), '$[*].steps[*]') AS steps,
              jsonb_path_query_array(jsonb_agg(k.body), '$[*].effects[*] ? (@ != null)') AS effects
         FROM jsonb_path_query(a.body, '$.children[*].key') c(key) JOIN supervision_archivedrun k ON k.key = c.key #>> '{}') f
 WHERE a.key = ANY (%(keys)s)
UNION ALL
SELECT u.public_id, NULL, 'Pending', NULL, NULL, NULL FROM supervision_submission u
 WHERE u.public_id = ANY (%(keys)s) AND NOT EXISTS (SELECT 1 FROM supervision_run r WHERE r.key = u.public_id)
   AND NOT EXISTS (SELECT 1 FROM supervision_archivedrun a WHERE a.key = u.public_id)
"""
# The refunds that returns of these orders made, and operators: from the hot tables or the archive, because each is a run of its own.
# A result by hand may name them. Last, the returns and refunds that have not ended: they may have paid, and not have noted it yet.
_RETURNED = """
WITH after AS (SELECT order_key, public_id, number FROM orders_return WHERE order_key = ANY (%(keys)s)
               UNION ALL SELECT order_key, public_id, number FROM orders_refund WHERE order_key = ANY (%(keys)s)
               UNION SELECT a.key, t->>'id', t->>'number' FROM supervision_archivedrun a
                 CROSS JOIN LATERAL jsonb_path_query(a.body, '$.application.*[*] ? (@.id != "")') t WHERE a.key = ANY (%(keys)s))
SELECT t.order_key, e.external_id, t.number, false FROM after t
  JOIN supervision_run r ON r.key = t.public_id JOIN supervision_effect e ON e.run_id = r.id
 WHERE e.service = 'payment' AND e.outcome || '' = 'done' AND e.external_id <> ''
UNION ALL
SELECT t.order_key, n.name #>> '{}', t.number, false FROM after t
  JOIN supervision_run r ON r.key = t.public_id
  JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'refund-part'
 CROSS JOIN LATERAL jsonb_path_query(s.result, '$.refunds[*]') n(name)
UNION ALL
SELECT t.order_key, e->>'external_id', t.number, false FROM after t
  JOIN supervision_archivedrun a ON a.key = t.public_id
 CROSS JOIN LATERAL jsonb_array_elements(coalesce(nullif(a.body->'effects', 'null'), '[]')) e
 WHERE e->>'service' = 'payment' AND e->>'outcome' = 'done'
UNION ALL
SELECT t.order_key, n.name #>> '{}', t.number, false FROM after t
  JOIN supervision_archivedrun a ON a.key = t.public_id
 CROSS JOIN LATERAL jsonb_path_query(
       a.body, '$.steps[*] ? (@.direction == "do" && @.name == "refund-part").result.refunds[*]') n(name)
UNION ALL
SELECT t.order_key, t.public_id, t.number, true FROM after t
  JOIN supervision_run r ON r.key = t.public_id AND r.finished_at IS NULL
"""


@dataclass(frozen=True, kw_only=True)
class Book:
    """One order in our books. run_id and state are None if the books do not have the order.

    returned: the refunds that its returns made, with the return's number. paying: its returns and refunds that have not ended.
    """

    key: str
    run_id: int | None = None
    state: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Mapping[str, Any]] = ()
    effects: Sequence[Mapping[str, Any]] = ()
    returned: Mapping[str, str] = field(default_factory=dict)
    paying: Collection[str] = ()

    @property
    def known(self) -> bool:
        """Whether the books have this order."""
        return self.state is not None

    @property
    def ended(self) -> bool:
        """Whether the order has reached its final state. Agents and operators still work on orders that have not ended."""
        return self.state in (RunState.PROCESSED, RunState.CANCELLED)

    @property
    def judged(self) -> bool:
        """Whether the books tell what the services ought to hold for this order."""
        return self.ended or not self.known

    @property
    def total(self) -> Decimal:
        """The amount that the customer agreed to pay."""
        return Decimal(str(self.payload.get("total") or 0))

    @property
    def currency(self) -> str:
        """The currency of the total, in capitals."""
        return str(self.payload.get("currency") or "").upper()

    def done(self, agent: str) -> list[Mapping[str, Any]]:
        """The steps of this agent that are Processed, in order. Those of a child run that was undone and replaced are not."""
        undone = {
            (run_of(step), step["position"]) for step in self.steps if step["direction"] == Direction.UNDO and run_of(step) != self.key
        }
        return [
            step
            for step in self.steps
            if step["agent"] == agent
            and step["direction"] == Direction.DO
            and step["process_state"] == ProcessState.PROCESSED
            and (run_of(step), step["position"]) not in undone
        ]

    def all_of(self, agent: str) -> list[Mapping[str, Any]]:
        """Every step of this agent, in both directions and any state."""
        return [step for step in self.steps if step["agent"] == agent]

    def left(self, *names: str) -> bool:
        """Whether an operator has cancelled the order without undo, and left what one of these steps did."""
        undos = [step for step in self.steps if step["direction"] == Direction.UNDO and step["name"] in names]
        return any((step.get("result") or {}).get(LEFT) for step in undos)

    def effects_of(self, service: str) -> list[Mapping[str, Any]]:
        """The effect ledger's rows of calls to this service."""
        return [effect for effect in self.effects if effect["service"] == service]


def run_of(step: Mapping[str, Any]) -> str:
    """The key of the run that this step belongs to."""
    return str(step["idempotency_key"]).rsplit(":", 3)[0]


def of(keys: Iterable[str]) -> dict[str, Book]:
    """Our books about these orders; an unknown order has no state."""
    found = {key: Book(key=key) for key in sorted(set(keys))}
    wanted = [key for key in found if "\0" not in key]  # not ours: no key of ours has a NUL, and PostgreSQL refuses it
    if not wanted:
        return found
    returned: dict[str, dict[str, str]] = {}
    paying: dict[str, set[str]] = {}
    for key, name, number, pays in db.run(_RETURNED, {"keys": wanted}):
        if pays:
            paying.setdefault(key, set()).add(name)
        else:
            returned.setdefault(key, {})[name] = number
    for key, run_id, state, payload, steps, effects in db.run(_BOOKS, {"keys": wanted}):
        found[key] = Book(
            key=key,
            run_id=run_id,
            state=state,
            payload=payload or {},
            steps=steps or [],
            effects=effects or [],
            returned=returned.get(key, {}),
            paying=paying.get(key, ()),
        )
    return found

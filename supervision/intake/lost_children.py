"""A child run whose submission becomes a dead letter has no run that tells its parent of its end by a trigger.

While it is being undone with its parent, it has nothing to undo: the parent goes on. Otherwise the parent waits for the operator who
decides about the letter. One that is requeued becomes a run. One that is discarded ends here: else the parent would sleep for ever.
"""

from __future__ import annotations

from supervision.models import ChildState
from supervision.postgres import db
from supervision.store import sleeping
from supervision.wakeup import hints

_OPEN = "SELECT parent_key, step FROM supervision_child WHERE key = %(key)s AND state = ANY (%(states)s)"
# The lock of every signal, as in the trigger: while it is held, the parent's step does not fall asleep.
_LOCK = "SELECT pg_advisory_xact_lock_shared(hashtextextended('supervision signal ' || %(parent)s, 0))"
_END = """
UPDATE supervision_child SET state = 'Cancelled', ended_at = now()
 WHERE key = %(key)s AND state = ANY (%(states)s) AND NOT EXISTS (SELECT FROM supervision_run r WHERE r.key = %(key)s)
RETURNING 1
"""
_SIGNAL = """
INSERT INTO supervision_signal (run_key, name, key, payload, sent_by) VALUES (%(parent)s, %(name)s, 'ended', '{}', 'child runs')
ON CONFLICT (run_key, name, key) DO UPDATE SET sent_at = now(), taken_by = NULL, taken_at = NULL, taken_attempt = NULL
"""
# The parent whose step still waits, as in the trigger.
_PARENT = """
SELECT DISTINCT r.id FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id AND s.name = %(step)s
   AND s.process_state || '' IN ('Pending', 'Processing', 'Error')
 WHERE r.key = %(parent)s
"""


def end(key: str, *states: ChildState) -> None:
    """End this child, if it is one in these states, and wake its parent's step. In the caller's transaction."""
    facts: dict[str, object] = {"key": key, "states": [state.value for state in states]}
    for parent, step in db.fetch(_OPEN, facts):
        facts |= {"parent": parent, "step": step, "name": f"child:{step}"}
        db.fetch(_LOCK, facts)
        for (run_id,) in db.fetch(_PARENT, facts) if db.fetch(_END, facts) else ():
            db.fetch(_SIGNAL, facts)
            sleeping.woken(db.fetch(*sleeping.waking([(run_id, f"child:{step}")])))
            hints.send(hints.SCHEDULE)

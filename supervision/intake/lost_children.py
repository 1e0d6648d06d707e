"""A child run that is being undone with its parent, and whose submission becomes a dead letter, has nothing to undo: its parent goes on.

A run tells its parent of its end by a trigger. A submission that is set aside has no run, and the parent's undo would sleep for ever.
"""

from __future__ import annotations

from supervision.postgres import db
from supervision.store import sleeping

_UNDONE = "SELECT parent_key, step FROM supervision_child WHERE key = %(key)s AND state = 'Undoing'"
# The lock of every signal, as in the trigger: while it is held, the parent's step does not fall asleep.
_LOCK = "SELECT pg_advisory_xact_lock_shared(hashtextextended('supervision signal ' || %(parent)s, 0))"
_END = "UPDATE supervision_child SET state = 'Cancelled', ended_at = now() WHERE key = %(key)s AND state = 'Undoing' RETURNING 1"
_SIGNAL = """
INSERT INTO supervision_signal (run_key, name, key, payload, sent_by) VALUES (%(parent)s, %(name)s, 'ended', '{}', 'child runs')
ON CONFLICT (run_key, name, key) DO UPDATE SET sent_at = now(), taken_by = NULL, taken_at = NULL, taken_attempt = NULL
"""
_PARENT = "SELECT id FROM supervision_run WHERE key = %(parent)s"


def end(key: str) -> None:
    """End this child, if it is one that is being undone, and wake its parent's step. In the caller's transaction."""
    for parent, step in db.fetch(_UNDONE, {"key": key}):
        facts = {"key": key, "parent": parent, "name": f"child:{step}"}
        db.fetch(_LOCK, facts)
        if db.fetch(_END, facts):
            db.fetch(_SIGNAL, facts)
            for (run_id,) in db.fetch(_PARENT, facts):
                db.fetch(*sleeping.waking([(run_id, facts["name"])]))

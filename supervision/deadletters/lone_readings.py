"""A redelivered message is read alone. It is blamed only for processes that died while they read it.

A commit before each reading counts it and names the process. The end of the reading takes the count back. So a count that
another process finds belongs to a reading whose process died. A process that reads the same message again, because the
database was away for a while, is alive and counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from supervision.postgres import db
from supervision.runtime import tidying
from supervision.runtime.identity import me

# A row without a reader was counted by older code, which counted more than deaths. Its count starts again.
_BEGIN = """
INSERT INTO supervision_receipt AS r (digest, reader) VALUES (%(digest)s, %(me)s)
ON CONFLICT (digest) DO UPDATE
   SET deliveries = CASE WHEN r.reader IS NULL THEN 1 ELSE r.deliveries + (r.reader <> excluded.reader)::int END,
       reader = excluded.reader, seen_at = now()
RETURNING deliveries - 1
"""
_END = "DELETE FROM supervision_receipt WHERE digest = %(digest)s AND reader = %(me)s"
# The processes counted before us died. Only our own reading is taken back.
_TAKE_BACK = """
WITH first AS (
    DELETE FROM supervision_receipt WHERE digest = %(digest)s AND reader = %(me)s AND deliveries <= 1)
UPDATE supervision_receipt SET deliveries = deliveries - 1, reader = 'a process that ended'
 WHERE digest = %(digest)s AND reader = %(me)s AND deliveries > 1
"""
_OLD = "DELETE FROM supervision_receipt WHERE seen_at < now() - interval '7 days'"


@tidying.tidier("readings of redelivered messages")
def delete_old() -> bool:
    """Remove what is left of readings whose message never came again: few rows, so all at once."""
    db.run(_OLD)
    return False


@dataclass(frozen=True)
class Reading:
    """A reading that has begun. unfinished: how many processes before this one died during theirs."""

    unfinished: int

    @property
    def reason(self) -> str:
        """Why the message becomes a dead letter."""
        return f"read alone {self.unfinished} times, and each time the process that read it ended: it may stop every reader"


@contextmanager
def alone(digest: str) -> Iterator[Reading]:
    """Read this message in the body. If the body raises, the message is not settled, but the process lives: nothing is counted.

    If the end cannot be written, the count stays under our name. Another reading by this process adds nothing to it.
    """
    [(unfinished,)] = db.run(_BEGIN, {"digest": digest, "me": me()}, patience=0.0)
    ended = _TAKE_BACK
    try:
        yield Reading(unfinished)
        ended = _END
    finally:
        with suppress(OperationalError, InterfaceError):
            db.run(ended, {"digest": digest, "me": me()}, patience=0.0)

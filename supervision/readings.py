"""A message that comes again is read alone, and blamed only for readers that died while they read it.

The commit before a reading counts it and names the process; the end of the reading takes that back. So what stands when
another process begins is a reading whose process did not live to its end. A process that reads the same message again,
because the database was away for a while, lives, and counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from supervision import db
from supervision.identity import me

# What has no reader was counted by older code, which counted more than deaths.
_BEGIN = """
INSERT INTO supervision_receipt AS r (digest, reader) VALUES (%(digest)s, %(me)s)
ON CONFLICT (digest) DO UPDATE
   SET deliveries = CASE WHEN r.reader IS NULL THEN 1 ELSE r.deliveries + (r.reader <> excluded.reader)::int END,
       reader = excluded.reader, seen_at = now()
RETURNING deliveries - 1
"""
_END = "DELETE FROM supervision_receipt WHERE digest = %(digest)s AND reader = %(me)s"
# Whoever counted before us died; only our own reading is taken back.
_TAKE_BACK = """
WITH first AS (
    DELETE FROM supervision_receipt WHERE digest = %(digest)s AND reader = %(me)s AND deliveries <= 1)
UPDATE supervision_receipt SET deliveries = deliveries - 1, reader = 'a process that ended'
 WHERE digest = %(digest)s AND reader = %(me)s AND deliveries > 1
"""


@dataclass(frozen=True)
class Reading:
    """A reading that has begun. unfinished: how many processes before this one did not live to the end of theirs."""

    unfinished: int

    @property
    def reason(self) -> str:
        """Why it is set aside."""
        return f"read alone {self.unfinished} times, and each time the process that read it ended: it may stop whoever reads it"


@contextmanager
def alone(digest: str) -> Iterator[Reading]:
    """Read this message in the body. A body that raises has not settled it, but its process lives: that counts for nothing.

    Where the end cannot be written down, the count stands under our name, and another reading of ours adds nothing to it.
    """
    [(unfinished,)] = db.run(_BEGIN, {"digest": digest, "me": me()}, patience=0.0)
    ended = _TAKE_BACK
    try:
        yield Reading(unfinished)
        ended = _END
    finally:
        with suppress(OperationalError, InterfaceError):
            db.run(ended, {"digest": digest, "me": me()}, patience=0.0)

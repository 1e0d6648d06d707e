"""Sessions: a client's orders with the same session key run one after another, in the order they were accepted.

A run whose session has an unfinished earlier one is written `blocked`: its first step has no `not_before`, so no claim
ever sees it and a long queue of them costs the others nothing. The end of the run before releases it; the supervisor
releases what a crash in between forgot. Writing and releasing take the same advisory lock, so neither can miss the other.

Keys belong to the client that sent them: nobody can stand in a stranger's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervision import db

HEAD_START_SECONDS = 600.0  # how much sooner one step of priority has its turn; waiting makes up for it

_LOCK = """
SELECT pg_advisory_xact_lock(hashtextextended(k, 20261121))
  FROM (SELECT DISTINCT k FROM unnest(%(keys)s::text[]) k ORDER BY k) k
"""

_BUSY = """
SELECT DISTINCT u.client, r.session_key
  FROM unnest(%(clients)s::text[], %(sessions)s::text[]) v(client, session_key)
  JOIN supervision_run r ON r.session_key = v.session_key AND r.finished_at IS NULL
  JOIN supervision_submission u ON u.public_id = r.key AND u.client = v.client
"""

# Accepted earlier than the last of these and still unconsumed, though not in this consumer's hands: somebody else is
# writing them, or they wait for their turn. An order of a session must not overtake them.
_EARLIER = """
SELECT min(id) FROM supervision_submission WHERE consumed_at IS NULL AND id < %(last)s AND id <> ALL (%(mine)s)
"""

_SESSIONS_OF = """
SELECT DISTINCT u.client, r.session_key FROM supervision_run r JOIN supervision_submission u ON u.public_id = r.key
 WHERE r.id = ANY (%(runs)s) AND r.session_key IS NOT NULL
"""

# The head of each session, made due if it is still blocked. Its run is unfinished, and the lock keeps others away.
_RELEASE = """
WITH head AS (
    SELECT min(r.id) AS id
      FROM unnest(%(clients)s::text[], %(sessions)s::text[]) v(client, session_key)
      JOIN supervision_run r ON r.session_key = v.session_key AND r.finished_at IS NULL
      JOIN supervision_submission u ON u.public_id = r.key AND u.client = v.client
     GROUP BY v.client, v.session_key)
UPDATE supervision_stepstate s
   SET not_before = now(), turn_at = now() - r.priority * %(head_start)s::float8 * interval '1 s'
  FROM head JOIN supervision_run r ON r.id = head.id
 WHERE s.run_id = head.id AND s.direction = 'do' AND s.position = 0 AND s.process_state || '' = 'Pending'
   AND s.not_before IS NULL
RETURNING s.run_id
"""

_WAITING_HEADS = """
SELECT DISTINCT u.client, r.session_key FROM supervision_run r JOIN supervision_submission u ON u.public_id = r.key
 WHERE r.session_key IS NOT NULL AND r.finished_at IS NULL AND r.process_state = 'Pending'
   AND NOT EXISTS (SELECT FROM supervision_run b JOIN supervision_submission c ON c.public_id = b.key AND c.client = u.client
                    WHERE b.session_key = r.session_key AND b.finished_at IS NULL AND b.id < r.id)
   AND EXISTS (SELECT FROM supervision_stepstate s WHERE s.run_id = r.id AND s.direction = 'do' AND s.position = 0
                  AND s.process_state || '' = 'Pending' AND s.not_before IS NULL)
"""


@dataclass(frozen=True)
class Member:
    """A submission on its way to become a run. session: its client's session key, or None."""

    submission: int
    client: str
    session: str | None

    @property
    def key(self) -> tuple[str, str]:
        """What its session is called here."""
        return self.client, self.session or ""


def overtaking(members: Sequence[Member]) -> set[int]:
    """Those of these taken submissions that must wait, because an earlier one is in nobody's or another's hands."""
    in_session = [member.submission for member in members if member.session is not None]
    if not in_session:
        return set()
    rows = db.fetch(_EARLIER, {"last": max(in_session), "mine": [member.submission for member in members]})
    earliest = rows[0][0]
    return set() if earliest is None else {submission for submission in in_session if submission > earliest}


def blocked(members: Sequence[Member]) -> set[int]:
    """Those of these submissions that have an unfinished earlier order in their session. Inside the writing transaction."""
    mine = sorted((member for member in members if member.session is not None), key=lambda member: member.submission)
    if not mine:
        return set()
    _lock([member.key for member in mine])
    busy = set(db.fetch(_BUSY, _arrays({member.key for member in mine})))
    waits = set()
    for member in mine:
        if member.key in busy:
            waits.add(member.submission)
        busy.add(member.key)
    return waits


def release(run_ids: Sequence[int]) -> int:
    """These runs have ended, and that is committed: the next of each session is due now. Returns how many."""
    return db.transact(lambda: _release(db.fetch(_SESSIONS_OF, {"runs": list(run_ids)})))


def release_forgotten() -> int:
    """Release every session's head that nobody released: whoever should have has died in between."""
    return db.transact(lambda: _release(db.fetch(_WAITING_HEADS)))


def _release(keys: Sequence[tuple[str, str]]) -> int:
    if not keys:
        return 0
    _lock(keys)
    return len(db.fetch(_RELEASE, {**_arrays(set(keys)), "head_start": HEAD_START_SECONDS}))


def _lock(keys: Sequence[tuple[str, str]]) -> None:
    db.fetch(_LOCK, {"keys": [f"{client}\n{session}" for client, session in keys]})


def _arrays(keys: set[tuple[str, str]]) -> dict[str, list[str]]:
    ordered = sorted(keys)
    return {"clients": [client for client, _ in ordered], "sessions": [session for _, session in ordered]}

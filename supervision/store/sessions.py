"""Sessions: a client's orders with the same session key run one after another, in the order they were accepted.

A run whose session has an unfinished earlier run is written `blocked`: its first step has no `not_before`, so no claim sees
it, and a long queue of blocked runs costs other orders nothing. The end of the earlier run releases it. If a process crashes
in between, the supervisor releases it. Writing and releasing take the same advisory lock, so neither can miss the other.

Session keys belong to the client that sent them, so that no client can block the orders of another. The child runs of one client's orders
have sessions of their own: an order may wait for a child in the session of another order, which waits for a child in its session. A
child run is in no session that a run above it has which waits for it: it would wait for that run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervision.postgres import db

HEAD_START_SECONDS = 600.0  # how much sooner an order has its turn for each level of priority; a longer wait outweighs it

_LOCK = """
SELECT pg_advisory_xact_lock(hashtextextended(k, 20261121))
  FROM (SELECT DISTINCT k FROM unnest(%(keys)s::text[]) k ORDER BY k) k
"""

_BUSY = """
SELECT v.client, v.session_key FROM unnest(%(clients)s::text[], %(sessions)s::text[]) v(client, session_key)
 WHERE (SELECT r.session_key = v.session_key AND r.session_client = v.client FROM supervision_run r
         WHERE r.session_key IS NOT NULL AND r.finished_at IS NULL
           AND (r.session_key, r.session_client, r.id) > (v.session_key, v.client, 0)
         ORDER BY r.session_key, r.session_client, r.id LIMIT 1)
"""

# The first waiting submissions of these sessions: one more of each than this consumer holds of the client, so that the result
# includes one that it does not hold. Another consumer is writing that one, or it waits for its turn. A submission whose session
# was not known when it was accepted (empty) may be in any session of its client.
_FIRST_WAITING = """
SELECT v.client, e.session_key, e.id
  FROM unnest(%(clients)s::text[], %(sessions)s::text[], %(mine)s::bigint[]) v(client, session_key, mine)
 CROSS JOIN LATERAL (
       SELECT e.client, e.session_key, e.id FROM supervision_submission e
        WHERE e.consumed_at IS NULL AND e.session_key IS NOT NULL
          AND (e.client, e.session_key, e.id) > (v.client, v.session_key, 0)
        ORDER BY e.client, e.session_key, e.id LIMIT v.mine + 1) e
 WHERE e.client = v.client AND e.session_key = v.session_key
"""

# Of these child runs, those below a run of the session that each is to have, which waits for it: for the child itself, or for one on
# the way to it. A step that does not wait for its child is Processed as soon as the child is accepted.
_HELD_ABOVE = """
WITH RECURSIVE above AS (
    SELECT v.key, v.session_key, v.client, v.key AS child
      FROM unnest(%(keys)s::text[], %(sessions)s::text[], %(clients)s::text[]) v(key, session_key, client)
    UNION ALL
    SELECT a.key, a.session_key, a.client, p.key
      FROM above a JOIN supervision_child c ON c.key = a.child JOIN supervision_run p ON p.key = c.parent_key
      JOIN supervision_stepstate s ON s.run_id = p.id AND s.direction = 'do' AND s.name = c.step
       AND s.process_state || '' IN ('Pending', 'Processing', 'Error'))
SELECT DISTINCT a.key FROM above a
  JOIN supervision_run r ON r.key = a.child AND r.session_key = a.session_key AND r.session_client = a.client
"""

# Whose sessions these child runs have: those of the client of the order at the top. Where that has none, they are its client's own.
_OF_CHILDREN = """
  FROM supervision_child c JOIN supervision_submission u ON u.public_id = c.root_key AND u.client <> ''
 WHERE c.key = ANY (%(keys)s::text[])"""
_CLIENTS_ABOVE = f"SELECT c.key, 'child runs of ' || u.client {_OF_CHILDREN}"
_NAME = f"""
UPDATE supervision_run r SET session_client = v.client
  FROM ({_CLIENTS_ABOVE}) v(key, client) WHERE r.key = v.key AND r.session_key IS NOT NULL
"""  # noqa: S608 - our own expressions

_SESSIONS_OF = """
SELECT DISTINCT session_client, session_key FROM supervision_run WHERE id = ANY (%(runs)s) AND session_key IS NOT NULL
"""

# Makes the head of each session due if it is still blocked. Its run is unfinished, and the advisory lock keeps other writers
# away. It is read as the first row after a point of the index: with another condition the planner may scan the whole history.
_RELEASE = """
WITH head AS MATERIALIZED (
    SELECT h.id, h.priority
      FROM unnest(%(clients)s::text[], %(sessions)s::text[]) v(client, session_key)
     CROSS JOIN LATERAL (
           SELECT r.session_key, r.session_client, r.id, r.priority FROM supervision_run r
            WHERE r.session_key IS NOT NULL AND r.finished_at IS NULL
              AND (r.session_key, r.session_client, r.id) > (v.session_key, v.client, 0)
            ORDER BY r.session_key, r.session_client, r.id LIMIT 1) h
     WHERE h.session_key = v.session_key AND h.session_client = v.client)
UPDATE supervision_stepstate s
   SET not_before = now(), turn_at = now() - head.priority * %(head_start)s::float8 * interval '1 s'
  FROM head
 WHERE s.run_id = head.id AND s.direction = 'do' AND coalesce(s.waits_for, s.position) = 0 AND s.process_state || '' = 'Pending'
   AND s.not_before IS NULL
RETURNING s.run_id
"""

# Walks the index from session to session, `most` of them from a point onwards. The cost depends on the number of sessions, not
# on the number of orders in each. Returns each session and whether its head is blocked.
_HEADS = """
WITH RECURSIVE head AS (
    (SELECT 1 AS n, session_key, session_client, id FROM supervision_run
      WHERE session_key IS NOT NULL AND finished_at IS NULL
        AND (session_key, session_client) > (%(session)s::text, %(client)s::text)
      ORDER BY session_key, session_client, id LIMIT 1)
    UNION ALL
    SELECT head.n + 1, next.* FROM head CROSS JOIN LATERAL (
        SELECT r.session_key, r.session_client, r.id FROM supervision_run r
         WHERE r.session_key IS NOT NULL AND r.finished_at IS NULL
           AND (r.session_key, r.session_client) > (head.session_key, head.session_client)
         ORDER BY r.session_key, r.session_client, r.id LIMIT 1) next
     WHERE head.n < %(most)s)
SELECT session_client, session_key,
       EXISTS (SELECT FROM supervision_stepstate s WHERE s.run_id = head.id AND s.direction = 'do' AND coalesce(s.waits_for, s.position) = 0
                  AND s.process_state || '' = 'Pending' AND s.not_before IS NULL)
  FROM head ORDER BY n
"""
SESSIONS_A_LOOK = 2_000
_looked_to = ("", "")  # client and session up to which this process has looked for heads that were not released


@dataclass(frozen=True)
class Member:
    """A submission on its way to become a run. session: its client's session key, or None. of: whose session it is, if not its client's."""

    submission: int
    client: str
    session: str | None
    of: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Identifies its session: client and session key."""
        return self.client if self.of is None else self.of, self.session or ""


def overtaking(members: Sequence[Member]) -> set[int]:
    """The taken submissions that must wait, because this consumer does not hold an earlier submission of their session.

    Child runs wait for the submission of any earlier one with their key: whose sessions they have is asked when they are consumed.
    """
    in_session = [member for member in members if member.session is not None]
    if not in_session:
        return set()
    mine = {member.submission for member in members}
    of_client = Counter(member.client for member in members)
    keys = sorted({(member.client, key) for member in in_session for key in (member.session or "", "")})
    counts = [of_client[client] for client, _ in keys]
    earliest: dict[tuple[str, str], int] = {}
    for client, session, submission in db.fetch(_FIRST_WAITING, {**_arrays(set(keys)), "mine": counts}):
        if submission not in mine:
            earliest[client, session] = min(submission, earliest.get((client, session), submission))
    return {
        member.submission
        for member in in_session
        if any(earliest.get((member.client, key), member.submission) < member.submission for key in (member.session or "", ""))
    }


def blocked(members: Sequence[Member]) -> set[int]:
    """The submissions with an unfinished earlier order in their session. Call it inside the writing transaction."""
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


def clients_above(children: Sequence[str]) -> Mapping[str, str]:
    """Whose sessions these child runs have, where that is not the client without a name: key -> name of a client."""
    return dict(db.fetch(_CLIENTS_ABOVE, {"keys": list(children)}))  # type: ignore[arg-type]


def held_above(children: Mapping[str, str], clients: Mapping[str, str]) -> set[str]:
    """Those of these child runs, given as key -> session, that are below a run of the same session which waits for them.

    clients: what `clients_above` said of them.
    """
    facts = {"keys": list(children), "sessions": list(children.values()), "clients": [clients.get(key, "") for key in children]}
    return {key for (key,) in db.fetch(_HELD_ABOVE, facts)}


def naming(children: Sequence[str]) -> db.Statement:
    """The statement that writes whose sessions these child runs have. It follows the one that writes the runs."""
    return _NAME, {"keys": list(children)}


def release(run_ids: Sequence[int]) -> int:
    """Make the next run of each session due, after the commit that ended these runs. Returns how many."""
    return db.transact(lambda: _release(db.fetch(_SESSIONS_OF, {"runs": list(run_ids)})))


def release_forgotten() -> int:
    """Release the heads of sessions that were not released, because a process died after the end of the earlier run.

    A call looks at SESSIONS_A_LOOK sessions, the next call at those after them. So no session waits long and no call takes long.
    """
    global _looked_to
    client, session = _looked_to
    rows = db.run(_HEADS, {"client": client, "session": session, "most": SESSIONS_A_LOOK})
    _looked_to = (rows[-1][0], rows[-1][1]) if len(rows) == SESSIONS_A_LOOK else ("", "")
    forgotten = [(client, session) for client, session, blocked in rows if blocked]
    return db.transact(lambda: _release(forgotten))


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

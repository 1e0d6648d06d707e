"""Leader election: the supervisor that holds the lease sweeps. It saves duplicate work; two leaders at once do no harm.

Each change of the holder begins a new term. A supervisor that cannot renew the lease assumes that it does not lead.
"""

from __future__ import annotations

from supervision import conf
from supervision.postgres import db
from supervision.runtime.identity import me

_HOLD = """
INSERT INTO supervision_leaderlease AS l (name, holder, term, elected_at, expires_at)
VALUES (%(name)s, %(me)s, 1, clock_timestamp(), clock_timestamp() + %(ttl)s::float8 * interval '1 s')
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder,
       term = l.term + (l.holder IS DISTINCT FROM excluded.holder)::int,
       elected_at = CASE WHEN l.holder IS DISTINCT FROM excluded.holder THEN excluded.elected_at ELSE l.elected_at END,
       expires_at = excluded.expires_at
 WHERE l.holder = excluded.holder OR l.expires_at < clock_timestamp()
    OR l.expires_at > clock_timestamp() + 3 * %(ttl)s::float8 * interval '1 s' -- by a clock that has been put back
RETURNING term
"""


def lead(name: str) -> int | None:
    """Take or renew the lease; returns the term, or None while another process leads."""
    settings = conf.get()
    # Frequent sweeps shorten the lease: after three missed sweeps another process takes over.
    ttl = min(settings.lease, 3 * settings.sweep_every)
    rows = db.run(_HOLD, {"name": name, "me": me(), "ttl": ttl.total_seconds()})
    return int(rows[0][0]) if rows else None


def resign(name: str) -> None:
    """Give the lease back at once, if it is ours."""
    db.run(
        "UPDATE supervision_leaderlease SET expires_at = clock_timestamp() WHERE name = %(name)s AND holder = %(me)s",
        {"name": name, "me": me()},
    )

"""The end of dead letters' bytes: DEAD_LETTER_DAYS after a letter was settled they are erased, and their digest stays.

An open letter keeps its bytes: it may be an order, and an incident tells operators of it.
"""

from __future__ import annotations

from datetime import timedelta

from supervision import conf
from supervision.deadletters.dead_letters import blank
from supervision.models import DeadLetter
from supervision.postgres import db
from supervision.runtime import tidying

SIZE = 200
_at = 0  # how far the pass has come

_OLD = """
WITH page AS MATERIALIZED (SELECT id, created_at FROM supervision_deadletter WHERE id > %(after)s ORDER BY id LIMIT %(size)s)
SELECT (SELECT max(id) FROM page), (SELECT max(created_at) FROM page) < now() - %(days)s::float8 * interval '1 day',
       ARRAY(SELECT t.id FROM supervision_deadletter t
              WHERE t.id = ANY (ARRAY(SELECT id FROM page)) AND t.blanked_at IS NULL
                AND t.resolved_at < now() - %(days)s::float8 * interval '1 day' ORDER BY t.id FOR UPDATE SKIP LOCKED)
"""


@tidying.tidier("bytes of dead letters")
def blank_old() -> bool:
    """Blank letters that were settled DEAD_LETTER_DAYS ago. True if there may be more."""
    kept = conf.get().keep_letters
    return kept is not None and db.transact(lambda: _blank_old(kept / timedelta(days=1)))


def _blank_old(days: float) -> bool:
    global _at
    after, more, old = db.fetch(_OLD, {"after": _at, "size": SIZE, "days": days})[0]
    for letter in DeadLetter.objects.filter(pk__in=old):
        blank(letter, lambda words: words)
    _at = after if more else 0
    return bool(more)

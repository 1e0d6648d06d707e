"""PostgreSQL's NOTIFY in addition to the hints: it tells a scheduler of new submissions at once, without the broker.

Under load the thread that sends the hints sends the NOTIFY too, in a transaction of its own that writes nothing: PostgreSQL
lets commits that notify wait for each other. At rest the statement that accepts an order sends it, which saves a round trip.
A scheduler that does not receive it (for example behind a transaction pooler) gets the hint, which follows if the
submission still waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.db import connection

from supervision.postgres import db
from supervision.runtime.periodic import PeriodicLoop, listening

log = logging.getLogger(__name__)

CHANNEL = "supervision_submissions"
# Looks at the newest 5,000 ids only, so that it need not scan the dead rows before them that an old snapshot keeps.
UNANSWERED = """
SELECT 1 FROM supervision_submission
 WHERE consumed_at IS NULL AND id > (SELECT max(id) - 5000 FROM supervision_submission)
   AND created_at <= now() - %(age)s::float8 * interval '1 s' LIMIT 1
"""


def is_heard() -> bool:
    """Whether another process may listen. If the broker is this process's own memory, there is no other process."""
    return not getattr(settings, "CELERY_BROKER_URL", "").startswith("memory:")


NOTIFY = f"pg_notify('{CHANNEL}', '')"  # an expression; it takes effect with the commit


def send() -> None:
    """Notify every scheduler that listens. Raises nothing."""
    _ask(f"SELECT {NOTIFY}")


def is_unanswered(seconds: float) -> bool:
    """Whether a new submission has been waiting for longer than this. True also if the database does not answer."""
    rows = _ask(UNANSWERED, {"age": seconds})
    return rows is None or bool(rows)


def _ask(statement: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]] | None:
    try:
        return db.fetch(statement, params)
    except Exception as error:  # this thread sends all the hints of its process, so it must not end
        log.debug("the database did not answer: %s", error)
        connection.close()
        return None
    finally:
        if connection.settings_dict["OPTIONS"].get("pool"):
            connection.close()  # returns it to the pool


def listen(work: Callable[[], object]) -> PeriodicLoop:
    """A loop, not yet started, that calls `work` for every NOTIFY, and whenever it has connected."""
    return listening("new submissions", CHANNEL, lambda _heard: work())

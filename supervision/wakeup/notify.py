"""PostgreSQL's NOTIFY in addition to the hints: it tells a scheduler of new submissions at once, without the broker.

The thread that sends the hints sends the NOTIFY too, in a transaction of its own that writes nothing. So no order's
commit waits for it. A scheduler that does not receive it (for example behind a transaction pooler) gets the hint, which
follows if the submission still waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

from supervision.postgres import db

log = logging.getLogger(__name__)

CHANNEL = "supervision_submissions"
# Looks at the newest 5,000 ids only, so that it need not scan the dead rows before them that an old snapshot keeps.
UNANSWERED = """
SELECT 1 FROM supervision_submission
 WHERE consumed_at IS NULL AND id > (SELECT max(id) - 5000 FROM supervision_submission)
   AND created_at <= now() - %(age)s::float8 * interval '1 s' LIMIT 1
"""
LISTEN_SECONDS = 1.0  # between two checks whether this process ends
LONGEST_PAUSE_SECONDS = 10.0


def is_heard() -> bool:
    """Whether another process may listen. If the broker is this process's own memory, there is no other process."""
    return not getattr(settings, "CELERY_BROKER_URL", "").startswith("memory:")


def ring() -> None:
    """Notify every scheduler that listens. Raises nothing."""
    _ask(f"SELECT pg_notify('{CHANNEL}', '')")


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


class Listener(threading.Thread):
    """Calls `work` after each NOTIFY. Uses a connection of its own and reconnects after every outage, until it is stopped."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="bell", daemon=True)
        self._work = work
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """Finish the call of `work` under way, then listen no more."""
        self._stop_asked.set()

    def run(self) -> None:
        """Listen, and reconnect after every failure."""
        pause = 0.0
        while not self._stop_asked.is_set():
            began = time.monotonic()
            try:
                self._listen()
            except Exception as error:
                log.warning("listening for new submissions failed (%s), trying again", str(error).strip().splitlines()[:1])
                connection.close()
            pause = 0.5 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else min(max(2 * pause, 0.5), LONGEST_PAUSE_SECONDS)
            self._stop_asked.wait(pause)
        connection.close()

    def _listen(self) -> None:
        with psycopg.connect(autocommit=True, **db.listening_params()) as listening:
            listening.execute(f"LISTEN {CHANNEL}")
            self._work()  # for a NOTIFY that was sent before this LISTEN
            while not self._stop_asked.is_set():
                # The generator holds the connection, so it must end before `work` runs.
                if list(listening.notifies(timeout=LISTEN_SECONDS, stop_after=1)):
                    self._work()

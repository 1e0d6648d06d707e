"""A bell beside the hints: NOTIFY tells a scheduler of new submissions at once, without the way over the broker.

It is rung by the thread that sends the hints, in a transaction of its own that writes nothing, so no order's commit
waits for it. Whoever does not hear it (a scheduler behind a pooler that hands connections on) is told by the hint that
follows when it stays unanswered.
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

from supervision import db

log = logging.getLogger(__name__)

CHANNEL = "supervision_submissions"
# Only the newest are asked about: what an old snapshot keeps of those before them is not walked over for every ring.
UNANSWERED = """
SELECT 1 FROM supervision_submission
 WHERE consumed_at IS NULL AND id > (SELECT max(id) - 5000 FROM supervision_submission)
   AND created_at <= now() - %(age)s::float8 * interval '1 s' LIMIT 1
"""
LISTEN_SECONDS = 1.0  # between two looks at whether this process ends
LONGEST_PAUSE_SECONDS = 10.0


def is_heard() -> bool:
    """Whether anybody may listen: where the broker is this process's own memory, nobody else does."""
    return not settings.CELERY_BROKER_URL.startswith("memory:")


def ring() -> None:
    """Tell every scheduler that listens; raises nothing."""
    _ask(f"SELECT pg_notify('{CHANNEL}', '')")


def is_unanswered(seconds: float) -> bool:
    """Whether a new submission has been waiting for longer than this, or nobody can say."""
    rows = _ask(UNANSWERED, {"age": seconds})
    return rows is None or bool(rows)


def _ask(statement: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]] | None:
    try:
        return db.fetch(statement, params)
    except Exception as error:  # this thread sends all the hints of its process: it lives on
        log.debug("the database did not answer: %s", error)
        connection.close()
        return None
    finally:
        if connection.settings_dict["OPTIONS"].get("pool"):
            connection.close()  # back to the others


class Listener(threading.Thread):
    """Calls `work` whenever somebody rings, on a connection of its own, through every outage, until it is stopped."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="bell", daemon=True)
        self._work = work
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """Finish what is in hand and listen no more."""
        self._stop_asked.set()

    def run(self) -> None:
        """Listen, and listen again."""
        pause = 0.0
        while not self._stop_asked.is_set():
            began = time.monotonic()
            try:
                self._listen()
            except Exception as error:
                log.warning("nobody is heard for now (%s), listening again", str(error).strip().splitlines()[:1])
                connection.close()
            pause = 0.5 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else min(max(2 * pause, 0.5), LONGEST_PAUSE_SECONDS)
            self._stop_asked.wait(pause)
        connection.close()

    def _listen(self) -> None:
        with psycopg.connect(autocommit=True, **db.listening_params()) as listening:
            listening.execute(f"LISTEN {CHANNEL}")
            self._work()  # who rang before we listened
            while not self._stop_asked.is_set():
                # The generator holds the connection: leave it before anything else is done.
                if list(listening.notifies(timeout=LISTEN_SECONDS, stop_after=1)):
                    self._work()

"""What a process knows of an outage of its database: requests are refused at once, and one thread looks for the server's return."""

from __future__ import annotations

import logging
import re
import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from supervision.postgres import advice, params

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5  # between two attempts to connect
_FULL = re.compile("too many (clients|connections)|connection slots|no more connections")  # PostgreSQL's words, and a pooler's


class Away(psycopg.OperationalError):
    """The database is known to be away: waiting and repeating would only queue."""


class Outage:
    """Begins when a connection could not be made, and ends when one could. on_full: called each time that the server is full."""

    def __init__(self, connection_params: Callable[[], Mapping[str, Any]], on_full: Callable[[], object] = bool) -> None:
        self._params, self._on_full = connection_params, on_full
        self._lock = threading.Lock()
        self._since: float | None = None
        self._said = ""

    def refuse(self) -> None:
        """Raise Away, with what the last attempt said, while the outage lasts."""
        if self._since is not None:
            raise self.away

    @property
    def away(self) -> Away:
        """The error for what cannot have a connection, with what the last attempt said."""
        return Away(self._said or "the database does not answer")

    @property
    def is_full(self) -> bool:
        """Whether the server answers and gives us no connection, such as one that has none left. Those that this process has work.

        A server may say so in any language. Where it starts or ends they do not work: one that says that in another language than
        English counts as full until the pool has none. A pooler answers also while its server is away: there the words decide, which
        no pooler translates.
        """
        if _FULL.search(self._said):
            return True
        return params.direct() != params.DIRECT and advice.answer(self._said) is not None and not advice.changes(self._said)

    def begin(self) -> None:
        """A connection could not be made: look for the server in a thread, unless one looks already."""
        with self._lock:
            if self._since is not None:
                return
            self._since = time.monotonic()
        threading.Thread(target=self._look, name="database outage", daemon=True).start()

    def _look(self) -> None:
        given = params.libpqs(self._params())
        given["application_name"] = params.named(given.get("application_name"), "outage")
        while True:
            try:
                if self._is_back(given):
                    break
                if self.is_full:
                    self._on_full()
            except Exception:
                log.exception("could not look for the database")
            time.sleep(LOOK_SECONDS)
        began, self._since, self._said = self._since, None, ""
        log.warning("the database is back after %.1f s", time.monotonic() - (began or 0.0))

    def _is_back(self, given: Mapping[str, Any]) -> bool:
        try:
            psycopg.connect(**given).close()
        except psycopg.Error as problem:
            self._said = str(problem).strip() or "the database does not answer"
            return False
        return True


def has_word(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server has sent something that was not asked for, such as its goodbye. Costs no round trip."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))

"""Gunicorn's settings in addition to those of the Procfile. Gunicorn reads this file from its working directory."""

from __future__ import annotations

import os
from asyncio import Transport

from gunicorn.arbiter import Arbiter
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

# A worker that refuses to start ends the whole web role with exit code 1, like the other roles.
Arbiter.WORKER_BOOT_ERROR = 1

HEADERS_WITHIN_SECONDS = 10.0  # from the connection to the end of its first request's headers; of later ones `keepalive`


class PunctualProtocol(ASGIProtocol):
    """Closes a connection whose first request does not come. Gunicorn's own waits for it for ever; `sasproject.bodies` bounds the rest."""

    def connection_made(self, transport: Transport) -> None:
        """Gunicorn cancels this timer when the headers are there."""
        super().connection_made(transport)
        if self._request_ready is not None:
            self._keepalive_handle = self.worker.loop.call_later(HEADERS_WITHIN_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if not self._request_ready.is_set():
            self._keepalive_timeout()


gasgi.ASGIProtocol = PunctualProtocol

if "SAS_PARENT" in os.environ:  # the demo, on a system whose kernel would not end this process with it
    from sasproject import orphans

    orphans.watch()

"""A TCP relay before the tests' PostgreSQL, or another server: an outage that a test begins and ends."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

from django.db import connection

from sasproject import ports


class Relay:
    """Relays connections to the server while it is open. `cut` ends those that exist, `close` refuses new ones too.

    `swallow` keeps those that exist open, and takes what both sides send without passing it on.
    """

    def __init__(self, first_port: int = 27500, place: tuple[str, int] | None = None) -> None:
        params = {} if place else connection.get_connection_params()
        self._place = place or (str(params.get("host", "")), int(params.get("port", 5432)))
        self._swallowed: set[socket.socket] = set()
        self.port = ports.choose("127.0.0.1", None, usual=first_port + os.getpid() % 400)
        self._listening: socket.socket | None = None
        self._open: list[socket.socket] = []

    def open(self) -> None:
        """Accept connections."""
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def cut(self) -> None:
        """End every connection, as a killed server does."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def swallow(self) -> None:
        """Pass nothing on any more over the connections that exist."""
        self._swallowed.update(self._open)

    def close(self) -> None:
        """End every connection and refuse new ones."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        self.cut()

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = self._server()
                self._open += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _server(self) -> socket.socket:
        host, port = self._place
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host or "127.0.0.1", port))

    def _pump(self, one: Any, other: Any) -> None:
        with contextlib.suppress(OSError):
            while chunk := one.recv(65536):
                if one not in self._swallowed:
                    other.sendall(chunk)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

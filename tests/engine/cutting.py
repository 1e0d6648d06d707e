"""A proxy in front of the database that can cut a connection between a commit and its answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connection


class Way:
    """A TCP proxy. When an answer arrives and `condition` is true, it drops the answer and closes the connection."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.condition: Callable[[], bool] | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = self._connect()
                threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = self._to
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(os.path.join(host, f".s.PGSQL.{port}"))
        return server

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self.condition is not None and self.condition():
                    self.condition = None
                    self.cuts += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


@contextmanager
def by_a_way_that_can_be_cut(observe: Any) -> Iterator[Callable[[str], Way]]:
    """Send this thread's connection through a `Way`. `lose(statement)`: drop the first answer after this SELECT returns true.

    observe: another psycopg connection, in autocommit, which runs that SELECT to see whether the commit has happened.
    """
    settings = connection.settings_dict
    before = {name: settings[name] for name in ("HOST", "PORT")}
    way = Way(str(before["HOST"]) or "/tmp", int(before["PORT"] or 5432))

    def lose(statement: str) -> Way:
        way.condition = lambda: bool(observe.execute(statement).fetchone()[0])
        return way

    connection.close()
    settings.update(HOST="127.0.0.1", PORT=str(way.port))
    try:
        yield lose
    finally:
        connection.close()
        settings.update(before)
        way.close()

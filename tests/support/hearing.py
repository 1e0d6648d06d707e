"""A shop that hears the simulators' events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer

from chaos.look import until


class Hearing:
    """What was heard so far. refuses: answers 503 to so many events first; refused: to how many it did."""

    def __init__(self, genuine: Callable[[bytes, Message], bool]) -> None:
        self.heard: list[dict] = []
        self.refuses = self.refused = 0
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if shop.refuses > 0:
                    shop.refuses -= 1
                    shop.refused += 1
                    self.send_response(503)
                elif not genuine(body, self.headers):
                    self.send_response(400)
                else:
                    shop.heard.append(json.loads(body))
                    self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hooks/"

    def wait(self, count: int) -> list[dict]:
        """The events heard, after waiting for so many."""
        until(lambda: len(self.heard) >= count, within=20)
        return self.heard


@contextmanager
def hearing(genuine: Callable[[bytes, Message], bool]) -> Iterator[Hearing]:
    """A shop that hears events on a port of its own. genuine(body, headers): whether the event is signed as it must be."""
    shop = Hearing(genuine)
    thread = threading.Thread(target=shop.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield shop
    shop.server.shutdown()
    shop.server.server_close()
    thread.join()

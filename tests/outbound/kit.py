"""Helpers of the outbound tests: receivers of webhooks and channels with programmed answers, and accounts with webhooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from django.db import connection

from supervision import testing
from supervision.errors import PermanentFailure
from supervision.intake.consuming import consume_batch
from supervision.models import Delivery, Notification, WebhookEndpoint
from supervision.operations import operator_verbs
from supervision.outbox import subscriptions
from supervision.outbox.deliveries import fan_out
from tests.engine.kit import ROOT, fetch
from tests.support import forked, toy
from tests.support.serving import Handler

ADA, BOB = "user:1", "user:2"
# Channels that no one can send to, and what their tries say.
BROKEN = [
    ({"kind": "webhook", "secret": "whsec_"}, "EmptyWebhookSecretError: webhook secret may not be empty"),
    ({"kind": "mail", "address": f"a@{'ü' * 60}.example"}, "Unicode"),
]


class Message:
    """One request that came in."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path, self.headers, self.body = path, headers, body
        self.data: dict[str, Any] = json.loads(body)["data"]
        self.id = headers["webhook-id"]


class Receiver:
    """A real HTTP server on a free port. `answer` returns a status, or writes its own response and returns None."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.connections = 0
        self.answer: Callable[[BaseHTTPRequestHandler, Message], int | None] = lambda request, message: 204
        receiver = self

        class Each(Handler):
            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def post(self) -> None:
                message = Message(self.path, {name.lower(): value for name, value in self.headers.items()}, self.body())
                receiver.messages.append(message)
                status = receiver.answer(self, message)
                if status is not None:
                    self.answer(status)

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                pass  # the sender may close the connection early

        self.server = Server(("127.0.0.1", 0), Each)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def hang(self) -> threading.Event:
        """Accept requests and send no answer until the event that this returns is set."""
        released = threading.Event()

        def hang(request: BaseHTTPRequestHandler, message: Message) -> int:
            released.wait(60)
            return 204

        self.answer = hang
        return released

    def seen(self, order: str) -> list[tuple[int, str]]:
        """The status messages of this order that arrived, sorted by number."""
        return sorted({(message.data["seq"], message.data["status"]) for message in self.messages if message.data["order"] == order})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def listen(url: str, client: str = ADA, *events: str) -> WebhookEndpoint:
    return subscriptions.register_webhook(client, url, events)


def order(workflow: str = "toy-plain", client: str = ADA, **payload: Any) -> str:
    """Accept an order of this client."""
    return testing.submit(workflow, {"n": 1, **payload}, client=client)


def done(client: str = ADA, **payload: Any) -> str:
    """An order of this client with all steps done."""
    key = order(client=client, **payload)
    testing.run_until_idle()
    return key


def told(key: str) -> list[tuple[int, str]]:
    """The status messages of this order in the outbox, as (seq, status), in the order of writing."""
    rows = Notification.objects.filter(kind="status", run__key=key).order_by("pk")
    return [(row.payload["seq"], row.payload["status"]) for row in rows]


def statuses(key: str) -> list[str]:
    """The statuses of these messages; checks that the numbers have no gap."""
    messages = told(key)
    assert [seq for seq, _ in messages] == list(range(1, len(messages) + 1))
    return [status for _, status in messages]


def let_waits_pass() -> None:
    """Make every delivery due now."""
    fetch("UPDATE supervision_delivery SET not_before = now() WHERE not_before > now()")
    fetch("UPDATE supervision_webhookendpoint SET retry_at = NULL")


def deliveries() -> list[Delivery]:
    return list(Delivery.objects.order_by("pk"))


def empty() -> None:
    for table in ("delivery", "webhookendpoint", "replytoken"):
        fetch(f"DELETE FROM supervision_{table}")  # noqa: S608 - the names above


def deliverer() -> subprocess.Popen[str]:
    """Start a process that makes all due deliveries and ends."""
    code = (
        "import django; django.setup()\n"
        "from django.db import connection\n"
        f"connection.settings_dict['NAME'] = {str(connection.settings_dict['NAME'])!r}\n"
        "from supervision.outbox.status_sender import deliver_all\n"
        "deliver_all()\n"
    )
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "sasproject.settings", "WEBHOOK_ALLOW_PRIVATE": "1", "LOG_LEVEL": "ERROR"}
    return forked.Popen([sys.executable, "-c", code], cwd=ROOT, env=environ, text=True)


__all__ = ["PermanentFailure", "consume_batch", "fan_out", "operator_verbs", "toy"]


class Sink:
    """A real HTTP server for channels, that keeps what is posted. answer: the status, or a function that returns one."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], Any]] = []
        self.answer: Any = 202
        sink = self

        class Each(Handler):
            def post(self) -> None:
                sink.got.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(self.body())))
                self.answer(sink.answer() if callable(sink.answer) else sink.answer)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Each)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0/B0/token"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def bodies(self) -> list[Any]:
        return [body for _headers, body in self.got]

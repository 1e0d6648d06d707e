"""T21: database, broker, Redis and mail over TLS, each with a real server: the server is checked, and our certificate is shown.

Our own door ends TLS in front of PostgreSQL, RabbitMQ and Redis: the builds that tests use may lack it. For the client the
handshake is the same.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Sink
from django.db import connection

from sasproject.roles import ROOT
from supervision.rabbitmq.server import Api, ServerError
from tests import services
from tests.support import forked
from tests.support.tls import Authority, door

pytestmark = [pytest.mark.amqp, pytest.mark.redis, pytest.mark.timeout(360)]
SERVICES = ("postgres", "pgmq", "amqps", "rediss", "smtp+tls", "smtps")
ASK = """
import sys
import django; django.setup()
from django.conf import settings
from django.core.mail import get_connection
from django.db import connection
import psycopg
from sasproject import celery_app
from supervision.outbox import reply_queues

def ask(kind):
    if kind == "postgres":
        connection.ensure_connection()
        return connection.connection.pgconn.ssl_in_use
    if kind == "pgmq":
        return psycopg.connect(settings.CELERY_BROKER_TRANSPORT_OPTIONS["conn_string"]).pgconn.ssl_in_use
    if kind.startswith("smtp"):
        door = get_connection(fail_silently=False)
        return bool(door.open()) and door.connection.noop()[0] == 250 and bool(door.connection.sock.cipher())
    for link in (celery_app.connection_for_read(), celery_app.connection_for_write(), reply_queues._connection()):
        link.ensure_connection(max_retries=0, timeout=10)
        link.default_channel.close()
        link.release()
    return True

try:
    print("secure" if ask(sys.argv[1]) else "plain")
except Exception as problem:
    print(str(problem).replace(chr(10), " "))
"""


BROKERS = {"amqps": ("RabbitMQ", services.AMQP_URL), "rediss": ("Redis", services.REDIS_URL)}


@dataclass
class Place:
    """The authority, and where each service listens."""

    ours: Authority
    other: Authority
    ports: dict[str, int]

    def ask(self, kind: str, *, host: str = "localhost", ca: str | None = None, shown: bool = True) -> str:
        """What a process with these settings says after it has connected."""
        if kind in BROKERS:
            what, url = BROKERS[kind]
            services.require_service(what, services.listens(url), f"start it at {url}")
        ca, port = self.ours.ca if ca is None else ca, self.ports[kind]
        pair = {"CERT": self.ours.cert, "KEY": self.ours.key} if shown else {}
        env: dict[str, str] = {"CELERY_BROKER_URL": "memory://"}
        if kind in ("postgres", "pgmq"):
            tls = "&".join([f"sslrootcert={ca}", *(f"ssl{name.lower()}={path}" for name, path in pair.items())])
            entry = connection.settings_dict
            account = f"{entry['USER']}:{quote(entry['PASSWORD'], safe='')}"
            env |= {
                "DATABASE_URL": f"postgres://{account}@{host}:{port}/postgres?sslmode=verify-full&{tls}",
                "CELERY_BROKER_URL": "pgmq://",
            }
        else:
            prefix = "EMAIL" if kind.startswith("smtp") else "BROKER"
            name = "EMAIL_URL" if prefix == "EMAIL" else "CELERY_BROKER_URL"
            account = "guest:guest@" if kind == "amqps" else ""
            env |= {name: f"{kind}://{account}{host}:{port}/", f"{prefix}_CA_FILE": ca}
            env |= {f"{prefix}_{part}_FILE": path for part, path in pair.items()}
        env = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "sasproject.settings", "DEBUG": "1", **env}
        done = forked.run([sys.executable, "-c", ASK, kind], cwd=ROOT, env=env, timeout=60)
        return done.stdout.strip() or done.stderr.strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    new: Callable[[str], Path] = tmp_path_factory.mktemp
    ours, other = Authority(new("ours")), Authority(new("other"))
    with ExitStack() as stack:
        ports = {}
        for kind, (_, url) in BROKERS.items():
            behind = urlsplit(url)
            ports[kind] = stack.enter_context(door(ours.context(), behind.hostname or "", behind.port or 0))
        database = connection.settings_dict
        ports["postgres"] = ports["pgmq"] = stack.enter_context(
            door(ours.context(), database["HOST"] or "127.0.0.1", int(database["PORT"] or 5432), asked=True)
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        mail = Controller(Sink(), hostname="127.0.0.1", port=port, tls_context=ours.context())
        mail.start()
        stack.callback(mail.stop)
        ports["smtp+tls"] = port
        ports["smtps"] = stack.enter_context(door(ours.context(), "127.0.0.1", port))
        yield Place(ours, other, ports)


@pytest.mark.parametrize("kind", SERVICES)
def test_the_right_authority_and_a_certificate_connect(place: Place, kind: str):
    assert place.ask(kind) == "secure"


@pytest.mark.parametrize("kind", SERVICES)
def test_a_server_of_another_authority_is_refused(place: Place, kind: str):
    assert "certificate verify failed" in place.ask(kind, ca=place.other.ca).lower()


@pytest.mark.parametrize("kind", SERVICES)
def test_a_server_with_another_name_is_refused(place: Place, kind: str):
    said = place.ask(kind, host="127.0.0.1").lower()

    assert "127.0.0.1" in said
    assert any(words in said for words in ("mismatch", "does not match host name"))


@pytest.mark.parametrize("kind", SERVICES)
def test_who_shows_no_certificate_is_refused_by_the_server(place: Place, kind: str):
    said = place.ask(kind, shown=False)

    assert said not in ("secure", "plain", "")
    assert "verify failed" not in said.lower()


def test_the_management_plugin_is_checked_like_the_broker(place: Place):
    good = {"ca_certs": place.ours.ca, "certfile": place.ours.cert, "keyfile": place.ours.key}
    api = "https://guest:guest@{}:{}".format

    with pytest.raises(ServerError, match="verify failed"):
        Api(api("localhost", place.ports["amqps"])).users()
    with pytest.raises(ServerError, match="mismatch"):
        Api(api("127.0.0.1", place.ports["amqps"]), good).users()
    with pytest.raises(ServerError) as refused:  # the handshake succeeds, and RabbitMQ's other port is no HTTP server
        Api(api("localhost", place.ports["amqps"]), good).users()
    assert "SSL" not in str(refused.value)

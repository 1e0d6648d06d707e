"""A broker for one run, and the faults that can be injected into it without harm to other programs on the same machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import amqp
import psycopg
import redis
from celery import Celery

from chaos import servers
from chaos.servers import Server
from sasproject.broker import transport_options
from sasproject.database import from_url

AMQP_URL = os.environ.get("TEST_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")
REDIS_URL = os.environ.get("TEST_REDIS_URL", "redis://127.0.0.1:6379/0")
PERFORM = "supervision.perform"
QUEUES = ("submissions", "scheduler", "agent.stock", "agent.payment", "agent.shipping", "agent.email", "agent.child", "supervisor")


Control = Callable[..., None]

REPLAYED = 30
OLD_CLAIMS = """
SELECT s.run_id, ceil(random() * s.attempt)::int, r.workflow, r.version, s.direction, s.position, s.agent
  FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id WHERE s.attempt > 0 ORDER BY random() LIMIT %s
"""


class Broker:
    """The broker of one run. `harms` names the methods that the nemesis may call on it."""

    url = ""
    harms: tuple[str, ...] = ()
    database_url = ""

    def replay(self) -> int:
        """Send old messages again, each twice: for steps that are done, have failed, or run right now. Returns how many."""
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5) as database:
            rows = database.execute(OLD_CLAIMS, [REPLAYED]).fetchall()
        with Celery("chaos", broker=self.url, set_as_current=False) as app:
            app.conf.broker_transport_options = transport_options(self.url, from_url(self.database_url, "DATABASE_URL", purpose="queues"))
            with app.connection_for_write() as connection:
                for run_id, attempt, *place, agent in rows * 2:
                    args = [[[run_id, attempt]], *place]
                    app.send_task(PERFORM, args=args, queue=f"agent.{agent}", connection=connection, ignore_result=True, retry=False)
        return 2 * len(rows)

    def purge(self) -> int:
        """Throw away every message; returns how many."""
        raise NotImplementedError


def rabbitmqctl(*arguments: str, command: Sequence[str] = ("rabbitmqctl",), env: Mapping[str, str] | None = None) -> None:
    """Run rabbitmqctl. Raises RuntimeError when it fails, and SystemExit when the program is missing."""
    if shutil.which(command[0]) is None:
        raise SystemExit("chaos: --broker amqp makes a virtual host of its own and needs rabbitmqctl and the right to use it")
    everything = {**os.environ, **(env or {})}
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False, env=everything)
    if done.returncode:
        raise RuntimeError(f"rabbitmqctl {arguments[0]}: {done.stderr.strip()}")


class RabbitMQ(Broker):
    """A node for this run. Where no node can be started: a virtual host on a shared server, which the run never kills."""

    harms = ("purge", "delete_queues", "cut_connections")

    def __init__(self, url: str, vhost: str, database_url: str, control: Control = rabbitmqctl, server: Server | None = None) -> None:
        self.url, self.vhost, self.database_url, self._control, self._server = url, vhost, database_url, control, server
        if server is not None:
            self.harms = (*self.harms, "restart")

    def restart(self) -> int:
        """Kill the node and start it again: it loses the messages that were not on disk."""
        assert self._server is not None
        self._server.restart()
        return 1

    def _channel(self) -> amqp.Connection:
        parts = urlsplit(self.url)
        host = f"{parts.hostname}:{parts.port or 5672}"
        return amqp.Connection(host=host, userid=parts.username, password=parts.password, virtual_host=self.vhost, connect_timeout=5)

    def _on_each(self, verb: str) -> int:
        count = 0
        for queue in QUEUES:
            with self._channel() as connection:  # a new one for each queue, because an unknown queue closes the channel
                try:
                    count += int(getattr(connection.channel(), verb)(queue) or 0)
                except amqp.NotFound:
                    continue
        return count

    def purge(self) -> int:
        return self._on_each("queue_purge")

    def delete_queues(self) -> int:
        """Delete every queue while its consumers read from it."""
        return self._on_each("queue_delete")

    def cut_connections(self) -> int:
        """Close every connection of this virtual host."""
        self._control("close_all_connections", "--vhost", self.vhost, "chaos")
        return 1


class Redis(Broker):
    """A server for this run. Where no server can be started: a numbered database on a shared server."""

    harms = ("purge", "cut_connections")

    def __init__(self, url: str, database_url: str, server: Server | None = None) -> None:
        self.url, self.database_url, self._server = url, database_url, server
        if server is not None:
            self.harms = (*self.harms, "restart")
        self.number = urlsplit(url).path.strip("/")
        self.client = redis.Redis.from_url(url)

    def restart(self) -> int:
        """Kill the server and start it again: it loses every message."""
        assert self._server is not None
        self._server.restart()
        return 1

    def purge(self) -> int:
        count = int(self.client.dbsize())
        self.client.flushdb()
        return count

    def cut_connections(self) -> int:
        """Kill every client that uses this database."""
        mine = int(self.client.client_id())
        others = [one for one in self.client.client_list() if one["db"] == self.number and int(one["id"]) != mine]
        return sum(int(self.client.client_kill_filter(_id=one["id"])) for one in others)


class PGMQ(Broker):
    """Tables in the shop's own database. The fault that kills the database's connections kills the broker's, too."""

    url = "pgmq://"
    harms = ("purge",)

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url

    def purge(self) -> int:
        # A purge waits for a consumer that reads. Only this thread thaws a frozen consumer, so it must not wait for long.
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5, options="-c lock_timeout=3000") as connection:
            names = [name for (name,) in connection.execute("SELECT queue_name FROM pgmq.meta")]
            return sum(connection.execute("SELECT pgmq.purge_queue(%s)", [name]).fetchone()[0] for name in names)  # type: ignore[index]


@contextmanager
def broker_of(kind: str, database_url: str, directory: Path) -> Iterator[Broker]:
    """A broker of this kind for one run, removed afterwards."""
    if kind == "amqp" and "TEST_AMQP_URL" not in os.environ and (own := servers.rabbitmq_server(directory)):
        server, command, env = own
        with running(server):
            yield RabbitMQ(
                f"amqp://guest:guest@127.0.0.1:{server.port}//", "/", database_url, partial(rabbitmqctl, command=command, env=env), server
            )
    elif kind == "redis" and "TEST_REDIS_URL" not in os.environ and (alone := servers.redis_server(directory)):
        with running(alone):
            yield Redis(f"redis://127.0.0.1:{alone.port}/0", database_url, alone)
    elif kind == "amqp":
        vhost = f"chaos-{uuid.uuid4().hex[:8]}"
        rabbitmqctl("add_vhost", vhost)
        rabbitmqctl("set_permissions", "-p", vhost, urlsplit(AMQP_URL).username or "guest", ".*", ".*", ".*")
        try:
            yield RabbitMQ(urlsplit(AMQP_URL)._replace(path=f"/{vhost}").geturl(), vhost, database_url, rabbitmqctl)
        finally:
            rabbitmqctl("delete_vhost", vhost)
    elif kind == "redis":
        number = os.environ.get("CHAOS_REDIS_DB", "13")
        broker = Redis(urlsplit(REDIS_URL)._replace(path=f"/{number}").geturl(), database_url)
        broker.client.flushdb()
        try:
            yield broker
        finally:
            broker.client.flushdb()
            broker.client.close()
    else:
        yield PGMQ(database_url)


@contextmanager
def running(server: Server) -> Iterator[None]:
    """Run this server in the body."""
    server.start()
    try:
        server.wait()
        yield
    finally:
        server.kill()

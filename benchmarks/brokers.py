"""The brokers of a benchmark run: its own virtual host and its own Redis database, removed afterwards."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

import amqp
import redis

QUEUES = (
    *("submissions", "scheduler", "supervisor", "agent.stock", "agent.payment", "agent.shipping", "agent.email", "agent.child"),
    *("bench_chain", "bench_usual"),
)
REDIS_DATABASES = range(15, 0, -1)


class NotMeasurable(RuntimeError):
    """The benchmark cannot run here; the message says why."""


def _connection(parts: SplitResult) -> amqp.Connection:
    return amqp.Connection(
        f"{parts.hostname}:{parts.port or 5672}",
        parts.username or "guest",
        parts.password or "guest",
        virtual_host=parts.path[1:] or "/",
        connect_timeout=5,
    )


def delete_queues(url: str) -> None:
    """Delete every queue that a measurement uses."""
    with _connection(urlsplit(url)) as connection:
        for queue in QUEUES:
            with contextlib.suppress(amqp.exceptions.NotFound):
                connection.channel().queue_delete(queue)


def flush(url: str) -> None:
    """Empty this Redis database."""
    redis.Redis.from_url(url).flushdb()


@contextmanager
def virtual_host(url: str, name: str, facts: dict[str, str], missing: dict[str, str]) -> Iterator[str | None]:
    """A new virtual host of this name. Where we may not create one: the given one, unless our queues have consumers in it."""
    if not url.startswith("amqp"):
        missing["amqp"] = "CELERY_BROKER_URL names no RabbitMQ"
        yield None
        return
    parts = urlsplit(url)
    own = _rabbitmqctl("add_vhost", name) and _rabbitmqctl("set_permissions", "-p", name, parts.username or "guest", ".*", ".*", ".*")
    mine = parts._replace(path=f"/{name}") if own else parts
    found = False
    try:
        try:
            facts["RabbitMQ"] = _meet(mine, own=own)
            found = True
        except (OSError, amqp.AMQPError) as problem:
            missing["amqp"] = f"no RabbitMQ at {parts.hostname}: {problem}"
        yield mine.geturl() if found else None
    finally:
        if own:
            _rabbitmqctl("delete_vhost", name)
        elif found:
            delete_queues(mine.geturl())


def _meet(parts: SplitResult, *, own: bool) -> str:
    with _connection(parts) as connection:
        for queue in () if own else QUEUES:
            with contextlib.suppress(amqp.exceptions.NotFound):
                if connection.channel().queue_declare(queue, passive=True).consumer_count:
                    raise NotMeasurable(f"queue {queue} has a consumer in this virtual host: name another one in CELERY_BROKER_URL")
        return str(connection.server_properties.get("version", "?"))


def _rabbitmqctl(*arguments: str) -> bool:
    program = shutil.which("rabbitmqctl")
    return program is not None and subprocess.run([program, "--quiet", *arguments], capture_output=True, check=False).returncode == 0


@contextmanager
def redis_database(url: str, facts: dict[str, str], missing: dict[str, str]) -> Iterator[str | None]:
    """The empty database of this Redis with the highest number. It is emptied again afterwards."""
    base = urlsplit(url)
    mine = None
    try:
        for number in REDIS_DATABASES:
            address = base._replace(path=f"/{number}").geturl()
            client = redis.Redis.from_url(address)
            if not client.dbsize():
                facts["Redis"] = str(client.info("server")["redis_version"])
                mine = address
                break
        else:
            missing["redis"] = "every database of this Redis is in use"
    except redis.RedisError as problem:
        missing["redis"] = f"no Redis at {base.hostname}: {problem}"
    try:
        yield mine
    finally:
        if mine:
            with contextlib.suppress(redis.RedisError):
                flush(mine)

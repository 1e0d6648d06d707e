"""Services that a test uses if they are there. With REQUIRE_SERVICES=1 (CI) a missing one fails the test, else it skips."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import redis

AMQP_URL = os.environ.get("TEST_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")
REDIS_URL = os.environ.get("TEST_REDIS_URL", "redis://127.0.0.1:6379/0")
# The first is Chromium without a window's parts: the same engine for two thirds of the CPU.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def require_service(what: str, available: object, hint: str) -> None:
    """Return if the service is there; else skip with the reason, or fail with REQUIRE_SERVICES=1."""
    if available:
        return
    message = f"{what} is not available: {hint}"
    if os.environ.get("REQUIRE_SERVICES") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def listens(url: str) -> bool:
    """Whether a server accepts connections at the URL's host and port."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 0), timeout=2).close()
    except OSError:
        return False
    return True


def chromium() -> str | None:
    """The path of an installed Chromium; the tests download none."""
    chosen = os.environ.get("TEST_CHROMIUM")
    return chosen or next(filter(None, map(shutil.which, BROWSERS)), None)


def require_rabbitmqctl() -> None:
    """Return if this user may administer the RabbitMQ of the tests; else skip with the reason, or fail with REQUIRE_SERVICES=1."""
    require_service("RabbitMQ", listens(AMQP_URL), "set TEST_AMQP_URL or start it on port 5672")
    require_service("rabbitmqctl", _rabbitmqctl("list_vhosts"), "it has to be in PATH, and this user has to be allowed to use it")


@contextmanager
def own_vhost() -> Iterator[str]:
    """A URL of RabbitMQ, which is required, with a new virtual host if we may create one, else with the shared one."""
    require_service("RabbitMQ", listens(AMQP_URL), "set TEST_AMQP_URL or start it on port 5672")
    url = urlsplit(AMQP_URL)._replace(path=f"/test-{uuid.uuid4().hex[:8]}").geturl()
    if not add_vhost(url):
        yield AMQP_URL
        return
    try:
        yield url
    finally:
        delete_vhost(url)


def add_vhost(url: str) -> bool:
    """Make the virtual host of this URL; returns whether we may."""
    name, user = urlsplit(url).path[1:], urlsplit(AMQP_URL).username or "guest"
    return _rabbitmqctl("add_vhost", name) and _rabbitmqctl("set_permissions", "-p", name, user, ".*", ".*", ".*")


def delete_vhost(url: str) -> None:
    """Delete the virtual host of this URL, with its queues; the broker closes its connections."""
    _rabbitmqctl("delete_vhost", urlsplit(url).path[1:])


def _rabbitmqctl(*arguments: str) -> bool:
    local = urlsplit(AMQP_URL).hostname in ("127.0.0.1", "localhost") and shutil.which("rabbitmqctl")
    return bool(local) and subprocess.run(["rabbitmqctl", *arguments], capture_output=True, check=False, timeout=60).returncode == 0


@contextmanager
def own_redis() -> Iterator[str]:
    """A URL of Redis or Valkey, which is required, with a numbered database of its own, empty before and after."""
    require_service("Redis", listens(REDIS_URL), "set TEST_REDIS_URL or start it on port 6379")
    beside = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))  # parallel tests need different databases
    url = urlsplit(REDIS_URL)._replace(path=f"/{11 + beside % 5}").geturl()
    client = redis.Redis.from_url(url)
    client.flushdb()
    try:
        yield url
    finally:
        client.flushdb()
        client.close()

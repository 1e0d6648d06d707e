"""Fixtures for every test: external services where they are found, and waiting for conditions."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core.servers.basehttp import WSGIServer
from django.db import connection, connections
from django.db.models.signals import post_migrate
from django.test import TransactionTestCase
from django.utils import translation
from psycopg.pq import TransactionStatus

from supervision.governance import circuit_breaker
from supervision.store import claiming
from supervision.store.bounds import searching
from tests import services
from tests.support import emptying
from tests.support.shop import throw_away, until

settings.WHITENOISE_AUTOREFRESH = True  # look a static file up when it is requested, instead of scanning all of them for each test client
PBKDF2PasswordHasher.iterations = 1  # otherwise each account of each test costs a third of a second
WSGIServer.request_queue_size = 100  # the live server resets connections beyond its queue, and 50 clients connect at once
OWN_DATABASE = str(connection.settings_dict["NAME"])  # the project's, before there is one for tests
connection.settings_dict["TEST"]["TEMPLATE"] = os.environ.get("TEST_TEMPLATE")  # tests/plugin.py migrates it
searching.SLOW_SECONDS = float("inf")  # slow statements on a busy machine must change nothing; `test_horizon` sets its own value

pytest_plugins = ["tests.support.simulators_fixtures"]  # one simulators process for the whole session
TransactionTestCase._fixture_teardown = emptying.empty_as_flush_does
TransactionTestCase._should_reload_connections = lambda _: False  # `testing.renew_session` keeps them

# Playwright's event loop runs in the thread that also uses the ORM.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


def _as_the_migrations_left_it(app_config: Any = None, **_: Any) -> None:
    """Restore groups and periodic tasks after a test with real commits has emptied every table."""
    if app_config is not None and app_config.name == "orders":
        import_module("orders.migrations.0001_squashed_0004_incidents").create_groups(apps, None)
        import_module("supervision.migrations.0001_squashed_0021_plain_label").create_periodic_tasks(apps, None)
        import_module("orders.migrations.0004_parcels").create_periodic_task(apps, None)
        import_module("orders.migrations.0036_erasure").create_periodic_task(apps, None)


post_migrate.connect(_as_the_migrations_left_it, dispatch_uid="tests", weak=False)


def pytest_sessionfinish() -> None:
    """Drop what several tests shared."""
    throw_away()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Drop a connection that was cut while an earlier test had it, so that this one gets another."""
    for one in connections.all(initialized_only=True):
        if one.connection is not None and one.connection.closed:
            one.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Close the connection of a test that timed out in the middle of a statement, so that no later test uses it."""
    try:
        return (yield)
    except BaseException:
        for one in connections.all(initialized_only=True):
            if one.connection is not None and one.connection.info.transaction_status == TransactionStatus.ACTIVE:
                with suppress(Exception):
                    one.connection.cancel()
                one.close()
        raise


@pytest.fixture(autouse=True)
def _no_memory_of_an_earlier_test() -> None:
    """Forget the breakers that an earlier test has read into this process, and the language of its last request."""
    circuit_breaker.forget()
    claiming.forget()
    translation.deactivate()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_keepdb: bool, django_db_blocker: Any) -> Iterator[None]:
    """End what is still connected to the tests' database after the last test, such as the request of a page that was closed.

    With a connection to it, the database cannot be dropped, and the last test is an error. Where `sas_database` made the tests'
    database and has dropped it, this is the project's own again: it is left alone."""
    yield
    name = str(connection.settings_dict["NAME"])
    if django_db_keepdb or name == OWN_DATABASE:
        return
    with django_db_blocker.unblock():
        connection.close()
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {connection.ops.quote_name(name)} ALLOW_CONNECTIONS false")  # a thread would connect again
            cursor.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [name])


@pytest.fixture
def amqp_url() -> Iterator[str]:
    """The URL of RabbitMQ, with a virtual host for this test alone where possible."""
    with services.own_vhost() as url:
        yield url


@pytest.fixture
def redis_url() -> Iterator[str]:
    """The URL of Redis or Valkey, with a database for this test alone."""
    with services.own_redis() as url:
        yield url


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """A Chromium to drive with Playwright: `executable_path=chromium_path, args=["--no-sandbox"]`."""
    path = services.chromium()
    services.require_service("Chromium", path, "install it, or set TEST_CHROMIUM to its path")
    return path or ""


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """`eventually(lambda: condition)` returns its first true value, or fails when time is up."""
    return until

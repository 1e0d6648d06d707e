"""Fixtures for the engine's tests: real commits on real PostgreSQL, one clean store per test.

The engine compares with the database's now(), which does not move inside a transaction. So these tests commit, and the
fixture empties the store afterwards. Deleting a few rows is quicker than truncating every table of the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import setup_databases, teardown_databases

from supervision import testing
from supervision.execution import runner
from supervision.governance import circuit_breaker
from supervision.outbox import notifications
from supervision.plans import registry
from supervision.runtime import failpoints
from tests.support import toy
from tests.support.people import no_hints, operator, viewer

__all__ = ["no_hints", "operator", "viewer"]

TABLES = (
    "stepevent", "stepstate", "strayreply", "effect", "alert", "incident", "notification", "deadletter", "leaderlease", "heartbeat", "run",
    "submission", "resource", "resourceroute", "slot", "pause", "archivedrun", "audience", "closure",
    "workflowversion", "receipt", "finding", "reconciliation",
)  # fmt: skip

QUEUES = ("agent.alpha", "agent.beta", "agent.gamma", "scheduler", "submissions", "supervisor")


def empty_the_store() -> None:
    statements = [f"DELETE FROM supervision_{table}" for table in TABLES]  # noqa: S608 - the names above
    statements += ["DELETE FROM django_admin_log", "DELETE FROM auth_user"]
    with connection.cursor() as cursor:
        cursor.execute(";".join(statements))


@pytest.fixture(scope="session")
def store_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database, also for sessions in which no test has pytest-django's mark."""
    mine = None
    with django_db_blocker.unblock():
        if not connection.introspection.table_names():
            mine = setup_databases(verbosity=0, interactive=False, aliases=["default"])
    yield
    with django_db_blocker.unblock():
        # The engine's own threads keep their connections for the life of the process.
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connection.close()
        if mine is not None:
            teardown_databases(mine, verbosity=0)


@pytest.fixture
def engine(store_database: None, django_db_blocker: Any) -> Iterator[None]:
    """An empty store, the toy workflows, no broker."""
    with django_db_blocker.unblock(), testing.quiet():
        empty_the_store()
        toy.reset()
        runner.process.reset()
        circuit_breaker.forget()
        registry.forget()
        try:
            yield
        finally:
            failpoints.load({})
            runner.process.reset()
            registry.forget()
            empty_the_store()
            connection.close()


@pytest.fixture
def tuned(settings: Any) -> Any:
    """`tuned(COHORT=3)` changes the engine's settings for this test."""

    def tune(**values: Any) -> None:
        settings.SUPERVISION = {**settings.SUPERVISION, **values}

    return tune


@pytest.fixture
def olga(engine: None) -> User:
    """An operator's account, for verbs that log who acted."""
    return User.objects.create_user("olga")


@pytest.fixture
def noted() -> Iterator[list[int]]:
    """A handler for a kind of notification, "test-kind", of this test's own; yields the ids that it delivered."""
    ids: list[int] = []
    notifications.handler("test-kind")(lambda notification: ids.append(notification.pk))
    yield ids
    notifications._handlers.pop("test-kind")


@pytest.fixture
def broker() -> Iterator[Callable[[str], list[Any]]]:
    """Celery's in-memory broker, empty; yields a function that takes all messages of a queue."""
    with current_app.connection_for_write() as connection:
        channel = connection.default_channel
        for queue in QUEUES:
            channel.queue_declare(queue)
            channel.queue_purge(queue)

        def take(queue: str) -> list[Any]:
            found = []
            while (message := channel.basic_get(queue, no_ack=True)) is not None:
                found.append((message.headers["task"], message.decode()))
            return found

        yield take
        for queue in QUEUES:
            channel.queue_purge(queue)

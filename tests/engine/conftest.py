"""Fixtures for the engine's tests: real commits on real PostgreSQL, one clean store per test.

The engine compares with the database's now(), which does not move inside a transaction. So these tests commit, and the
fixture empties the store afterwards. Deleting a few rows is quicker than truncating every table of the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.db import connection

from supervision import testing
from supervision.dispatch import scheduler
from supervision.models import Epoch
from supervision.outbox import notifications
from supervision.store import epochs
from tests.engine import kit
from tests.support import toy
from tests.support.history import rewrite
from tests.support.people import no_hints, operator, viewer

__all__ = ["no_hints", "operator", "viewer"]

QUEUES = ("agent.alpha", "agent.beta", "agent.gamma", "scheduler", "submissions", "supervisor")


def empty_the_store(*tables: str) -> None:
    """Delete every row of the engine, every account, and first the rows of these tables."""
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - the tests' own names
    testing.clean()
    if kit.fetch("SELECT 1 WHERE EXISTS (SELECT FROM django_admin_log) OR EXISTS (SELECT FROM auth_user)"):
        rewrite("DELETE FROM django_admin_log; DELETE FROM auth_user")


@pytest.fixture(scope="session")
def store_database(sas_database: None) -> None:
    """The test database, also for sessions in which no test has pytest-django's mark."""


@contextmanager
def emptied(django_db_blocker: Any, *tables: str) -> Iterator[None]:
    """Real commits to an empty store without a broker; the store and these tables are empty again afterwards."""
    with django_db_blocker.unblock(), testing.quiet():
        empty_the_store(*tables)
        try:
            yield
        finally:
            empty_the_store(*tables)
            testing.renew_session()


@pytest.fixture
def engine(store_database: None, django_db_blocker: Any) -> Iterator[None]:
    """An empty store, the toy workflows, no broker."""
    with emptied(django_db_blocker):
        toy.reset()
        yield


@pytest.fixture
def tuned(settings: Any) -> Any:
    """`tuned(COHORT=3)` changes the engine's settings for this test."""

    def tune(**values: Any) -> None:
        settings.SUPERVISION = {**settings.SUPERVISION, **values}

    return tune


@pytest.fixture
def olga(engine: None) -> User:
    """An operator's account, for verbs that log who acted."""
    return User.objects.create_user("olga", is_superuser=True)


@pytest.fixture
def first_epoch(engine: None) -> Iterator[None]:
    """The database's first epoch; a test may begin others, which end with it."""

    def anew() -> None:
        Epoch.objects.all().delete()
        epochs.look()

    anew()
    yield
    anew()


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


@pytest.fixture
def unsent_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that cannot be sent fails the test, with its reason. The scheduler logs it and goes on."""

    def tell(*words: object) -> None:
        raise AssertionError(words)

    monkeypatch.setattr(scheduler.log, "warning", tell)

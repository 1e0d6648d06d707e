"""Fixtures for the simulation: real commits on real PostgreSQL, long waits, no broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from supervision import testing
from supervision.plans import registry
from tests.engine.conftest import empty_the_store, store_database  # noqa: F401 - a fixture
from tests.simulation import scenarios


@pytest.fixture
def simulated(store_database: None, django_db_blocker: Any, settings: Any) -> Iterator[None]:  # noqa: F811
    """An empty store in which no step becomes due by itself. Commits need not survive a power cut here."""
    settings.SUPERVISION = {
        **settings.SUPERVISION,
        "DISPATCH_SECONDS": scenarios.LONGEST.total_seconds(),
        "PICKUP_SECONDS": 36000,
        "COMPLETE_WITHIN": None,
        "ON_EXHAUSTED": None,
        "ON_PERMANENT": None,
    }
    with django_db_blocker.unblock(), testing.quiet():
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off; SET plan_cache_mode = force_generic_plan")
        empty_the_store()
        registry._register(scenarios.WORKFLOWS)  # a process registers plans before it writes runs
        try:
            yield
        finally:
            scenarios.drop_hooks()
            empty_the_store()
            testing.renew_session()

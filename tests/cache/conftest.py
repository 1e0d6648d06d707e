"""An empty cache with real commits, and a service whose answers the test decides."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from supervision import testing
from supervision.governance import circuit_breaker
from supervision.governance.response_cache import ResourceCache
from supervision.models import CachedResult, Resource
from tests.engine.conftest import store_database


class Service:
    """A service that notes each call; it answers with the call's number, fails, or blocks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refuse: Exception | None = None
        self.answer: Any = None
        self.go = threading.Event()
        self.go.set()

    def __call__(self, key: str) -> Any:
        self.asked.append(key)
        number = len(self.asked)
        self.go.wait(20)
        if self.refuse is not None:
            raise self.refuse
        return self.answer if self.answer is not None else {"key": key, "call": number}


@pytest.fixture
def service(store_database: None, django_db_blocker: Any) -> Iterator[Service]:
    """One service, and an empty cache of its answers."""

    def empty() -> None:
        CachedResult.objects.all().delete()
        Resource.objects.filter(name="carrier").delete()
        circuit_breaker.forget()

    with django_db_blocker.unblock(), testing.quiet():
        empty()
        made = Service()
        try:
            yield made
        finally:
            made.go.set()
            empty()
            testing.renew_session()


@pytest.fixture
def cache(service: Service) -> ResourceCache:
    """The cache as one process sees it."""
    return ResourceCache("rates", service, service="carrier", refresh_after=timedelta(minutes=10), max_age=timedelta(hours=1))


__all__ = ["store_database"]

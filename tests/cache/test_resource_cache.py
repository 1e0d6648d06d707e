"""Cached answers of services (R17): fetched once, refreshed before they expire, served stale up to a maximum age."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from supervision.governance import circuit_breaker
from supervision.governance.response_cache import NotAvailable, ResourceCache, cached, refresh_due
from supervision.models import CachedResult, Resource
from tests.engine.kit import another_connection, at_once


def older(**by: float) -> None:
    """Make every answer older."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE supervision_cachedresult SET fetched_at = fetched_at - %(by)s, refresh_at = refresh_at - %(by)s,"
            " expires_at = expires_at - %(by)s",
            {"by": timedelta(**by)},
        )


def outage() -> None:
    Resource.objects.create(name="carrier", service="carrier", breaker_state="open", retry_at="2999-01-01T00:00Z")
    circuit_breaker.forget()


class Asking(threading.Thread):
    """A caller of the cache, in a thread with its own connection."""

    def __init__(self, ask: Any) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._ask()
        except NotAvailable as problem:
            self.answer = problem
        finally:
            connection.close()


def test_an_answer_is_asked_for_once_and_kept(cache, service):
    first, second = cache.get("IT"), cache.get("IT")

    assert first.value == second.value == {"key": "IT", "call": 1}
    assert service.asked == ["IT"]
    assert cache.get("DE").value == {"key": "DE", "call": 2}


def test_whoever_asks_at_the_same_time_asks_once_for_all(cache, service):
    """Single flight across processes: the callers share only the row in the database."""
    others = [ResourceCache("rates", service, service="carrier", refresh_after=timedelta(1), max_age=timedelta(2)) for _ in range(6)]

    answers = at_once(*(lambda one=one: one.get("IT", patience=20) for one in others))

    assert [answer.value["call"] for answer in answers] == [1] * 6
    assert service.asked == ["IT"]


def test_an_answer_is_refreshed_by_the_timer_before_it_expires(cache, service):
    cache.get("IT")
    assert cache.refresh_due() == 0
    older(minutes=11)

    assert cache.refresh_due() == 1

    assert cache.get("IT").value["call"] == 2
    assert cache.refresh_due() == 0


def test_nobody_waits_for_a_refresh_that_is_under_way(cache, service, eventually):
    cache.get("IT")
    older(minutes=11)
    service.go.clear()
    timer = Asking(cache.refresh_due)
    eventually(lambda: len(service.asked) == 2)

    stale = cache.get("IT")

    assert stale.value["call"] == 1
    service.go.set()
    timer.join(20)
    fresh = cache.get("IT")
    assert fresh.value["call"] == 2
    assert fresh.version > stale.version


def test_two_timers_do_not_refresh_the_same_answer(cache, service):
    cache.get("IT")
    cache.get("DE")
    older(minutes=11)

    assert sum(at_once(cache.refresh_due, cache.refresh_due)) == 2
    assert sorted(service.asked) == ["DE", "DE", "IT", "IT"]


def test_a_timer_passes_over_what_another_one_has_in_hand(cache, service):
    cache.get("IT")
    cache.get("DE")
    older(minutes=11)

    with another_connection() as other:
        other.execute("SELECT FROM supervision_cachedresult WHERE key = 'IT' FOR UPDATE")
        assert cache.refresh_due() == 1

    assert service.asked == ["IT", "DE", "DE"]


def test_an_operator_can_have_an_answer_refreshed_before_its_time(cache, service):
    first = cache.get("IT")

    assert cache.refresh("IT").value["call"] == 2
    assert cache.get("IT").version > first.version


def test_a_stale_answer_is_served_while_the_service_is_down_up_to_its_greatest_age(cache, service):
    cache.get("IT")
    outage()
    older(minutes=50)

    assert cache.refresh_due() == 0  # the cache does not call a service whose breaker is open
    assert cache.get("IT").value["call"] == 1
    older(minutes=20)

    with pytest.raises(NotAvailable, match="the service is not asked now"):
        cache.get("IT")
    assert cache.peek("IT") is None
    assert len(service.asked) == 1


def test_a_failed_refresh_keeps_the_old_answer_and_is_tried_again_after_a_pause(cache, service):
    cache.get("IT")
    older(minutes=11)
    service.refuse = ConnectionError("reset")

    assert cache.refresh_due() == 0
    assert cache.refresh_due() == 0
    assert len(service.asked) == 2  # it waits after the failure
    assert cache.get("IT").value["call"] == 1
    assert CachedResult.objects.get().last_error == "ConnectionError: reset"

    service.refuse = None
    older(seconds=11)
    assert cache.refresh_due() == 1
    assert CachedResult.objects.get().last_error == ""


def test_after_a_failure_nobody_asks_again_at_once(cache, service):
    service.refuse = ConnectionError("reset")
    for _ in range(3):
        with pytest.raises(NotAvailable, match="ConnectionError: reset"):
            cache.get("IT")

    assert service.asked == ["IT"]


def test_an_answer_that_comes_too_late_is_not_kept(cache, service, eventually):
    service.go.clear()
    slow = Asking(lambda: cache.get("IT"))
    eventually(lambda: len(service.asked) == 1)
    older(minutes=5)  # the lease of the refresh has expired
    newer = ResourceCache("rates", lambda key: "newer", service="carrier", refresh_after=timedelta(1), max_age=timedelta(2))
    newer.get("IT")

    service.go.set()
    slow.join(20)

    assert isinstance(slow.answer, NotAvailable)
    assert cache.get("IT").value == "newer"


def test_an_answer_that_was_forgotten_is_fetched_anew_and_what_is_on_its_way_is_not_kept(cache, service, eventually):
    cache.get("IT")
    older(hours=2)
    service.go.clear()
    slow = Asking(lambda: cache.get("IT"))
    eventually(lambda: len(service.asked) == 2)

    cache.forget("IT")
    service.go.set()
    slow.join(20)

    assert isinstance(slow.answer, NotAvailable)
    assert cache.peek("IT") is None
    assert cache.get("IT").value["call"] == 3


def test_an_answer_that_nobody_uses_is_forgotten_instead_of_refreshed(cache, service):
    cache.get("IT")
    cache.get("DE")
    older(minutes=11)
    CachedResult.objects.filter(key="IT").update(used_at="2020-01-01T00:00Z")

    assert cache.refresh_due() == 1
    assert list(CachedResult.objects.values_list("key", flat=True)) == ["DE"]


def test_using_an_answer_keeps_it(cache, service):
    cache.get("IT")
    CachedResult.objects.update(used_at="2020-01-01T00:00Z")

    cache.get("IT")
    cache.refresh_due()

    assert CachedResult.objects.filter(key="IT").exists()


def test_nothing_is_fetched_inside_a_transaction(cache, service):
    with transaction.atomic(), pytest.raises(NotAvailable):
        cache.get("IT")

    assert service.asked == []


def test_peeking_never_asks(cache, service):
    assert cache.peek("IT") is None
    cache.get("IT")

    assert cache.peek("IT").value["call"] == 1
    assert service.asked == ["IT"]


@pytest.mark.parametrize("answer", [{"a": "\ud800"}, {"a": "\0"}, object()])
def test_an_answer_that_cannot_be_kept_is_none(cache, service, answer):
    service.answer = answer

    with pytest.raises(NotAvailable):
        cache.get("IT")
    assert CachedResult.objects.get().last_error


def test_nothing_is_an_answer_too(cache, service):
    none = ResourceCache("none", lambda key: service(key) and None, service=None, refresh_after=timedelta(1), max_age=timedelta(2))

    assert [none.get("IT").value, none.get("IT").value] == [None, None]
    assert service.asked == ["IT"]


def test_an_age_that_leaves_no_time_to_refresh_is_refused():
    with pytest.raises(ValueError, match="refresh_after must be above 0 and below max_age"):
        cached("x", service=None, refresh_after=timedelta(2), max_age=timedelta(1))(str)


def test_a_decorated_function_is_refreshed_with_all_others(service):
    @cached("decorated", service=None, refresh_after=timedelta(minutes=1), max_age=timedelta(minutes=5))
    def question(key: str) -> Any:
        return service(key)

    question.get("IT")
    older(minutes=2)

    assert refresh_due() == 1
    assert question.get("IT").value["call"] == 2

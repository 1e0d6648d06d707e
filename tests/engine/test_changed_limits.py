"""A limit that an operator corrects holds from the next claim, however far ahead the one before had planned."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from supervision.governance import circuit_breaker, rate_limiter
from supervision.models import Resource
from supervision.operations import resource_limits
from tests.engine import kit
from tests.support.console import hidden

pytestmark = pytest.mark.usefixtures("engine")
SLOW = 0.001  # calls a second: the least that the form takes


def holders(count: int, first: int = 1) -> list[rate_limiter.Holder]:
    return [(run, "do", 1, 1) for run in range(first, first + count)]


def taken(first: int) -> int:
    return len(rate_limiter.take("beta", holders(20, first), lease_seconds=30).delays)


def ahead(column: str) -> float:
    """How many seconds ahead of now this moment of the resource is, by the database's clock."""
    [(seconds,)] = kit.fetch(f"SELECT extract(epoch FROM {column} - now())::float8 FROM supervision_resource WHERE name = 'beta'")  # noqa: S608
    return float(seconds)


@pytest.fixture
def beta(engine) -> Resource:
    circuit_breaker.forget()
    return Resource.objects.create(name="beta", rate_per_second=SLOW, cool_down_seconds=2_000_000_000)


@pytest.fixture
def root(db) -> User:
    return User.objects.create_superuser("root")


def by_verb(root: User, **limits) -> None:
    resource_limits.change("beta", by=root, **limits)


def by_form(root: User, **limits) -> None:
    row = Resource.objects.get(name="beta")
    names = ("capacity", "rate_per_second", "breaker_threshold", "cool_down_seconds", "probe_limit")
    said = {name: getattr(row, name) for name in names} | limits
    client = Client()
    client.force_login(root)
    answer = client.post(
        reverse("admin:supervision_resource_change", args=[row.pk]),
        {"settings": "{}", **{name: "" if value is None else value for name, value in said.items()}},
    )
    assert answer.status_code == 302, answer.context["adminform"].form.errors


@pytest.mark.parametrize("change", [by_verb, by_form])
def test_a_rate_that_was_far_too_low_is_raised_and_calls_go_on(beta, root, change):
    assert taken(1) == 1
    assert ahead("next_call_at") > 900

    change(root, rate_per_second=10)

    assert ahead("next_call_at") < 1
    kit.fetch("UPDATE supervision_resource SET next_call_at = now()")
    assert taken(100) >= 1


@pytest.mark.parametrize("change", [by_verb, by_form])
def test_a_rate_that_was_lowered_counts_from_the_last_call(beta, root, change):
    Resource.objects.update(rate_per_second=10)
    assert taken(1) >= 1
    last = ahead("next_call_at") - rate_limiter.gap(10)

    change(root, rate_per_second=0.5)

    assert ahead("next_call_at") == pytest.approx(last + rate_limiter.gap(0.5), abs=0.5)


def test_a_rate_is_taken_away_and_another_given_without_the_wait_of_the_first(beta, root):
    assert taken(1) == 1

    by_verb(root, rate_per_second=None)
    assert taken(100) == 20
    by_verb(root, rate_per_second=10)

    assert ahead("next_call_at") < 1


@pytest.mark.parametrize("change", [by_verb, by_form])
def test_a_cool_down_that_was_far_too_long_is_shortened_while_the_breaker_is_open(beta, root, change):
    kit.fetch(
        "UPDATE supervision_resource SET breaker_state = 'open', opened_at = now(), retry_at = now() + cool_down_seconds * interval '1 s'"
    )

    change(root, cool_down_seconds=5)

    assert ahead("retry_at") == pytest.approx(5, abs=2)


def test_a_call_that_waits_for_a_slow_rate_asks_again_within_half_a_minute(beta):
    assert taken(1) == 1

    assert rate_limiter.take("beta", holders(1, 100), lease_seconds=30).wait < timedelta(seconds=31)


def test_what_another_operator_has_set_while_the_form_was_open_stays(beta, root):
    client = Client()
    client.force_login(root)
    address = reverse("admin:supervision_resource_change", args=[beta.pk])
    form = {**hidden(client.get(address).content.decode()), "settings": "{}", "probe_limit": "3"}
    assert taken(1) == 1
    by_verb(root, paused=True, rate_per_second=10)

    assert client.post(address, form).status_code == 302

    beta.refresh_from_db()
    assert (beta.paused, beta.rate_per_second, beta.probe_limit) == (True, 10, 3)
    assert ahead("next_call_at") < 1, "the next call is not planned by the rate of before"

"""Searches in databases of other locales, which have other small letters for capitals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet

from orders.accounts.history import _guests
from orders.filters import OrderFilters
from orders.models import Order
from orders.searching import by_customer, by_mail
from tests.commands.test_command_line import database_url

# Only for servers that were built with ICU: the embedded one is not.
NEEDS_ICU = pytest.mark.nightly
TURKISH = "LOCALE_PROVIDER icu ICU_LOCALE 'tr' LOCALE 'C'"
PLAIN = "LOCALE 'C'"
ROW = {"run_id": 7, "email": "Info@Example.com", "customer": "Éloise ΝΙΚΟΣ", "account_id": None}
Find = Callable[[QuerySet[Any]], list[int]]


@pytest.fixture
def find(request: pytest.FixtureRequest) -> Iterator[Find]:
    """Runs a search in a database of the locale that the test names, which has one order."""
    name = f"other_locale_{os.getpid()}"  # other processes of the tests use the same server
    with psycopg.connect(database_url("postgres"), autocommit=True) as server:
        try:
            server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {request.param}")
        except psycopg.errors.FeatureNotSupported as error:
            pytest.skip(str(error))
        try:
            with psycopg.connect(database_url(name), autocommit=True) as there:
                there.execute("CREATE TABLE orders_order (run_id bigint, email varchar(254), customer text, account_id int)")
                there.execute("CREATE TABLE auth_user (id int); CREATE TABLE auth_group (id int, name text)")
                there.execute("CREATE TABLE auth_user_groups (user_id int, group_id int)")
                there.execute("INSERT INTO orders_order VALUES (%(run_id)s, %(email)s, %(customer)s, %(account_id)s)", ROW)
                yield lambda rows: [run for (run,) in there.execute(*rows.values_list("run_id").query.sql_with_params())]
        finally:
            server.execute(f"DROP DATABASE {name}")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("find", "term"),
    [
        pytest.param(TURKISH, "Info@Example.com", marks=NEEDS_ICU), pytest.param(TURKISH, "INFO@EXAMPLE.COM", marks=NEEDS_ICU),
        (PLAIN, "Info@Example.com"), (PLAIN, "INFO@EXAMPLE.COM"), (PLAIN, "info@example.com"),
    ],
    indirect=["find"],
)  # fmt: skip
def test_a_mail_address_is_found_in_a_database_of_another_locale(find: Find, term: str):
    for searched in (term, term[:5], term[:4]):
        assert find(by_mail(searched)) == [ROW["run_id"]], searched
    assert find(OrderFilters().by_email(Order.objects.order_by(), term)) == [ROW["run_id"]]
    assert find(Order.objects.order_by().filter(_guests(User(pk=1, email=term)))) == [ROW["run_id"]]


@pytest.mark.parametrize("find", [pytest.param(TURKISH, marks=NEEDS_ICU), PLAIN], indirect=True)
@pytest.mark.parametrize("term", ["Éloise", "Élo", "ΝΙΚΟΣ"])
def test_a_name_is_found_as_it_is_written_in_a_database_of_another_locale(find: Find, term: str):
    assert find(by_customer(term)) == [ROW["run_id"]]

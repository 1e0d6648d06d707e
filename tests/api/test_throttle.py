"""The throttle: how many requests an account may send in a period."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from orders.api.throttling import address_of, parse_rate
from tests.shopping import a_client, an_account, signed_in

PRODUCTS = "/api/v1/products/"


def test_an_account_is_told_when_to_come_back_after_too_many_requests(throttled):
    throttled.API_THROTTLE = "3/min"
    account = an_account("ada", "customer")

    answers = [a_client(account).get(PRODUCTS, REMOTE_ADDR=f"192.0.2.{n}") for n in range(5)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1]["Content-Type"] == "application/problem+json"
    assert 0 < int(answers[-1]["Retry-After"]) <= 60


def test_every_answer_says_what_is_left_of_the_rate(throttled):
    throttled.API_THROTTLE = "3/min"

    answers = [a_client().get(PRODUCTS) for _ in range(4)]

    assert [answer["RateLimit-Policy"] for answer in answers] == ['"default";q=3;w=60'] * 4
    left = [answer["RateLimit"].partition(";t=") for answer in answers]
    assert [one for one, _, _ in left] == ['"default";r=2', '"default";r=1', '"default";r=0', '"default";r=0']
    assert all(0 < int(wait) <= 60 for _, _, wait in left)


def test_an_answer_without_a_limit_says_nothing_of_one(throttled):
    throttled.API_THROTTLE = None
    assert "RateLimit" not in a_client().get(PRODUCTS)


def test_each_request_has_a_name_and_a_trusted_proxy_may_give_it(throttled):
    named = {"X-Request-Id": "edge-7"}
    first, again = a_client().get(PRODUCTS, headers=named), a_client().get("/api/v1/unknown/", headers=named)
    assert first["Request-Id"] != again["Request-Id"]
    assert {len(first["Request-Id"]), len(again["Request-Id"])} == {32}

    throttled.TRUST_PROXY = True
    assert a_client().get(PRODUCTS, headers=named)["Request-Id"] == "edge-7"
    assert a_client().get(PRODUCTS, headers={"X-Request-Id": "a b\tc"})["Request-Id"] != "a b\tc"


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:202", "192.0.2.2"),
        ("2001:db8:1:2:3::4", "2001:0db8:0001:0002::/64"),
    ],
)
def test_clients_with_ipv4_are_counted_each_also_behind_a_socket_for_both(rf, said, counted):
    assert address_of(rf.get("/", REMOTE_ADDR=said)) == counted


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ("198.51.100.7, 192.0.2.1:4711", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:db8::1]:4711", "2001:0db8:0000:0000::/64"),
        ("2001:db8::1", "2001:0db8:0000:0000::/64"),
    ],
)
def test_the_port_that_a_proxy_adds_to_the_client_makes_no_other_client(rf, settings, said, counted):
    settings.TRUST_PROXY = True

    assert address_of(rf.get("/", REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR=said)) == counted


def test_an_address_is_counted_whoever_asks_and_others_are_not_held_up(throttled):
    throttled.API_THROTTLE = "3/min"
    clients = [signed_in(f"user{n}", "customer") for n in range(4)]

    answers = [client.get(PRODUCTS, REMOTE_ADDR="192.0.2.1").status_code for client in clients]

    assert answers == [200, 200, 200, 429]
    assert clients[0].get(PRODUCTS, REMOTE_ADDR="192.0.2.2").status_code == 200


def test_wrong_tokens_are_counted_too(throttled):
    throttled.API_THROTTLE = "3/min"

    answers = [a_client().get(PRODUCTS, headers={"Authorization": f"Token {n}"}).status_code for n in range(5)]

    assert answers == [401, 401, 401, 429, 429]


def test_what_a_peer_says_of_its_address_counts_only_behind_a_trusted_proxy(throttled):
    throttled.API_THROTTLE = "2/min"
    spoofed = [a_client().get(PRODUCTS, headers={"X-Forwarded-For": f"198.51.100.{n}"}).status_code for n in range(3)]

    throttled.TRUST_PROXY = True
    behind = [a_client().get(PRODUCTS, headers={"X-Forwarded-For": f"9.9.9.{n}, 198.51.100.7"}).status_code for n in range(3)]

    assert spoofed == [200, 200, 429]
    assert behind == [200, 200, 429]


def test_a_new_window_forgives(throttled):
    throttled.API_THROTTLE = "1/min"
    assert [a_client().get(PRODUCTS).status_code for _ in range(2)] == [200, 429]

    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders_requestcount SET until = now() - interval '1 s'")

    assert a_client().get(PRODUCTS).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_two_web_processes_count_together(throttled):
    throttled.API_THROTTLE = "10/min"

    def ask(_n):
        try:
            return a_client().get(PRODUCTS, REMOTE_ADDR="192.0.2.9").status_code
        finally:
            connection.close()  # each thread has its own, as each process would

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(25)))

    assert (answers.count(200), answers.count(429)) == (10, 15)


def test_off_counts_nothing(throttled):
    throttled.API_THROTTLE = None

    assert {a_client().get(PRODUCTS).status_code for _ in range(5)} == {200}


@pytest.mark.parametrize("rate", ["", "120", "x/min", "0/min", "5/year", "-1/s"])
def test_a_rate_that_cannot_be_read_stops_the_start(rate):
    with pytest.raises(ImproperlyConfigured, match="API_THROTTLE"):
        parse_rate(rate)

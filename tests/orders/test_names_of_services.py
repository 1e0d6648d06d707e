"""Services are found by their names in the time that is left, at each of their addresses, and known by their certificates' names."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

import pytest

from orders.agents.payment import PaymentAgent
from orders.gateways import http
from supervision import OutcomeUnknown, TransientFailure
from supervision.runtime import names
from tests.support.tls import Authority, door

TOTAL = 2580
agent = PaymentAgent()


@pytest.mark.parametrize("proxy", ["", "http://proxy.example:3128"])
def test_a_name_server_without_an_answer_holds_no_call_longer_than_its_time(silent, step, settings, monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.2)
    http._client.cache_clear()
    settings.STRIPE_API_BASE = "http://silent.example"
    asked = "proxy.example" if proxy else "silent.example"
    try:
        with pytest.raises(TransientFailure) as failure:
            agent.perform(step.request())
    finally:
        http._client.cache_clear()

    assert not isinstance(failure.value, OutcomeUnknown)
    assert failure.value.unreachable
    assert {host for host, _port in names._looking} == {asked}, "the call waited for the end of the lookup"
    assert silent == [asked], "each try began a lookup, and a thread, of its own"


def test_silent_names_that_others_have_chosen_leave_room_for_the_names_of_services(services, silent, step, order, settings, monkeypatch):
    monkeypatch.setattr(names, "MOST_LOOKUPS", 1)
    with pytest.raises(names.Unresolved):
        names.look_up("theirs.example", 443, 0.05)
    settings.STRIPE_API_BASE = settings.STRIPE_API_BASE.replace("127.0.0.1", "localhost")

    agent.perform(step.request())

    assert silent == ["theirs.example"]
    assert services.charged(order) == TOTAL


def test_a_host_is_tried_at_each_of_its_addresses(services, step, order, settings, monkeypatch):
    usual = socket.getaddrinfo

    def meaning(host, port, *rest, **more):
        if host != "both.example":
            return usual(host, port, *rest, **more)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.9", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", meaning)
    settings.STRIPE_API_BASE = settings.STRIPE_API_BASE.replace("127.0.0.1", "both.example")

    agent.perform(step.request())

    assert services.charged(order) == TOTAL


def test_an_address_of_one_link_keeps_its_link(monkeypatch):
    usual = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: usual(host.replace("near.example", "fe80::1%1"), *rest, **more))

    assert [address for address, _seconds in names.tries("near.example", 80, 5)] == ["fe80::1%1"]


def test_a_service_is_known_by_its_name_and_not_by_its_address(services, step, order, settings, monkeypatch, tmp_path):
    ours, context = Authority(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.server.configure_cert(context)  # of the name localhost
    behind, usual = urlsplit(services.url), socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: usual(host.replace("other.example", "127.0.0.1"), *rest, **more))
    monkeypatch.setenv("SSL_CERT_FILE", ours.ca)
    http._client.cache_clear()
    try:
        with door(context, behind.hostname, behind.port) as port:
            for host in ("other.example", "127.0.0.1"):
                settings.STRIPE_API_BASE = f"https://{host}:{port}"
                with pytest.raises(TransientFailure, match="cannot be reached"):
                    agent.perform(step.request())
            assert services.charged(order) == 0
            settings.STRIPE_API_BASE = f"https://localhost:{port}"
            agent.perform(step.request())
            assert services.charged(order) == TOTAL
    finally:
        http._client.cache_clear()

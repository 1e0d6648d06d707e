"""Spans in one process: what calls carry, what sampling keeps, and a receiver that hangs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from orders.gateways import http
from sasproject.roles import ROOT
from supervision.telemetry import spans
from supervision.telemetry.trace_ids import trace_id
from supervision.telemetry.tracing import Tracing
from tests.support.otlp import receiver
from tests.support.serving import Handler, serving

FACTS = {"sas.step": "book-shipment", "sas.direction": "do"}


@pytest.fixture
def seen():
    """A service that keeps the headers of the requests it gets."""
    heads: list[dict[str, str]] = []

    class Service(Handler):
        def post(self) -> None:
            heads.append({name.lower(): value for name, value in self.headers.items()})
            self.answer(201)

    with serving(Service) as url:
        yield f"{url}/shipments", heads


@pytest.fixture
def tracing(monkeypatch):
    """Spans on in this process, sent to a receiver."""
    with receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)

        def begin() -> Tracing:
            active = Tracing("tests")
            monkeypatch.setattr(spans, "active", active, raising=False)
            monkeypatch.setattr(spans, "on", True)
            return active

        yield begin, found


def call(url: str) -> None:
    with http.budget(time.monotonic() + 5):
        http.send("carrier", "POST", url, {"Authorization": "Bearer key"})


def test_the_call_carries_the_trace_to_the_service(tracing, seen):
    begin, found = tracing
    (url, heads), active = seen, begin()

    with active.attempt("an-order", FACTS) as span:
        call(url)
        active.ended(span, "done")
    active.stop()

    attempt, sent = found.of(trace_id("an-order"))
    assert heads[0]["traceparent"].split("-")[:3] == ["00", trace_id("an-order"), sent.id]
    assert int(heads[0]["traceparent"][-2:], 16) & 1, "sampled"
    assert heads[0]["authorization"] == "Bearer key"
    assert sent.parent == attempt.id


def test_an_order_is_sampled_whole_or_not_at_all(tracing, seen, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    (begin, found), keys = tracing, [f"order-{number}" for number in range(200)]

    for _ in range(3):  # three processes
        active = begin()
        for key in keys:
            active.accepted("fulfil-order", [key])
            with active.attempt(key, FACTS):
                pass
        active.stop()

    counts = {key: len(found.of(trace_id(key))) for key in keys}
    assert set(counts.values()) == {0, 6}
    assert 60 < sum(map(bool, counts.values())) < 140


def test_a_receiver_that_hangs_delays_no_order_and_no_end():
    code = (
        "import time; from supervision.telemetry import spans; spans.start('agents'); began = time.monotonic()\n"
        "for number in range(3_000):\n"
        "    with spans.active.attempt(f'order-{number}', {'sas.step': 'a', 'sas.direction': 'do'}) as span:\n"
        "        spans.active.ended(span, 'done')\n"
        "print(time.monotonic() - began); began = time.monotonic(); spans.stop(); print(time.monotonic() - began)"
    )
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        env = {**os.environ, "DEBUG": "1", "DJANGO_SETTINGS_MODULE": "sasproject.settings", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        began = time.monotonic()
        command = [sys.executable, "-c", f"import django; django.setup()\n{code}"]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        whole = time.monotonic() - began

    assert done.returncode == 0, done.stderr
    worked, stopped = map(float, done.stdout.split())
    assert stopped < 8, "the end of the process waited for the receiver"
    assert worked < 9.5, "a span waited for the receiver, whose time limit is ten seconds"
    assert whole < 40, "something else waited for the receiver"

"""Log lines: JSON with order, run, attempt and trace; no value forges a line; Sentry learns nothing about people."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sasproject import logs
from sasproject.roles import ROOT
from supervision.telemetry import log_context
from supervision.telemetry.trace_ids import trace_id
from tests.support.serving import Handler, serving

FORGED = "ok\r\n2026-11-25 09:00:00,000 INFO orders: order 7 is refunded\x1b[2J"


def written(form: str, record: logging.LogRecord) -> list[str]:
    formatters = logs.settings(form, "INFO")["formatters"][form]
    kind = {"line": logs.Line, "json": logs.Json}[form]
    formatter = kind(**{{"format": "fmt"}.get(name, name): value for name, value in formatters.items() if name != "()"})
    log_context.Context().filter(record)
    return formatter.format(record).split("\n")


def record(message: str, *args: Any, error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.getLogger("orders").makeRecord("orders", logging.INFO, "file", 1, message, args, info, extra=extra)


def test_a_line_of_json_says_what_it_is_about():
    token = log_context.enter(log_context.Work("public-id", 12, "charge-payment", 3))
    try:
        [line] = written("json", record("no answer from %s", "payment"))
    finally:
        log_context.leave(token)
    found = json.loads(line)

    assert found.pop("time").startswith("20")
    assert found.pop("host")
    assert found.pop("role", "") is not None
    assert found == {
        "level": "INFO",
        "logger": "orders",
        "message": "no answer from payment",
        "order": "public-id",
        "run": 12,
        "step": "charge-payment",
        "attempt": 3,
        "trace": trace_id("public-id"),
    }
    [after] = written("json", record("something else"))
    assert not {"order", "run", "step", "attempt", "trace"} & json.loads(after).keys()


@pytest.mark.parametrize("form", ["line", "json"])
def test_no_value_forges_a_line(form):
    lines = written(form, record("the customer wrote %s", FORGED))
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert "\r" not in lines[0]

    first, *rest = written(form, record("failed", error=ValueError(FORGED)))
    assert "failed" in first
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in "".join(rest)


SECRET = "ada@example.com"
FAILING = f"""
import logging, os
from pathlib import Path
import django
from django.conf import settings
os.environ["DJANGO_SETTINGS_MODULE"] = "sasproject.settings"
django.setup()
settings.MIDDLEWARE, settings.ROOT_URLCONF = [], __name__
from django.urls import path
from django.test import Client
def view(request):
    address = request.body.decode()
    raise ValueError(f"no parcel for {{address}}")
urlpatterns = [path("fails/", view)]
client = Client(raise_request_exception=False, headers={{"X-Customer": "{SECRET}"}})
client.cookies["email"] = "{SECRET}"
client.post("/fails/?email={SECRET}", "{SECRET}", content_type="text/plain")
from supervision.telemetry import log_context
token = log_context.enter(log_context.Work("public-id", 12, "charge-payment", 3))
logging.getLogger("orders").error("cannot reach {SECRET}")
"""


@pytest.fixture
def sentry() -> Iterator[tuple[str, list[bytes]]]:
    """A DSN, and the envelopes that its receiver got."""
    bodies: list[bytes] = []

    class Sentry(Handler):
        def post(self) -> None:
            bodies.append(self.body())
            self.answer(200)

    with serving(Sentry) as url:
        yield url.replace("//", "//key@") + "/1", bodies


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DEBUG": "1", **environ}
    return subprocess.run([sys.executable, *words], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_sentry_gets_the_error_and_nothing_about_the_customer(sentry):
    dsn, bodies = sentry

    done = run("-c", FAILING, SENTRY_DSN=dsn)

    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for body in bodies for line in body.splitlines() if b'"platform"' in line]
    assert len(events) == 2, bodies
    told = b"".join(bodies).decode()
    assert "ValueError" in told
    assert SECRET not in told
    assert "cookies" not in told
    logged = next(event for event in events if event.get("logger") == "orders")
    assert "public-id" not in told, "with it the order's page can be seen"
    assert (logged["tags"]["run"], logged["tags"]["step"], logged["tags"]["attempt"]) == ("12", "charge-payment", "3")
    assert logged["tags"]["trace"] == trace_id("public-id")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("LOG_FORMAT", "xml", "LOG_FORMAT must be one of line, json, not 'xml'."),
        ("LOG_LEVEL", "chatty", "LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL, not 'CHATTY'."),
        ("TRACE_URL", "https://traces.example/", "TRACE_URL must be an http(s) address that contains {trace_id}"),
        ("TRACE_URL", "javascript:{trace_id}", "TRACE_URL must be an http(s) address that contains {trace_id}"),
        ("SENTRY_DSN", "sentry", "SENTRY_DSN cannot be used"),
    ],
)
def test_a_wrong_value_is_told_with_its_variable(name, value, told):
    done = run("manage.py", "check", **{name: value})

    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_receiver_nothing_is_imported():
    code = "import sasproject.asgi, sys; print([name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'sentry_sdk')])"
    quiet = {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "", "SENTRY_DSN": ""}

    done = run(
        "-c",
        code.replace(
            "sasproject.asgi",
            "django, os; os.environ['DJANGO_SETTINGS_MODULE']='sasproject.settings'; django.setup(); import"
            " supervision.execution.runner, supervision.telemetry.middleware, sasproject.handler",
        ),
        **quiet,
    )

    assert done.stdout.strip() == "[]", done.stderr

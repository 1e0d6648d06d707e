"""The key of a receiver of traces may stand in a file: the settings give it to what sends the spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from supervision.telemetry.tracing import exporter


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, str]]]:
    """The headers of each request to a receiver that the environment names."""
    found: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            found.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield found
        server.shutdown()


@pytest.mark.parametrize(
    ("ours", "of_traces", "sent"),
    [
        ("authorization=Bearer s3cret,x-scope=shop", "", ("Bearer s3cret", "shop")),
        ("authorization=Bearer s3cret", "authorization=Bearer traces", ("Bearer traces", None)),
        ("", "", (None, None)),
    ],
)
def test_the_receiver_gets_the_headers_of_the_settings(settings, monkeypatch, received, ours, of_traces, sent):
    settings.OTEL_EXPORTER_OTLP_HEADERS = ours
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", of_traces)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter()))

    with provider.get_tracer("test").start_as_current_span("a span"):
        pass
    provider.shutdown()

    assert [(headers.get("authorization"), headers.get("x-scope")) for headers in received] == [sent]

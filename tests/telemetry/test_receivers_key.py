"""The key of a receiver of traces may stand in a file: the settings give it to what sends the spans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from supervision.telemetry.tracing import exporter
from tests.support.serving import Handler, serving


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, str]]]:
    """The headers of each request to a receiver that the environment names."""
    found: list[dict[str, str]] = []

    class Receiver(Handler):
        def post(self) -> None:
            self.body()
            found.append({name.lower(): value for name, value in self.headers.items()})
            self.answer(200)

    with serving(Receiver) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        yield found


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

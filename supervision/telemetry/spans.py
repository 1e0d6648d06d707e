"""Whether this process tells of its work in spans (OpenTelemetry), and the trace of an order for people who look for it.

Spans are off unless OTEL_EXPORTER_OTLP_ENDPOINT is set. Then `start` loads the module `tracing`, and `on` is true; callers ask
`on` first, so that nothing is imported and nothing is done while it is off.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from supervision import conf
from supervision.telemetry import trace_ids

if TYPE_CHECKING:
    from supervision.telemetry.tracing import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
NEEDED = "opentelemetry.exporter.otlp.proto.http"
PLACE = "{trace_id}"

on = False
active: Tracing


def wanted() -> bool:
    """Whether the environment names a receiver of spans."""
    return any(os.environ.get(name) for name in ENDPOINTS) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def start(role: str) -> None:
    """Begin to send spans, if the environment names a receiver. Raises ImproperlyConfigured if the packages are missing."""
    global on, active
    if on or not wanted():
        return
    if find_spec("opentelemetry") is None or find_spec(NEEDED) is None:
        raise ImproperlyConfigured(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but the packages that send spans are missing: install sas-supervision[otel]"
        )
    active = import_module("supervision.telemetry.tracing").Tracing(role)
    on = True


def stop() -> None:
    """Send what is left, and send no more spans."""
    global on
    if on:
        on = False
        active.stop()


def trace_of(key: str) -> str | None:
    """The id of this order's trace; None if this installation has no traces (neither a receiver of spans nor TRACE_URL)."""
    return trace_ids.trace_id(key) if on or wanted() or conf.get().trace_url else None


def link_to(key: str) -> str | None:
    """The address of this order's trace; None without TRACE_URL."""
    return conf.get().trace_url.replace(PLACE, trace_ids.trace_id(key)) or None


def shown(key: str) -> dict[str, str | None] | None:
    """The id and the address of this order's trace, as the API tells them; None if this installation has no traces."""
    return {"id": trace, "url": link_to(key)} if (trace := trace_of(key)) else None

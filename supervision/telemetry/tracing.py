"""Sends spans with the SDK of OpenTelemetry. `spans.start` imports this module only when a receiver is named.

All spans of an order are in one trace, whose ids come from the order's public id (`trace_ids`). The root is the request that
placed the order, or its acceptance. Below it are the acceptance, each attempt of each step with its calls of services, what
the supervisor recovered, and each delivery of a status message. A request that brings a `traceparent` stays in its caller's trace,
and a link leads from there to the order's.

No span has the order's public id: a reader who knows it may see the order's page, and traces are often kept elsewhere.

The SDK sends on a thread of its own. While the receiver does not answer, spans are dropped and no work waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

from supervision.runtime.identity import me
from supervision.telemetry import trace_ids

STOP_SECONDS = 2.0  # how long the end of a process waits for its last spans
_propagator = TraceContextTextMapPropagator()


def exporter() -> OTLPSpanExporter:
    """What sends spans. The project's settings may name its headers, so that a key of the receiver need not stand in the environment."""
    given = str(getattr(settings, "OTEL_EXPORTER_OTLP_HEADERS", ""))
    if not given or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        return OTLPSpanExporter()
    return OTLPSpanExporter(headers=parse_env_headers(given, liberal=True))


class _Ids(RandomIdGenerator):
    """Random ids, except for the root of an order's trace."""

    given: ContextVar[tuple[int, int] | None] = ContextVar("given", default=None)

    def generate_trace_id(self) -> int:
        given = self.given.get()
        return given[0] if given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        given = self.given.get()
        return given[1] if given else super().generate_span_id()

    def is_trace_id_random(self) -> bool:
        return True


class Request:
    """A request that is being answered. caller: the caller's context, if it brought one."""

    def __init__(self, caller: Context | None) -> None:
        self.caller = caller
        self.began = time.time_ns()
        self.orders: list[str] = []


class Tracing:
    """The spans of this process. role: names the service, unless OTEL_SERVICE_NAME does."""

    def __init__(self, role: str) -> None:
        resource = Resource.create({"service.instance.id": me()})  # with what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": f"sas-{role}"}))
        self._provider = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter()))
        self._tracer = self._provider.get_tracer("supervision")
        self._request: ContextVar[Request | None] = ContextVar("request", default=None)

    # ------------------------------------------------------------------------------------------- requests and orders

    def request_began(self, traceparent: str | None) -> Request:
        """Note that this thread answers a request. Give the result to `request_ended`."""
        context = _propagator.extract({"traceparent": traceparent}, Context()) if traceparent else None
        caller = context if context is not None and trace.get_current_span(context).get_span_context().is_valid else None
        request = Request(caller)
        self._request.set(request)
        return request

    def request_ended(self, request: Request, method: str, route: str, status: int) -> None:
        """Tell of the request. It begins the trace of the order that it placed, unless its caller has a trace or it placed several."""
        self._request.set(None)
        facts: dict[str, Any] = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
        name, links = f"{method} {route}", [Link(self._root(key)) for key in request.orders]
        if request.orders and self._begins_trace(request):
            key = request.orders[0]
            span = self._start_root(key, name, SpanKind.SERVER, facts, request.began)
        else:
            context = request.caller or Context()
            span = self._tracer.start_span(name, context, SpanKind.SERVER, facts, links, request.began)
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _begins_trace(self, request: Request) -> bool:
        return request.caller is None and len(request.orders) == 1

    def accepted(self, workflow: str, keys: Sequence[str]) -> None:
        """Tell that these orders were committed."""
        request = self._request.get()
        facts = {"sas.workflow": workflow}
        if request is not None:
            request.orders += keys
        for key in keys:
            if request is not None and len(keys) == 1 and self._begins_trace(request):
                span = self._tracer.start_span("accept order", self._of_order(key), SpanKind.INTERNAL, facts, start_time=request.began)
            else:
                caller = request.caller if request is not None else None
                links = [Link(trace.get_current_span(caller).get_span_context())] if caller is not None else []
                span = self._start_root(key, "accept order", SpanKind.INTERNAL, facts, None, links)
            span.end()

    # -------------------------------------------------------------------------------------------------- steps and calls

    @contextmanager
    def attempt(self, key: str, facts: dict[str, Any], began: int | None = None) -> Iterator[Any]:
        """The span of one attempt. Calls of services inside the block are below it.

        facts: its attributes, with `sas.direction` and `sas.step`. began: in nanoseconds since 1970; None: now.
        """
        name = f"{facts['sas.direction']} {facts['sas.step']}"
        span = self._tracer.start_span(name, self._of_order(key), SpanKind.CONSUMER, facts, start_time=began)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            yield span

    def ended(self, span: Any, outcome: str, code: str = "") -> None:
        """Say how an attempt ended: `done`, or the failure's outcome and code. Messages of failures stay out: they may name people."""
        span.set_attribute("sas.outcome", outcome)
        if outcome != "done":
            span.set_attribute("error.type", code or outcome)
            span.set_status(Status(StatusCode.ERROR, code or outcome))

    @contextmanager
    def call(self, service: str, method: str, host: str, number: int) -> Iterator[tuple[Any, dict[str, str]]]:
        """The span of one call of a service, with the headers that carry the trace to it. number: how many calls came before it."""
        facts: dict[str, Any] = {"http.request.method": method, "peer.service": service, "server.address": host}
        facts["http.request.resend_count"] = number
        span = self._tracer.start_span(f"{method} {service}", kind=SpanKind.CLIENT, attributes=facts)
        headers: dict[str, str] = {}
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            _propagator.inject(headers)
            yield span, headers

    def answered(self, span: Any, status: int | None, error: str = "") -> None:
        """Say how a call ended: the answer's status, or why there is none."""
        if status is not None:
            span.set_attribute("http.response.status_code", status)
        if error or (status is not None and status >= 400):
            span.set_attribute("error.type", error or str(status))
            span.set_status(Status(StatusCode.ERROR))

    # ----------------------------------------------------------------------------------------------------------- others

    def told(self, key: str, name: str, facts: dict[str, Any], seconds: float = 0.0, *, kind: SpanKind = SpanKind.INTERNAL) -> None:
        """Tell of something in an order's trace that has ended now and took so long."""
        now = time.time_ns()
        began = now - int(seconds * 1e9)
        self._tracer.start_span(name, self._of_order(key), kind, facts, start_time=began).end(now)

    def delivered(self, key: str, kind: str, outcome: str, seconds: float) -> None:
        """Tell of one try to deliver a status message."""
        self.told(key, f"deliver {kind}", {"sas.outcome": outcome}, seconds, kind=SpanKind.PRODUCER)

    def stop(self) -> None:
        """Send what is left, for a moment. The SDK itself waits for a receiver that hangs, so its end has a thread of its own."""
        stopping = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)

    # ---------------------------------------------------------------------------------------------------------- the ids

    def _root(self, key: str) -> SpanContext:
        trace_id = int(trace_ids.trace_id(key), 16)
        return SpanContext(trace_id, int(trace_ids.root_span_id(key), 16), is_remote=True, trace_flags=self._flags(trace_id))

    def _flags(self, trace_id: int) -> TraceFlags:
        """Whether the order's trace is sampled: each process comes to the same answer, because the id decides."""
        decision = self._provider.sampler.should_sample(None, trace_id, "order").decision
        return TraceFlags(TraceFlags.SAMPLED if decision.is_sampled() else TraceFlags.DEFAULT)

    def _of_order(self, key: str) -> Context:
        return trace.set_span_in_context(NonRecordingSpan(self._root(key)), Context())

    def _start_root(self, key: str, name: str, kind: SpanKind, facts: dict[str, Any], began: int | None, links: Sequence[Link] = ()) -> Any:
        token = _Ids.given.set((int(trace_ids.trace_id(key), 16), int(trace_ids.root_span_id(key), 16)))
        try:
            return self._tracer.start_span(name, Context(), kind, facts, links, began)
        finally:
            _Ids.given.reset(token)

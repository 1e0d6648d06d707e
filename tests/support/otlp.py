"""A receiver of spans: an HTTP server that decodes what OTLP exporters send, with the protocol's own package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from tests.support.serving import Handler, serving


@dataclass(frozen=True)
class Span:
    """One span as it was received."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    began: int
    ended: int
    facts: dict[str, Any]
    links: tuple[str, ...]
    failed: bool


@dataclass
class Receiver:
    """The spans received so far."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)

    def of(self, trace: str) -> list[Span]:
        """The spans of one trace in the order in which they began."""
        return sorted((span for span in list(self.spans) if span.trace == trace), key=lambda span: span.began)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver on a free port."""
    found = Receiver()

    class Each(Handler):
        def post(self) -> None:
            found.spans += _decoded(self.body())
            self.answer(200, ExportTraceServiceResponse().SerializeToString(), "application/x-protobuf")

    with serving(Each) as found.url:
        yield found


def _decoded(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    service,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _values(span.attributes),
                    tuple(link.trace_id.hex() for link in span.links),
                    span.status.code == span.status.STATUS_CODE_ERROR,
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}

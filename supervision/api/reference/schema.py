"""How a view of the API becomes an operation of the OpenAPI schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from supervision.api.errors import PROBLEM
from supervision.api.shapes import ProblemAnswer, Shape, or_pending

ALWAYS = ("400", "401", "404", "405", "406", "429", "500", "503")
WITH_BODY = ("403", "409", "411", "413", "415")

IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="the order's ETag: 412 if the order has changed since"
)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    OpenApiParameter.HEADER,
    description="The same key with the same body gets the first answer again; the same key with another body is refused.",
)


class DoorSchema(AutoSchema):
    """Adds summaries, and the refusals that all operations have in common, each as a problem document.

    problem: its shape. names: of the components whose classes are named otherwise.
    """

    problem: type[Shape] = ProblemAnswer
    names: Mapping[str, str] = {"Act": "Action", "OneDelivery": "DeliveryDetail", "PatchedLimits": "Limits"}

    def get_summary(self) -> str:
        """The operation's id in words."""
        return self.get_operation_id().replace("_", " ").capitalize()

    def get_override_parameters(self) -> Any:
        """Add If-Match where the view takes it."""
        return [*super().get_override_parameters(), *([IF_MATCH] if self._matches() else [])]

    def _matches(self) -> bool:
        return self.method == "POST" and getattr(self.view, "matches", False)

    def _get_serializer_name(self, serializer: Any, direction: str, bypass_extensions: bool = False) -> str:
        name: str = super()._get_serializer_name(serializer, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        ending = "Request" if direction == "request" else ""
        core = name.removesuffix(ending).removesuffix("Answer")
        return self.names.get(core, core) + ending

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        responses = super()._get_response_bodies(direction)
        common = [
            *ALWAYS,
            *(("412",) if self._matches() else ()),
            *(WITH_BODY if self.method in ("POST", "PUT", "PATCH", "DELETE") else ("403",)),
        ]
        for status in common:
            if status not in responses:
                responses[status] = self._get_response_for_code(self.problem, status, [PROBLEM], direction)  # type: ignore[no-untyped-call]
        return dict(sorted(responses.items()))

    def get_request_serializer(self) -> Any:
        """The request of a verb is the view's `asks`, which an application may have replaced."""
        return getattr(self.view, "asks", None) or super().get_request_serializer()

    def get_response_serializers(self) -> Any:
        """The answer of a verb is the view's `answer`, which an application may have replaced."""
        answer = getattr(self.view, "answer", None)
        if answer is None:
            return super().get_response_serializers()
        return {202: or_pending(answer) if self.method == "POST" and getattr(self.view, "may_wait", False) else answer}

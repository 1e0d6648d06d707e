"""How the OpenAPI schema is made: every operation also declares the refusals that all operations have in common."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import build_bearer_security_scheme_object
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from orders.api.errors import PROBLEM
from orders.api.serializers import ProblemAnswer

ALWAYS = ("400", "401", "404", "405", "406", "429", "500", "503")
WITH_BODY = ("403", "409", "411", "413", "415")

PAGING = [
    OpenApiParameter("cursor", OpenApiTypes.STR, description="from `next` or `previous` of another page"),
    OpenApiParameter("page_size", {"type": "integer", "minimum": 1, "maximum": 200}, description="rows per page"),
]
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    OpenApiParameter.HEADER,
    description="The same key with the same body gets the first answer again; the same key with another body is refused (422).",
)


class DoorSchema(AutoSchema):
    """Adds the common refusals, each as a problem document."""

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        responses = super()._get_response_bodies(direction)
        common = [*ALWAYS, *(WITH_BODY if self.method in ("POST", "PUT", "PATCH", "DELETE") else ("403",))]
        for status in common:
            if status not in responses:
                responses[status] = self._get_response_for_code(ProblemAnswer, status, [PROBLEM], direction)  # type: ignore[no-untyped-call]
        return dict(sorted(responses.items()))


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`Authorization: Token <token>`."""

    target_class = "orders.api.authentication.TokenInOneQuery"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The same scheme as drf-spectacular's for REST framework's own tokens."""
        return build_bearer_security_scheme_object(header_name="Authorization", token_prefix="Token")  # noqa: S106 - a word of the protocol

"""The shop's part of the OpenAPI schema: what a refused order adds to a problem document, and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import build_bearer_security_scheme_object

from orders.api import problems  # noqa: F401 - adds the shop's to the catalogue
from orders.api.serializers import ProblemAnswer
from supervision.api.reference import schema


class DoorSchema(schema.DoorSchema):
    """The engine's, with the shop's problem document."""

    problem = ProblemAnswer
    names: Mapping[str, str] = {**schema.DoorSchema.names, "OrderRequest": "Order"}


class SessionOfABrowser(SessionScheme):
    """The browser's session."""

    target_class = "orders.api.authentication.WholeSession"
    priority = 0


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`Authorization: Token <token>`."""

    target_class = "orders.api.authentication.TokenInOneQuery"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The same scheme as drf-spectacular's for REST framework's own tokens."""
        return build_bearer_security_scheme_object(header_name="Authorization", token_prefix="Token")  # noqa: S106 - a word of the protocol

"""The base of every API view: bounded JSON bodies, problem documents, requests counted first, and the OpenAPI schema.

Accounts and limits are the application's: REST framework's settings name its authentication and throttle classes.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from supervision.api.errors import LengthRequired, problem_of
from supervision.api.permissions import SignedIn
from supervision.api.reference.schema import DoorSchema
from supervision.api.requests import BODY_LIMIT, BoundedJSONParser


def account_of(request: Request) -> AbstractBaseUser:
    """The signed-in account. The view's permissions have refused requests without one."""
    return cast(AbstractBaseUser, request.user)


def replay_mark(replayed: bool) -> dict[str, str]:
    """The header of an answer: whether an earlier request with the same key has done what this one asks for."""
    return {"Idempotent-Replayed": "true"} if replayed else {}


class Door(APIView):
    """One path of the API."""

    permission_classes = [SignedIn]
    parser_classes = [BoundedJSONParser]
    renderer_classes = [JSONRenderer]
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]
    schema = APIView.schema if isinstance(APIView.schema, DoorSchema) else DoorSchema()
    body_limit = BODY_LIMIT
    matches = False  # whether its POST takes If-Match

    def perform_authentication(self, request: Request) -> None:
        """Authenticate and count the request. A request with a wrong token counts too, and counting comes before other checks."""
        try:
            super().perform_authentication(request)
        finally:
            super().check_throttles(request)
        if request.META.get("HTTP_TRANSFER_ENCODING") and not request.META.get("CONTENT_LENGTH"):
            raise LengthRequired

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[Any, str]:
        """Skip the negotiation for the two `Accept` values that nearly all clients send."""
        if request.META.get("HTTP_ACCEPT", "*/*") in ("*/*", "application/json"):
            renderer = self.get_renderers()[0]
            return renderer, renderer.media_type
        return super().perform_content_negotiation(request, force)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Forbid caches to store the answer: it is true for one account at one moment."""
        response.headers.setdefault("Cache-Control", "no-store")
        return super().finalize_response(request, response, *args, **kwargs)

    def check_throttles(self, request: Request) -> None:
        """Do nothing: `perform_authentication` has counted the request."""

    def get_exception_handler(self) -> Any:
        """The application's handler if its settings name one; else ours."""
        return super().get_exception_handler() if "EXCEPTION_HANDLER" in api_settings.user_settings else problem_of

    def read(self, request: Request, serializer: type[BaseSerializer[Any]]) -> dict[str, Any]:
        """The validated body. Raises ValidationError naming the fields."""
        reader = serializer(data=request.data)
        reader.is_valid(raise_exception=True)
        return dict(reader.validated_data)

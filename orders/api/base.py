"""The base of every API view: problem documents, request counting, bounded JSON bodies."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from orders import queries
from orders.api.errors import LengthRequired
from orders.api.parsers import BODY_LIMIT
from orders.api.permissions import SignedIn, sees_all
from orders.queries import OrderView
from supervision.errors import UnknownRun


def account_of(request: Request) -> AbstractBaseUser:
    """The signed-in account. The view's permissions have refused requests without one."""
    return cast(AbstractBaseUser, request.user)


class Door(APIView):
    """One path of the API."""

    permission_classes = [SignedIn]
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]
    body_limit = BODY_LIMIT

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

    def read(self, request: Request, serializer: type[BaseSerializer[Any]]) -> dict[str, Any]:
        """The validated body. Raises ValidationError naming the fields."""
        reader = serializer(data=request.data)
        reader.is_valid(raise_exception=True)
        return dict(reader.validated_data)

    def visible_order(self, request: Request, public_id: str) -> OrderView:
        """The order, if the account may see it. Raises UnknownRun for foreign and for unknown ids, so clients cannot tell them apart."""
        view = queries.order_view(public_id, inside=sees_all(request.user))
        if view is None or not (view.account_id == request.user.pk or sees_all(request.user)):
            raise UnknownRun(public_id)
        return view

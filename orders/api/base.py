"""The base of the shop's API views: the engine's, and the orders that an account may see."""

from __future__ import annotations

from rest_framework.request import Request

from orders import queries
from orders.queries import OrderView
from supervision.api import base
from supervision.api.permissions import sees_all
from supervision.errors import UnknownRun


class Door(base.Door):
    """One path of the shop's API."""

    def visible_order(self, request: Request, public_id: str) -> OrderView:
        """The order, if the account may see it. Raises UnknownRun for foreign and for unknown ids, so clients cannot tell them apart."""
        view = queries.order_view(public_id, inside=sees_all(request.user))
        if view is None or not (view.account_id == request.user.pk or sees_all(request.user)):
            raise UnknownRun(public_id)
        return view

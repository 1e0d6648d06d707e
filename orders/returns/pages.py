"""The order page's form to return goods."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _

from orders.forms import ReturnForm
from orders.queries import OrderView
from orders.returns.asking import ask, left
from orders.services import Conflict, InvalidOrder, KeyReused
from orders.views import by_customer


@by_customer
def return_goods(request: HttpRequest, view: OrderView, by: Any) -> None:
    """Ask for a return. The form's key makes a second click harmless."""
    form = ReturnForm(request.POST, left=left(view))
    if not form.is_valid():
        messages.error(request, form.problem())
        return
    try:
        made = ask(view, form.lines(), form.cleaned_data["reason"], by=by, idempotency_key=form.cleaned_data["key"])
    except (Conflict, InvalidOrder, KeyReused):
        messages.warning(request, _("So many pieces of this order can not be returned any more."))
    else:
        if not made.replayed:
            messages.success(request, _("Your return is noted. Below you see what to do."))

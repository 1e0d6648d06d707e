"""The pages of the address book."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from orders.accounts import book
from orders.accounts.forms import AddressForm
from orders.accounts.own_forms import form_of
from orders.accounts.tables import SavedAddress


@login_required
@never_cache
@require_safe
def addresses(request: HttpRequest) -> HttpResponse:
    """All addresses of the account."""
    kept = book.addresses(request.user)
    return render(request, "orders/account/addresses.html", {"addresses": kept, "full": len(kept) >= book.MOST, "most": book.MOST})


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def address(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """A new address, or one that is changed. Another account's is not found."""
    user: Any = request.user
    row = None if pk is None else get_object_or_404(SavedAddress, pk=pk, account=user)
    form = AddressForm(request.POST or None, instance=row)
    if request.method == "POST" and form.is_valid():
        given, as_default = form.cleaned_data, form.cleaned_data["is_default"]
        try:
            if row is None:
                book.add(user, given, as_default=as_default)
            elif not book.change(user, row.pk, given, as_default=as_default):
                raise Http404
        except book.BookFull as full:
            form.add_error(None, str(full))
        else:
            messages.success(request, _("The address is saved."))
            return redirect("orders:addresses")
    return render(request, "orders/account/address.html", {"form": form, "row": row}, status=400 if form.errors else 200)


@form_of("orders:addresses")
def change_book(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete an address, or make it the default."""
    act = book.delete if "delete" in request.POST else book.make_default
    if not act(request.user, pk):
        raise Http404
    messages.success(request, _("The address is deleted.") if "delete" in request.POST else _("The checkout fills this address in now."))
    return redirect("orders:addresses")

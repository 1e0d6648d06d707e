"""The checkout of a signed-in customer: a saved address, or another one, which may be saved."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from orders.accounts import book
from orders.forms import ADDRESS_FIELDS, CheckoutForm
from orders.validation import AddressSerializer

NEW = "new"


class AccountCheckoutForm(CheckoutForm):
    """The checkout's form with the account's address book. address: the id of a saved one, or NEW for the one in the fields."""

    address = forms.CharField(required=False, max_length=20)
    save_address = forms.BooleanField(label=_("Save this address"), required=False, widget=forms.CheckboxInput)

    def __init__(self, data: Any = None, *, account: User, **kwargs: Any) -> None:
        self.saved = {str(one.pk): one for one in book.addresses(account)}
        self.chosen = data.get("address", NEW) if data is not None else next(iter(self.saved), NEW)
        row = self.saved.get(self.chosen)
        if row is None:
            self.chosen = NEW
        elif data is not None:
            data = data.copy()
            for name in ADDRESS_FIELDS:
                data[name] = getattr(row, name)
        super().__init__(data, **kwargs)

    def mark_wrong_fields(self) -> None:
        """Also show the fields of a saved address in which something is wrong, such as a country that is no longer delivered to."""
        super().mark_wrong_fields()
        if any(name in self.errors for name in ADDRESS_FIELDS):
            self.chosen = NEW

    def saved_choices(self) -> list[dict[str, Any]]:
        """The saved addresses, as they are offered."""
        return [{"value": pk, "row": row, "chosen": pk == self.chosen} for pk, row in self.saved.items()]

    def keep_address(self, account: User) -> None:
        """Save the address in the fields, if the customer asked for it. A full book stays as it is: the order was placed."""
        address = AddressSerializer(data={name: self.cleaned_data[name] for name in ADDRESS_FIELDS})
        if self.chosen == NEW and self.cleaned_data.get("save_address") and address.is_valid():
            with suppress(book.BookFull):
                book.add(account, address.validated_data)


def form_for(request: HttpRequest, *args: Any, **kwargs: Any) -> CheckoutForm:
    """The checkout's form for this visitor."""
    user: Any = request.user
    return AccountCheckoutForm(*args, account=user, **kwargs) if user.is_authenticated else CheckoutForm(*args, **kwargs)


def country_of(request: HttpRequest) -> str:
    """The country that the checkout's form names: of the saved address that is chosen, or of the field."""
    chosen = request.GET.get("address", NEW)
    if chosen.isascii() and chosen.isdecimal() and len(chosen) < 19 and request.user.is_authenticated:
        found = request.user.addresses.filter(pk=chosen).first()  # type: ignore[attr-defined]
        if found is not None:
            return str(found.country)
    return request.GET.get("country", "")

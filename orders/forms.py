"""The storefront's forms: fields and labels. `services.place_order` decides whether an order is acceptable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.conf import settings
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from orders.countries import country_choices
from orders.payments.codes import BANK_TRANSFER
from orders.validation import MAX_QUANTITY
from supervision.console.shared import LinesField

ADDRESS_FIELDS = ("name", "line1", "line2", "postal_code", "city", "country_area", "country")
PAYMENT_METHODS = (
    ("pm_card_visa", _("Visa test card"), _("Ends in 4242; every payment succeeds.")),
    ("pm_card_threeDSecure2Required", _("A card with a second factor"), _("The bank asks you to confirm the payment on its page.")),
    (BANK_TRANSFER, _("Bank transfer"), _("Your items are set aside until your transfer has come.")),
    ("pm_card_visa_chargeDeclined", _("A card that is declined"), _("To see what happens when a bank says no.")),
)


def payment_methods() -> list[tuple[str, Any, Any]]:
    """The payment methods that the shop takes: value, label, description."""
    return [one for one in PAYMENT_METHODS if one[0] != BANK_TRANSFER or settings.BANK_ACCOUNT]


class DescribedForm(forms.Form):
    """A form that ties each wrong field to its error message, also for assistive technology."""

    def full_clean(self) -> None:
        """Validate, then mark the fields that failed."""
        super().full_clean()
        if self.is_bound:
            self.mark_wrong_fields()

    def mark_wrong_fields(self) -> None:
        """Tie each wrong field to its message, and focus the first one."""
        wrong = [name for name in self.fields if name in self.errors and not self.fields[name].widget.is_hidden]
        for name in wrong:
            self.fields[name].widget.attrs |= {"aria-invalid": "true", "aria-describedby": f"wrong_{name}"}
        for name in wrong[:1]:
            self.fields[name].widget.attrs["autofocus"] = True

    def take_errors(self, errors: Mapping[str, Any]) -> None:
        """Put the validator's messages next to their fields; messages about other fields go to the top of the form."""
        for name, messages in errors.items():
            if name == "shipping_address" and isinstance(messages, Mapping):
                self.take_errors(messages)
            else:
                shown = name in self.fields and not self.fields[name].widget.is_hidden
                for message in _texts(messages):
                    self.add_error(name if shown else None, message)
        self.mark_wrong_fields()


class QuantityForm(forms.Form):
    """How many of a product; 0 takes it out of the cart."""

    quantity = forms.IntegerField(min_value=0, max_value=MAX_QUANTITY)


class CheckoutForm(DescribedForm):
    """The customer's e-mail, delivery address and payment method.

    token: this form's id; a form that is sent twice places one order.
    seen, expected_total: the prices that the page showed, so that a customer is never charged a price they did not see.
    """

    email = forms.EmailField(
        label=_("E-mail"), max_length=254, help_text=_("For the confirmation."), widget=forms.EmailInput({"autocomplete": "email"})
    )
    name = forms.CharField(label=_("Full name"), max_length=100, widget=forms.TextInput({"autocomplete": "name"}))
    line1 = forms.CharField(label=_("Street and number"), max_length=200, widget=forms.TextInput({"autocomplete": "address-line1"}))
    line2 = forms.CharField(
        label=_("Flat, floor, company"),
        max_length=200,
        required=False,
        widget=forms.TextInput({"autocomplete": "address-line2"}),
    )
    postal_code = forms.CharField(label=_("Postal code"), max_length=20, widget=forms.TextInput({"autocomplete": "postal-code"}))
    city = forms.CharField(label=_("City"), max_length=100, widget=forms.TextInput({"autocomplete": "address-level2"}))
    country_area = forms.CharField(
        label=_("Province or state"), max_length=100, required=False, widget=forms.TextInput({"autocomplete": "address-level1"})
    )
    country = forms.ChoiceField(label=_("Country"), widget=forms.Select({"autocomplete": "country"}))
    payment_method = forms.ChoiceField(
        label=_("Payment"),
        choices=lambda: [(value, label) for value, label, _about in payment_methods()],
        initial="pm_card_visa",
        widget=forms.RadioSelect,
    )
    token = forms.CharField(widget=forms.HiddenInput, max_length=64)
    seen = forms.CharField(widget=forms.HiddenInput, required=False, max_length=20_000)
    expected_total = forms.CharField(widget=forms.HiddenInput, max_length=20)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["country"].choices = [("", _("Choose a country")), *country_choices()]  # type: ignore[attr-defined]

    def payment_choices(self) -> list[dict[str, Any]]:
        """The demo's payment methods, each with a description."""
        chosen = self["payment_method"].value()
        return [{"value": value, "label": label, "about": about, "chosen": value == chosen} for value, label, about in payment_methods()]

    def order_request(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """The order request of the API's contract, from this form and the cart."""
        data = self.cleaned_data
        return {
            "email": data["email"],
            "shipping_address": {name: data[name] for name in ADDRESS_FIELDS if data[name] or name != "country_area"},
            "lines": lines,
            "payment_method": data["payment_method"],
            "expected_total": data["expected_total"],
            "language": get_language(),
        }


class PayForm(forms.Form):
    """How a customer pays after a refusal."""

    payment_method = forms.ChoiceField(choices=lambda: [(value, label) for value, label, _about in payment_methods()])

    def payment_choices(self) -> list[dict[str, Any]]:
        """The demo's payment methods, each with a description; none is chosen, because the last choice was refused."""
        return [{"value": value, "label": label, "about": about} for value, label, about in payment_methods()]


class CancelForm(DescribedForm):
    """The reason for a customer's cancellation."""

    reason = LinesField(
        label=_("Why do you cancel?"),
        max_length=500,
        required=False,
        widget=forms.Textarea({"rows": 2}),
    )


class ReturnForm(DescribedForm):
    """What comes back: a quantity for each product that may be returned, and the reason. key: makes a second click harmless."""

    reason = LinesField(label=_("Why do you return it?"), max_length=500, widget=forms.Textarea({"rows": 2}))
    key = forms.CharField(max_length=64, widget=forms.HiddenInput())

    def __init__(self, *args: Any, left: Mapping[str, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.left = left
        for sku, most in left.items():
            self.fields[f"quantity-{sku}"] = forms.IntegerField(min_value=0, max_value=most, required=False)

    def clean(self) -> dict[str, Any]:
        """At least one piece comes back."""
        cleaned = dict(super().clean() or {})
        if not self.errors and not any(cleaned.get(f"quantity-{sku}") for sku in self.left):
            raise forms.ValidationError(_("Choose how many pieces you return."))
        return cleaned

    def lines(self) -> list[dict[str, Any]]:
        """The chosen products with their quantities."""
        return [{"sku": sku, "quantity": pieces} for sku in self.left if (pieces := self.cleaned_data.get(f"quantity-{sku}"))]

    def typed(self, sku: str) -> str:
        """What the customer typed as this product's quantity."""
        return str(self.data.get(f"quantity-{sku}", "0"))

    def wrong(self, sku: str) -> list[str]:
        """What is wrong with it."""
        return [str(message) for message in self.errors.get(f"quantity-{sku}", [])]

    def renew(self, key: str) -> None:
        """Take another key, because the form's own leads to no return."""
        data: Any = self.data.copy()  # type: ignore[attr-defined]
        data["key"] = key
        self.data = data

    def problem(self) -> str:
        """What is wrong, in one sentence."""
        if "reason" in self.errors:
            return str(_("Tell us why you return it, in 500 characters at most."))
        return str(next(iter(self.non_field_errors()), "")) or str(_("Enter how many pieces you return: not more than you got."))


def _texts(messages: Any) -> list[str]:
    """Every message in nested lists and objects."""
    if isinstance(messages, Mapping):
        messages = messages.values()
    elif isinstance(messages, str):
        return [messages]
    return [text for message in messages for text in _texts(message)]

"""The forms of customers' accounts."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import password_validators_help_text_html, validate_password
from django.utils.translation import gettext_lazy as _

from orders.accounts.tables import SavedAddress
from orders.countries import country_choices
from orders.forms import ADDRESS_FIELDS, DescribedForm
from orders.validation import AddressSerializer


class SignInForm(DescribedForm, AuthenticationForm):
    """Mail address or username, and password."""

    error_messages = {
        "invalid_login": _(
            "These do not belong together. Check the address and the password; upper and lower case of the password matter."
        ),
        "inactive": _("This account is inactive."),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = _("E-mail or username")
        self.fields["username"].widget.attrs["autocomplete"] = "username"


class EmailForm(DescribedForm):
    """A mail address."""

    email = forms.EmailField(label=_("E-mail"), max_length=254, widget=forms.EmailInput({"autocomplete": "email"}))


class PasswordForm(DescribedForm):
    """A new password. address: of the account that it is for."""

    password = forms.CharField(
        label=_("Password"),
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        help_text=password_validators_help_text_html,
    )

    def __init__(self, *args: Any, address: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address = address

    def clean_password(self) -> str:
        """The password, if it is hard to guess."""
        said: str = self.cleaned_data["password"]
        address = self.cleaned_data.get("email", self.address)
        validate_password(said, User(username=address, email=address))
        return said


class SignUpForm(PasswordForm):
    """A new customer's mail address and password."""

    email = forms.EmailField(label=_("E-mail"), max_length=254, widget=forms.EmailInput({"autocomplete": "email"}))
    field_order = ("email", "password")


class OwnPasswordForm(DescribedForm):
    """Takes the password of the account that is signed in."""

    password = forms.CharField(label=_("Your password"), strip=False, widget=forms.PasswordInput({"autocomplete": "current-password"}))

    def __init__(self, *args: Any, account: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.account = account

    def clean_password(self) -> str:
        """The password, if it is the account's."""
        said: str = self.cleaned_data["password"]
        if not self.account.check_password(said):
            raise forms.ValidationError(_("This is not your password."))
        return said


class ChangeEmailForm(OwnPasswordForm, EmailForm):
    """Another mail address, with the account's password."""


class AddressForm(DescribedForm, forms.ModelForm):  # type: ignore[type-arg]
    """An address of the address book."""

    class Meta:
        model = SavedAddress
        fields = (*ADDRESS_FIELDS, "is_default")
        labels = {"is_default": _("Fill this address in at the checkout")}
        widgets = {
            "name": forms.TextInput({"autocomplete": "name"}),
            "line1": forms.TextInput({"autocomplete": "address-line1"}),
            "line2": forms.TextInput({"autocomplete": "address-line2"}),
            "postal_code": forms.TextInput({"autocomplete": "postal-code"}),
            "city": forms.TextInput({"autocomplete": "address-level2"}),
            "country_area": forms.TextInput({"autocomplete": "address-level1"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", _("Choose a country")), *country_choices()]
        self.fields["country"] = forms.ChoiceField(label=_("Country"), choices=choices, widget=forms.Select({"autocomplete": "country"}))

    def clean(self) -> dict[str, Any]:
        """The address by the rules of its country, as they are checked at the checkout."""
        cleaned = dict(super().clean() or {})
        if not self.errors:
            address = AddressSerializer(data={name: cleaned[name] for name in ADDRESS_FIELDS})
            if address.is_valid():
                cleaned |= address.validated_data
            else:
                self.take_errors(address.errors)
        return cleaned

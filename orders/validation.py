"""The form of a valid order request: one validator for all entry points (API, batch, intake queue, checkout, commands).

It checks only the request: no database, no prices. `services` checks everything that needs the catalogue. `merged` joins
two lines of the same product into one and adds their quantities.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.validators import EmailValidator, RegexValidator
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from orders.addresses import WrongAddress, checked
from orders.countries import delivery_countries
from orders.payments.codes import BANK_TRANSFER
from supervision.api.shapes import Choice, Strict, Text, Whole

MAX_LINES = 100
MAX_QUANTITY = 999
MAX_TOTAL = Decimal("999999.99")
MAX_KEY_LENGTH = 255

LANGUAGES = [code for code, _name in settings.LANGUAGES]
PRIORITIES = {"low": -1, "normal": 0, "high": 1}

_PAYMENT_METHOD = r"^(pm_[A-Za-z0-9_]{1,64}|bank_transfer)\Z"
_EXPECTED_METHOD = _("Expected the id of a payment method, pm_..., or bank_transfer.")
_SKU = r"^[-a-zA-Z0-9_]+\Z"
_AMOUNT = r"[0-9]{1,10}(\.[0-9]{1,2})?"
MONEY = rf"^{_AMOUNT}\Z"
_EXPECTED_TOTAL = rf"^{_AMOUNT}( [A-Z]{{3}})?\Z"
_KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def key_problem(key: Any) -> str | None:
    """The error of an idempotency key, or None."""
    if not isinstance(key, str) or len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        return str(_("An idempotency key is 1 to %(most)d printable ASCII characters.") % {"most": MAX_KEY_LENGTH})
    return None


class Pattern(Text):
    """A string that matches a pattern; the API's schema shows the pattern too."""

    def __init__(self, regex: str, message: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.validators.append(RegexValidator(regex, message=message))


class PaymentMethod(Pattern):
    """The id of a payment method. A bank transfer needs an account to go to."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(_PAYMENT_METHOD, _EXPECTED_METHOD, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        value = super().to_internal_value(data)
        if value == BANK_TRANSFER and not settings.BANK_ACCOUNT:
            raise serializers.ValidationError(_("This shop takes no bank transfers."), code="invalid_choice")
        return str(value)


class Email(Text):
    """An address that mail can be sent to."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=254, **kwargs)
        self.validators.append(EmailValidator(message=_("Enter a valid e-mail address.")))


@extend_schema_field({"type": "string", "enum": list(delivery_countries()), "description": "ISO 3166, two letters"})
class Country(Text):
    """The two letters of a country that the shop delivers to."""

    def to_internal_value(self, data: Any) -> str:
        value = super().to_internal_value(data)
        if value not in delivery_countries():
            raise serializers.ValidationError(
                _("Expected the two letters (ISO 3166) of a country that we deliver to."), code="invalid_choice"
            )
        return value


class AddressSerializer(Strict):
    """The delivery address, by the rules of its country."""

    name = Text(max_length=100)
    line1 = Text(max_length=200)
    line2 = Text(max_length=200, required=False, allow_blank=True, default="")
    city = Text(max_length=100)
    postal_code = Text(max_length=20)
    country_area = Text(
        max_length=100, required=False, allow_blank=True, help_text="the province or state; needed where the postal code does not tell it"
    )
    country = Country()

    def validate(self, attrs: Any) -> Any:
        """Check what the country's rules say, of an address that names its country."""
        try:
            return checked(attrs) if {"country", "postal_code"} <= set(attrs) else attrs
        except WrongAddress as wrong:
            raise serializers.ValidationError(wrong.errors) from None


class LineSerializer(Strict):
    """One product and its quantity."""

    sku = Pattern(_SKU, _("Expected letters, digits, - and _."), max_length=64)
    quantity = Whole(min_value=1, max_value=MAX_QUANTITY)


class OrderRequestSerializer(Strict):
    """An order request. Unknown fields are refused at every level. Two lines of the same product are merged."""

    email = Email()
    shipping_address = AddressSerializer()
    lines = LineSerializer(many=True, min_length=1, max_length=MAX_LINES)  # type: ignore[call-arg]
    payment_method = PaymentMethod()
    priority = Choice(choices=list(PRIORITIES), required=False, default="normal")
    language = Choice(
        choices=LANGUAGES,
        required=False,
        default=settings.LANGUAGE_CODE,
        help_text="of the mails and documents for the customer",
    )
    session_key = Text(max_length=200, required=False, allow_null=True, default=None)
    expected_total = Pattern(
        _EXPECTED_TOTAL,
        _('Expected an amount as a decimal string, such as "25.80", or with its currency, such as "25.80 EUR".'),
        required=False,
        allow_null=True,
        default=None,
        help_text="the total that the customer has seen; refused if it is another one now. With a currency, that is compared, too",
    )
    reply_to = Text(  # `services` checks that it is one of this account's tokens
        max_length=200, required=False, allow_null=True, default=None, help_text="a reply token issued by this server"
    )


_validator = OrderRequestSerializer()


def read_order(data: Any) -> dict[str, Any]:
    """The validated request. Raises REST framework's ValidationError.

    All requests share one serializer instance: making one per request would cost more than the validation.
    """
    try:
        return dict(_validator.run_validation(data))
    except serializers.ValidationError as error:
        if isinstance(error.detail, dict):
            raise
        raise serializers.ValidationError({"non_field_errors": error.detail}) from None


class AmendSerializer(Strict):
    """The fields that an operator may correct in a running order."""

    email = Email(required=False)
    shipping_address = AddressSerializer(required=False)
    payment_method = PaymentMethod(required=False)


class PaySerializer(Strict):
    """How an order is paid again after a refusal."""

    payment_method = PaymentMethod()


def merged(lines: Sequence[Mapping[str, Any]]) -> tuple[dict[str, int], dict[str, int]]:
    """The quantity of each SKU, sorted by first mention, and the index of the line that mentions it first."""
    wanted: dict[str, int] = {}
    first: dict[str, int] = {}
    for index, line in enumerate(lines):
        wanted[line["sku"]] = wanted.get(line["sku"], 0) + line["quantity"]
        first.setdefault(line["sku"], index)
    return wanted, first

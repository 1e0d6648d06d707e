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
from rest_framework.fields import empty

MAX_LINES = 100
MAX_QUANTITY = 999
MAX_TOTAL = Decimal("999999.99")
MAX_KEY_LENGTH = 255

PRIORITIES = {"low": -1, "normal": 0, "high": 1}

# The countries that the shop delivers to, unless the setting DELIVERY_COUNTRIES overrides them: ISO 3166, two letters.
DELIVERY_COUNTRIES = (  # noqa: SIM905 - easier to read than a list of strings
    "AD AR AT AU BE BG BR CA CH CL CY CZ DE DK EE ES FI FR GB GR HR HU IE IS IT JP LI LT LU LV MC MT MX NL NO NZ "
    "PL PT RO SE SG SI SK SM US UY VA"
).split()

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_PAYMENT_METHOD = r"^pm_[A-Za-z0-9_]{1,64}\Z"
_SKU = r"^[-a-zA-Z0-9_]+\Z"
_MONEY = r"^[0-9]{1,10}(\.[0-9]{1,2})?\Z"
_KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def delivery_countries() -> Sequence[str]:
    """The countries an order may go to."""
    return getattr(settings, "DELIVERY_COUNTRIES", DELIVERY_COUNTRIES)


def key_problem(key: Any) -> str | None:
    """The error of an idempotency key, or None."""
    if not isinstance(key, str) or len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        return str(_("An idempotency key is 1 to %(most)d printable ASCII characters.") % {"most": MAX_KEY_LENGTH})
    return None


class Text(serializers.CharField):
    """A string. Numbers and control characters are refused."""

    default_error_messages = {
        "invalid": _("Expected a string."),
        "control": _("Control characters are not allowed."),
    }

    def run_validation(self, data: Any = empty) -> Any:
        if data is not empty and data is not None and not isinstance(data, str):
            self.fail("invalid")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> str:
        if _CONTROL.search(data):
            self.fail("control")
        return str(super().to_internal_value(data))


class Pattern(Text):
    """A string that matches a pattern; the API's schema shows the pattern too."""

    def __init__(self, regex: str, message: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.validators.append(RegexValidator(regex, message=message))


class Email(Text):
    """An address that mail can be sent to."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=254, **kwargs)
        self.validators.append(EmailValidator(message=_("Enter a valid e-mail address.")))


class Whole(serializers.IntegerField):
    """An integer. Booleans, floats and strings are refused."""

    default_error_messages = {"invalid": _("Expected a whole number.")}

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return data


class Choice(serializers.ChoiceField):
    """One of a few words. The error message lists them and does not repeat the value that was sent."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            words = ", ".join(map(str, self.choices))
            raise serializers.ValidationError(_("Expected one of: %(words)s.") % {"words": words}, code="invalid_choice")
        return data


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


class Strict(serializers.Serializer[Any]):
    """A JSON object with exactly the declared fields."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return super().to_internal_value(data)
        problems: dict[str, Any] = {}
        for name in list(data.keys() - self.fields.keys())[:20]:
            problems[str(name)[:100]] = [_("This field is not known.")]
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            problems.update(error.detail)  # type: ignore[arg-type]
        if problems:
            raise serializers.ValidationError(problems)
        return value


class AddressSerializer(Strict):
    """The delivery address."""

    name = Text(max_length=100)
    line1 = Text(max_length=200)
    line2 = Text(max_length=200, required=False, allow_blank=True, default="")
    city = Text(max_length=100)
    postal_code = Text(max_length=20)
    country = Country()


class LineSerializer(Strict):
    """One product and its quantity."""

    sku = Pattern(_SKU, _("Expected letters, digits, - and _."), max_length=64)
    quantity = Whole(min_value=1, max_value=MAX_QUANTITY)


class OrderRequestSerializer(Strict):
    """An order request. Unknown fields are refused at every level. Two lines of the same product are merged."""

    email = Email()
    shipping_address = AddressSerializer()
    lines = LineSerializer(many=True, min_length=1, max_length=MAX_LINES)  # type: ignore[call-arg]
    payment_method = Pattern(_PAYMENT_METHOD, _("Expected the id of a payment method, pm_..."))
    priority = Choice(choices=list(PRIORITIES), required=False, default="normal")
    session_key = Text(max_length=200, required=False, allow_null=True, default=None)
    expected_total = Pattern(
        _MONEY, _('Expected an amount as a decimal string, such as "25.80".'), required=False, allow_null=True, default=None
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
    payment_method = Pattern(_PAYMENT_METHOD, _("Expected the id of a payment method, pm_..."), required=False)


def merged(lines: Sequence[Mapping[str, Any]]) -> tuple[dict[str, int], dict[str, int]]:
    """The quantity of each SKU, sorted by first mention, and the index of the line that mentions it first."""
    wanted: dict[str, int] = {}
    first: dict[str, int] = {}
    for index, line in enumerate(lines):
        wanted[line["sku"]] = wanted.get(line["sku"], 0) + line["quantity"]
        first.setdefault(line["sku"], index)
    return wanted, first

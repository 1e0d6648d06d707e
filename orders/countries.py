"""The countries that the shop delivers to, and their names, from the Unicode CLDR."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import normalize

from django.conf import settings

from orders.formats import locale

# Unless the setting DELIVERY_COUNTRIES overrides them: ISO 3166, two letters.
DELIVERY_COUNTRIES = (  # noqa: SIM905 - easier to read than a list of strings
    "AD AR AT AU BE BG BR CA CH CL CY CZ DE DK EE ES FI FR GB GR HR HU IE IS IT JP LI LT LU LV MC MT MX NL NO NZ "
    "PL PT RO SE SG SI SK SM US UY VA"
).split()


def delivery_countries() -> Sequence[str]:
    """The countries an order may go to."""
    return getattr(settings, "DELIVERY_COUNTRIES", DELIVERY_COUNTRIES)


def country_name(code: str) -> str:
    """A country's name in the active language, or its code if it has no name."""
    return str(locale().territories.get(code, code))


def country_choices() -> list[tuple[str, str]]:
    """The countries that can be chosen at checkout, by name; letters with accents are among those without."""
    return sorted(((code, country_name(code)) for code in delivery_countries()), key=lambda pair: normalize("NFKD", pair[1]))

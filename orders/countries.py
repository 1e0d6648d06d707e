"""Country names for the pages. `orders.validation` decides which countries the shop delivers to."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from orders.validation import delivery_countries

NAMES = {
    "AD": _("Andorra"),
    "AR": _("Argentina"),
    "AT": _("Austria"),
    "AU": _("Australia"),
    "BE": _("Belgium"),
    "BG": _("Bulgaria"),
    "BR": _("Brazil"),
    "CA": _("Canada"),
    "CH": _("Switzerland"),
    "CL": _("Chile"),
    "CY": _("Cyprus"),
    "CZ": _("Czechia"),
    "DE": _("Germany"),
    "DK": _("Denmark"),
    "EE": _("Estonia"),
    "ES": _("Spain"),
    "FI": _("Finland"),
    "FR": _("France"),
    "GB": _("United Kingdom"),
    "GR": _("Greece"),
    "HR": _("Croatia"),
    "HU": _("Hungary"),
    "IE": _("Ireland"),
    "IS": _("Iceland"),
    "IT": _("Italy"),
    "JP": _("Japan"),
    "LI": _("Liechtenstein"),
    "LT": _("Lithuania"),
    "LU": _("Luxembourg"),
    "LV": _("Latvia"),
    "MC": _("Monaco"),
    "MT": _("Malta"),
    "MX": _("Mexico"),
    "NL": _("Netherlands"),
    "NO": _("Norway"),
    "NZ": _("New Zealand"),
    "PL": _("Poland"),
    "PT": _("Portugal"),
    "RO": _("Romania"),
    "SE": _("Sweden"),
    "SG": _("Singapore"),
    "SI": _("Slovenia"),
    "SK": _("Slovakia"),
    "SM": _("San Marino"),
    "US": _("United States"),
    "UY": _("Uruguay"),
    "VA": _("Vatican City"),
}


def country_name(code: str) -> str:
    """A country's name in the active language, or its code if it has no name here."""
    return str(NAMES.get(code, code))


def country_choices() -> list[tuple[str, str]]:
    """The countries that can be chosen at checkout, by name."""
    return sorted(((code, country_name(code)) for code in delivery_countries()), key=lambda pair: pair[1])

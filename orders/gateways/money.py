"""Amounts in Stripe's form: whole minor units by ISO 4217, with the exceptions in its list of supported currencies.

Króna and Ugandan shilling have no minor unit any more, but Stripe still takes them with two decimals, which must be 00. It takes
the Malagasy ariary without decimals. Amounts in currencies with three decimals must end in 0.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from orders.currencies import THREE_DECIMALS, decimals

_STRIPES = {"ISK": 2, "UGX": 2, "MGA": 0}
_STEPS = {"ISK": 100, "UGX": 100, **dict.fromkeys(THREE_DECIMALS, 10)}  # an amount must be a multiple of this


class NoSuchAmount(ValueError):
    """This amount cannot be charged in this currency."""


def _units(currency: str) -> int:
    """How many digits of an amount in minor units are decimals."""
    return _STRIPES.get(currency.upper(), decimals(currency))


def to_minor(total: str | Decimal, currency: str) -> int:
    """An amount of money in minor units. Raises NoSuchAmount if Stripe would refuse it."""
    try:
        scaled = Decimal(total).scaleb(_units(currency))
        if scaled > 0 and scaled == scaled.to_integral_value() and scaled % _STEPS.get(currency.upper(), 1) == 0:
            return int(scaled)
    except InvalidOperation:
        pass
    raise NoSuchAmount(f"{total} {currency}")


def from_minor(amount: int, currency: str) -> Decimal:
    """An amount in minor units as an amount of money."""
    return Decimal(amount).scaleb(-_units(currency))

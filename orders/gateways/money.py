"""Amounts in Stripe's form: whole minor units, with the exceptions in its list of supported currencies.

Currencies have two decimals unless listed below. Króna and Ugandan shilling have no minor unit any more, but Stripe still
takes them with two decimals, which must be 00. Amounts in currencies with three decimals must end in 0.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

_NO_DECIMALS = frozenset(["BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF"])
_THREE_DECIMALS = frozenset(["BHD", "JOD", "KWD", "OMR", "TND"])
_STEPS = {"ISK": 100, "UGX": 100, **dict.fromkeys(_THREE_DECIMALS, 10)}  # an amount must be a multiple of this


class NoSuchAmount(ValueError):
    """This amount cannot be charged in this currency."""


def decimals(currency: str) -> int:
    """How many digits of an amount in minor units are decimals."""
    code = currency.upper()
    return 0 if code in _NO_DECIMALS else 3 if code in _THREE_DECIMALS else 2


def to_minor(total: str | Decimal, currency: str) -> int:
    """An amount of money in minor units. Raises NoSuchAmount if Stripe would refuse it."""
    try:
        scaled = Decimal(total).scaleb(decimals(currency))
        if scaled > 0 and scaled == scaled.to_integral_value() and scaled % _STEPS.get(currency.upper(), 1) == 0:
            return int(scaled)
    except InvalidOperation:
        pass
    raise NoSuchAmount(f"{total} {currency}")


def from_minor(amount: int, currency: str) -> Decimal:
    """An amount in minor units as an amount of money."""
    return Decimal(amount).scaleb(-decimals(currency))

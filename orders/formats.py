"""Amounts of money, numbers and dates as the reader's language writes them, by the Unicode CLDR (Babel).

But an amount has the decimals that it is charged with. The CLDR leaves out those that no coin has: of the dinar in Serbia and Iraq,
of the lek in Albania.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from copy import copy
from datetime import UTC, datetime
from decimal import Decimal

from babel import Locale, dates, numbers
from django.conf import settings
from django.utils import translation

from orders.currencies import decimals


def locale() -> Locale:
    """Babel's locale of the active language."""
    return Locale.parse(translation.to_locale(translation.get_language() or settings.LANGUAGE_CODE))


def speaking(language: str | None) -> AbstractContextManager[None]:
    """The language of a customer, for a mail or a document; the shop's own if it is not known or not offered any more."""
    return translation.override(language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE)


def money(amount: Decimal | str | int, currency: str = "EUR") -> str:
    """An amount with its currency: €1,234.50; 1.234,50 €; € 1.234,50."""
    exact, pattern = Decimal(amount), copy(locale().currency_formats["standard"])
    pattern.frac_prec = (shown(exact, currency),) * 2
    return numbers.format_currency(exact, currency, pattern, locale(), currency_digits=False)


def shown(amount: Decimal, currency: str) -> int:
    """With how many decimals this amount is shown: those of its currency, and more where it has more. It is not rounded."""
    has = -int(amount.normalize().as_tuple().exponent)
    return max(decimals(currency), 2 if has == 1 else has)


def number(value: Decimal | int | str) -> str:
    """A number with the language's separators."""
    return numbers.format_decimal(Decimal(value), locale=locale())


def day(at: datetime) -> str:
    """A date, short: Jan 5, 2026; 5 gen 2026."""
    return dates.format_date(at.astimezone(UTC).date(), "medium", locale=locale())


def moment(at: datetime) -> str:
    """A date and time of day, with its zone: Jan 5, 2026 14:30 UTC."""
    return f"{day(at)} {at.astimezone(UTC):%H:%M} UTC"

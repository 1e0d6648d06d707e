"""Amounts of money, numbers and dates as the reader's language writes them, by the Unicode CLDR (Babel)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from decimal import Decimal

from babel import Locale, dates, numbers
from babel.core import get_global
from django.conf import settings
from django.utils import translation

WITHOUT_DECIMALS = sorted(code for code, (digits, *_cash) in get_global("currency_fractions").items() if not digits)  # currencies


def locale() -> Locale:
    """Babel's locale of the active language."""
    return Locale.parse(translation.to_locale(translation.get_language() or settings.LANGUAGE_CODE))


def speaking(language: str | None) -> AbstractContextManager[None]:
    """The language of a customer, for a mail or a document; the shop's own if it is not known or not offered any more."""
    return translation.override(language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE)


def money(amount: Decimal | str | int, currency: str = "EUR") -> str:
    """An amount with its currency: €1,234.50; 1.234,50 €; € 1.234,50."""
    return numbers.format_currency(Decimal(amount), currency, locale=locale())


def decimals(currency: str) -> int:
    """How many decimals amounts of this currency have."""
    return int(numbers.get_currency_precision(currency))


def number(value: Decimal | int | str) -> str:
    """A number with the language's separators."""
    return numbers.format_decimal(Decimal(value), locale=locale())


def day(at: datetime) -> str:
    """A date, short: Jan 5, 2026; 5 gen 2026."""
    return dates.format_date(at.astimezone(UTC).date(), "medium", locale=locale())


def moment(at: datetime) -> str:
    """A date and time of day, with its zone: Jan 5, 2026 14:30 UTC."""
    return f"{day(at)} {at.astimezone(UTC):%H:%M} UTC"

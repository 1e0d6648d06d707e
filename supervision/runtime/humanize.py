"""Moments, ages and numbers as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

_in_iso = ContextVar("_in_iso", default=False)


@contextmanager
def iso_times() -> Iterator[None]:
    """Let `clock` write every moment as ISO 8601 in UTC, for texts beside such times."""
    before = _in_iso.set(True)
    try:
        yield
    finally:
        _in_iso.reset(before)


def age_in_words(age: timedelta | float | None) -> str:
    """How long ago, in one unit; a clock that is a little ahead counts as now."""
    if age is None:
        return _("never")
    seconds = max(0, int(age.total_seconds() if isinstance(age, timedelta) else age))
    if seconds < 60:
        return ngettext("%(n)d second", "%(n)d seconds", seconds) % {"n": seconds}
    now = timezone.now()
    return timesince(now - timedelta(seconds=seconds), now, depth=1)


def moment(at: datetime, *, exact: bool = False) -> str:
    """A moment in the viewer's zone, as every page of the console writes it. exact: to the millisecond."""
    local = timezone.localtime(at)
    milliseconds = f".{local.microsecond // 1000:03d}" if exact else ""
    return f"{local:%Y-%m-%d %H:%M:%S}{milliseconds} {local:%Z}"


def utc(at: datetime | None) -> str:
    """A moment for commands, mails and errors, where no viewer's zone is known. Empty for None."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def at_of(entry: Mapping[str, Any]) -> str:
    """The moment of an entry in a log of tries, which keeps it as ISO 8601."""
    return moment(datetime.fromisoformat(entry["at"]))


def clock(at: datetime | None) -> str:
    """A moment within a sentence."""
    if at is None:
        return "-"
    if _in_iso.get():
        return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return moment(at)


def duration(span: timedelta) -> str:
    """A span of time to the millisecond: `3 h 2 min 1.234 s`."""
    whole = max(0, round(span / timedelta(milliseconds=1)))
    minutes, milliseconds = divmod(whole, 60_000)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, _("%(n)d d")), (hours, _("%(n)d h")), (minutes, _("%(n)d min"))]
    shown = [words % {"n": count} for place, (count, words) in enumerate(parts) if any(one for one, _words in parts[: place + 1])]
    seconds = number_format(Decimal(milliseconds) / 1000, 3, use_l10n=True)
    return " ".join([*shown, _("%(seconds)s s") % {"seconds": seconds}])


def number(value: float) -> str:
    """A number in the viewer's language, with separators between thousands and no empty decimals."""
    return str(number_format(int(value) if float(value).is_integer() else value, use_l10n=True, force_grouping=True))

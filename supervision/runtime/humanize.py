"""Moments, ages and numbers as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

SECONDS_MATTER = timedelta(minutes=10)
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


def clock(at: datetime | None, now: datetime) -> str:
    """A moment in the viewer's time: to the second when it is near, with the day when it is another one."""
    if at is None:
        return "-"
    if _in_iso.get():
        return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    local = timezone.localtime(at)
    words = f"{local:%H:%M:%S}" if abs(at - now) < SECONDS_MATTER else f"{local:%H:%M}"
    return words if local.date() == timezone.localtime(now).date() else f"{date_format(local, 'SHORT_DATE_FORMAT')} {words}"


def number(value: float) -> str:
    """A number in the viewer's language, with separators between thousands and no empty decimals."""
    return str(number_format(int(value) if float(value).is_integer() else value, use_l10n=True, force_grouping=True))

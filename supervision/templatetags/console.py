"""Template filters for states, times and data in the console. None of them marks its result as safe: all is escaped."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.utils import timezone
from django.utils.formats import number_format

from supervision.console.shared import TONES
from supervision.console.shared import run_address as _address
from supervision.models.labels import RUN_LABELS, STEP_LABELS
from supervision.runtime import humanize
from supervision.runtime.humanize import age_in_words

register = template.Library()
_TONES = {state.value: tone for state, tone in TONES.items()} | {"Skipped": "warning"}
_LABELS = {state.value: label for labels in (STEP_LABELS, RUN_LABELS) for state, label in labels.items()}


@register.filter
def run_address(run_id: int) -> str:
    """The page of one run."""
    return _address(run_id)


@register.filter
def tone(state: Any) -> str:
    """The colour family of a state; templates always show text beside it."""
    return _TONES.get(str(state), "neutral")


@register.filter
def state_label(state: Any) -> Any:
    """A state in the reader's language; other values are returned unchanged."""
    return _LABELS.get(str(state), state)


@register.filter
def age(span: timedelta | None) -> str:
    """A time span in one unit."""
    return age_in_words(span)


@register.filter
def timesince_words(moment_: datetime) -> str:
    """How long ago a moment was."""
    return age_in_words(timezone.now() - moment_)


@register.filter
def moment(value: Any) -> Any:
    """A time in the console's one format; other values are returned unchanged."""
    return humanize.moment(value) if isinstance(value, datetime) else value


@register.filter
def exact(value: Any) -> Any:
    """The same to the millisecond, for what is about steps."""
    return humanize.moment(value, exact=True) if isinstance(value, datetime) else value


@register.filter
def duration(span: timedelta | None) -> str:
    """A span of time to the millisecond; empty for None."""
    return "" if span is None else humanize.duration(span)


@register.filter
def milliseconds(seconds: float) -> str:
    """A number of seconds to the millisecond."""
    return humanize.duration(timedelta(seconds=seconds))


@register.filter
def grouped(number: Any) -> str:
    """A number with separators between thousands."""
    return number_format(number, use_l10n=True, force_grouping=True) if isinstance(number, int) else str(number)


@register.filter
def as_json(value: Any) -> str:
    """Data as indented JSON; a text is returned unchanged."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)

"""Template filters for states, times and data in the console. All but `lean`, which gets safe text, return text that is escaped."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from django import template
from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe
from unfold.templatetags.unfold_list import result_headers

from supervision.console.shared import TONES
from supervision.console.shared import run_address as _address
from supervision.console.verb_forms import label_of
from supervision.models.labels import RUN_LABELS, STEP_LABELS
from supervision.runtime import humanize
from supervision.runtime.humanize import age_in_words
from supervision.runtime.retold import retold

register = template.Library()
register.filter("retold", retold)
register.filter("verb_label", label_of)
_TONES = {state.value: tone for state, tone in TONES.items()} | {"Skipped": "warning"}
_LABELS = {state.value: label for labels in (STEP_LABELS, RUN_LABELS) for state, label in labels.items()}


_CELL = re.compile(r'^<(t[dh]) class="([\w-]+)[^"]*"( data-label="[^"]*")?>(<a href="[^"]*") class="[^"]*" ')
_LABEL = re.compile(r'(?<= data-label=")\w')  # a phone shows it before the cell: with a capital, as the column's header has
_PLAIN = re.compile(r'^<(t[dh]) class="([\w-]+)[^"]*"( data-label="[^"]*")?')


@register.filter
def lean(cell: SafeString, one_line: bool = False) -> SafeString:
    """A cell of a list without the theme's classes: of 50 rows they were three quarters of the page. one_line: nor its label."""
    label = "" if one_line else r"\3"
    shorter = _LABEL.sub(lambda found: found[0].upper(), _CELL.sub(rf'<\1 class="\2"{label}>\4', cell, count=1), count=1)
    return mark_safe(_PLAIN.sub(rf'<\1 class="\2"{label}', shorter, count=1))  # noqa: S308 - only attributes go  # nosemgrep: text-marked-safe


@register.simple_tag
def run_rows(cl: Any) -> dict[str, Any]:
    """The headers of a list of runs, and its rows. Its columns are its admin's methods and plain fields."""
    empty = cl.model_admin.get_empty_value_display()
    fields = {field.name for field in cl.opts.get_fields()}
    # Asked once for each column and list: Django looks up each cell's column and each row's address anew, and formats each cell.
    columns = [(_around(cl, name), attrgetter(name) if name in fields else getattr(cl.model_admin, name)) for name in cl.list_display]
    listed = reverse(f"admin:{cl.opts.app_label}_{cl.opts.model_name}_changelist")
    rows = []
    for row in cl.result_list:
        cells: list[str] = []
        for (begin, linked, end), value_of in columns:
            value = value_of(row)
            address = f"{listed}{quote(row.pk)}/change/{linked}" if linked else ""
            cells += (begin, address, conditional_escape(empty if value is None else value), end)
        rows.append([mark_safe("".join(cells))])  # noqa: S308 - each cell is escaped above  # nosemgrep: text-marked-safe
    return {"headers": list(result_headers(cl)), "rows": rows}


def _around(cl: Any, name: str) -> tuple[str, str, str]:
    """What stands before a cell's text of this column, and after it. The second is set if the row's address stands between."""
    if name == "action_checkbox":
        return '<td class="action-checkbox">', "", "</td>"
    if name == cl.list_display_links[0]:
        return f'<th scope="row" class="field-{name}"><a href="', '">', "</a></th>"
    return f'<td class="field-{name}">', "", "</td>"


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
    """The same to the millisecond, for the page of an order."""
    return humanize.moment(value, exact=True) if isinstance(value, datetime) else value


@register.filter
def duration(span: timedelta | None) -> str:
    """A span of time to the millisecond; empty where there is none."""
    return humanize.duration(span) if isinstance(span, timedelta) else ""


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

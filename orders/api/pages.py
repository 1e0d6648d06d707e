"""Cursor pages: each page starts after the last row of the page before, so rows written meanwhile do not shift the pages."""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, cast

from django.core.exceptions import ValidationError as FieldError
from django.db.models import Field, Model, Q, QuerySet
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200


def refuse_unknown(request: Request, known: Sequence[str]) -> None:
    """Refuse unknown parameters: a mistyped filter must not return all rows."""
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise ValidationError({name[:100]: [_("This parameter is not known.")] for name in unknown[:20]})


def page_of(queryset: QuerySet[Any], request: Request, *, field: str, descending: bool = True) -> tuple[list[Any], dict[str, Any]]:
    """One page of rows ordered by (field, id), and the envelope's links."""
    size = _size(request)
    back, place = _decode(request.query_params.get("cursor"), queryset.model, field)
    falling = descending != back
    order = [f"-{field}", "-pk"] if falling else [field, "pk"]
    if place is not None:
        value, pk = place
        side = "lt" if falling else "gt"
        # The first condition bounds the index scan. The second drops the rows that the page before has shown.
        queryset = queryset.filter(**{f"{field}__{side}e": value}).filter(Q(**{f"{field}__{side}": value}) | Q(**{f"pk__{side}": pk}))
    rows = list(queryset.order_by(*order)[: size + 1])
    more = len(rows) > size
    rows = rows[:size]
    if back:
        rows.reverse()
    has_next = (more or place is not None) if back else more
    has_previous = more if back else place is not None
    return rows, {
        "next": _link(request, rows[-1], field, back=False) if rows and has_next else None,
        "previous": _link(request, rows[0], field, back=True) if rows and has_previous else None,
    }


def _size(request: Request) -> int:
    raw = request.query_params.get("page_size")
    if raw is None:
        return PAGE_SIZE
    if not (raw.isascii() and raw.isdecimal() and len(raw) < 6 and 1 <= int(raw) <= MAX_PAGE_SIZE):
        raise ValidationError({"page_size": [_("Expected a whole number from 1 to %(most)d.") % {"most": MAX_PAGE_SIZE}]})
    return int(raw)


def _column(model: type[Model], name: str) -> Field[Any, Any]:
    return cast("Field[Any, Any]", model._meta.get_field(name))


def _link(request: Request, row: Model, field: str, *, back: bool) -> str:
    value = _column(type(row), field).value_to_string(row)
    cursor = urlsafe_b64encode(json.dumps([int(back), value, row.pk]).encode()).decode()
    return replace_query_param(request.build_absolute_uri(), "cursor", cursor)


def _decode(cursor: str | None, model: type[Model], field: str) -> tuple[bool, tuple[Any, int] | None]:
    if cursor is None:
        return False, None
    try:
        back, value, pk = json.loads(urlsafe_b64decode(cursor.encode("ascii")))
        if not isinstance(value, str) or type(pk) is not int or not 0 < pk < 2**63 or "\x00" in value:
            raise ValueError(cursor)  # noqa: TRY301 - one handler for every bad cursor
        return bool(back), (_column(model, field).to_python(value), pk)
    except (ValueError, TypeError, RecursionError, binascii.Error, FieldError):
        raise ValidationError({"cursor": [_("Expected a cursor from an earlier page.")]}) from None

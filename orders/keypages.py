"""Pages of a long list that begin after a row, so that the last page costs as much as the first.

A page's link carries the values of one row in the order of the list (`after=` or `before=`). A link that cannot be read leads to the
first page.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Field, Q, QuerySet
from django.http import QueryDict

LONGEST_LINK = 2_000


@dataclass(frozen=True, kw_only=True)
class KeyPage:
    """One page. newer, later: the queries of the links to the pages before and after it; empty where there is none."""

    rows: list[Any]
    before: str = ""
    after: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether this page is the whole list."""
        return not self.before and not self.after


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of a list: fields, all rising or all falling. The last field is unique. types: how to read each field's value."""

    fields: Sequence[str]
    types: Sequence[Field[Any, Any]]
    falling: bool = False


def page(lists: Sequence[QuerySet[Any]], query: QueryDict, order: Order, *, size: int) -> KeyPage:
    """The page that the query's `after` or `before` names, of lists that are shown as one. No row is in two of them."""
    back = "before" in query and "after" not in query
    place = _read(query.get("before" if back else "after", ""), order)
    if place is None:
        back = False
    falling = order.falling != back
    found: list[Any] = []
    for rows in lists:
        if place is not None:
            rows = rows.filter(_beyond(order.fields, place, "lt" if falling else "gt"))
        found += rows.order_by(*(f"-{name}" if falling else name for name in order.fields))[: size + 1]
    if len(lists) > 1:
        found.sort(key=lambda row: [getattr(row, name) for name in order.fields], reverse=falling)
    more = len(found) > size
    found = found[:size]
    if back:
        found.reverse()
    earlier, further = (more, True) if back else (place is not None, more)
    return KeyPage(
        rows=found,
        before=_link(query, "before", found[0], order) if found and earlier else "",
        after=_link(query, "after", found[-1], order) if found and further else "",
    )


def _beyond(fields: Sequence[str], place: Sequence[Any], side: str) -> Q:
    """The rows beyond a place. The first condition bounds the scan of the index; the others decide among equal first values."""
    beyond, equal = Q(), Q()
    for name, value in zip(fields, place, strict=True):
        beyond |= equal & Q(**{f"{name}__{side}": value})
        equal &= Q(**{name: value})
    return Q(**{f"{fields[0]}__{side}e": place[0]}) & beyond


def _link(query: QueryDict, side: str, row: Any, order: Order) -> str:
    kept = query.copy()
    for name in ("after", "before"):
        kept.pop(name, None)
    values = [str(getattr(row, name)) for name in order.fields]
    kept[side] = urlsafe_b64encode(json.dumps(values, ensure_ascii=False).encode()).decode().rstrip("=")
    return kept.urlencode()


def _read(link: str, order: Order) -> list[Any] | None:
    if not link or len(link) > LONGEST_LINK:
        return None
    try:
        values = json.loads(urlsafe_b64decode(link.encode("ascii") + b"=" * (-len(link) % 4)))
        if not isinstance(values, list) or any(not isinstance(value, str) or b"\x00" in value.encode() for value in values):
            return None  # a half of a surrogate pair is a ValueError
        return [kind.clean(value, None) for kind, value in zip(order.types, values, strict=True)]
    except (ValueError, TypeError, RecursionError, ArithmeticError, binascii.Error, ValidationError):
        return None

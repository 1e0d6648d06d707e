"""Reading requests: JSON bodies of bounded size and depth, filters, and pages of lists.

Each page starts after the last row of the page before, so rows written meanwhile do not shift the pages.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, cast

from django.core.exceptions import ValidationError as FieldError
from django.db.models import Field, Model, Q, QuerySet
from django.utils.http import parse_etags
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from supervision.api.errors import PreconditionFailed, TooLarge
from supervision.insight.filters import STATES, BadFilter, Filters

BODY_LIMIT = 1024 * 1024
MAX_DEPTH = 16
PAGE_SIZE = 50
MAX_PAGE_SIZE = 200

PAGING = [
    OpenApiParameter("cursor", OpenApiTypes.STR, description="from `next` or `previous` of another page"),
    OpenApiParameter("page_size", {"type": "integer", "minimum": 1, "maximum": 200}, description="rows per page"),
]


class BoundedJSONParser(BaseParser):
    """JSON in UTF-8, no larger than the view's `body_limit` and no deeper than MAX_DEPTH, which every valid request keeps."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The document. Raises TooLarge or ParseError."""
        context = parser_context or {}
        limit = getattr(context.get("view"), "body_limit", BODY_LIMIT)
        request = context.get("request")
        if request is not None and int(request.META.get("CONTENT_LENGTH") or 0) > limit:
            raise TooLarge
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLarge
        try:
            data = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        except RecursionError:
            raise ParseError(_("The JSON is nested too deeply.")) from None
        except ValueError as error:
            raise ParseError(_("The body is not JSON: %(why)s") % {"why": error}) from None
        _check_depth(data)
        return data


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")


def _check_depth(data: Any) -> None:
    level = [data]
    for _depth in range(MAX_DEPTH):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return
    raise ParseError(_("The JSON is nested too deeply."))


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for part in value.values() if isinstance(part, dict | list)]
    if isinstance(value, list):
        return [part for part in value if isinstance(part, dict | list)]
    return []


def refuse_unknown(request: Request, known: Sequence[str]) -> None:
    """Refuse unknown parameters: a mistyped filter must not return all rows."""
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise ValidationError({name[:100]: [_("This parameter is not known.")] for name in unknown[:20]})


def filter_parameters(filters: Filters) -> list[OpenApiParameter]:
    """These filters in the OpenAPI schema."""
    kinds = {"time": OpenApiTypes.DATETIME, "number": OpenApiTypes.INT}
    return [
        OpenApiParameter(
            name,
            kinds.get(field.kind, OpenApiTypes.STR),
            enum=STATES if field.kind == "state" else None,
            description=str(field.help or field.label),
        )
        for name, field in filters.fields.items()
    ]


def filtered(filters: Filters, rows: QuerySet[Any], request: Request) -> QuerySet[Any]:
    """The rows that fit the filters in the query. A value that makes no sense is refused at its name."""
    query = request.query_params
    try:
        return filters.narrowed(rows, filters.read({name: query[name] for name in filters.fields if name in query}))
    except BadFilter as bad:
        raise ValidationError({bad.name: [str(bad)]}) from None


def yes_or_no(request: Request, name: str) -> bool | None:
    """The value of a true/false filter, or None if the request does not have it."""
    raw = request.query_params.get(name)
    if raw not in (None, "true", "false"):
        raise ValidationError({name: [_("Expected true or false.")]})
    return None if raw is None else raw == "true"


def answer_of(
    queryset: QuerySet[Any],
    request: Request,
    show: Callable[[Any], Mapping[str, Any]],
    *,
    field: str,
    filters: Sequence[str] = (),
    within: str = "",
) -> Response:
    """One page of a list, the newest first, each row as `show` says. Refuses parameters other than these filters and the page's."""
    refuse_unknown(request, [*filters, "cursor", "page_size"])
    rows, links = page_of(queryset, request, field=field, within=within)
    return Response({"results": [show(row) for row in rows], **links})


def page_of(
    queryset: QuerySet[Any], request: Request, *, field: str, descending: bool = True, within: str = ""
) -> tuple[list[Any], dict[str, Any]]:
    """One page of rows ordered by (field, id), and the envelope's links.

    within: a column in which all rows are alike, and with which the index of the list begins. The order names it first, so that no
    other index has this order: by that of the primary key the planner would go through the rows of all others.
    """
    size = _size(request)
    back, place = _decode(request.query_params.get("cursor"), queryset.model, field)
    falling = descending != back
    names = [within, field, "pk"] if within else [field, "pk"]
    order = [f"-{name}" for name in names] if falling else names
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
        if not isinstance(value, str) or type(pk) is not int or not 0 < pk < 2**63 or b"\x00" in value.encode():
            raise ValueError(cursor)  # noqa: TRY301 - one handler for every bad cursor
        return bool(back), (_column(model, field).to_python(value), pk)
    except (ValueError, TypeError, RecursionError, binascii.Error, FieldError):
        raise ValidationError({"cursor": [_("Expected a cursor from an earlier page.")]}) from None


def tag_of(answer: Mapping[str, Any]) -> str:
    """The strong validator of an answer: another text has another tag."""
    return f'"{hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:32]}"'


def tagged(answer: Mapping[str, Any], request: Request, more: Mapping[str, Any] | None = None) -> Response:
    """The answer with its ETag; 304 without a body if the client has it already (If-None-Match). more: what the ETag does not cover."""
    tag = tag_of(answer)
    known = [one.removeprefix("W/") for one in parse_etags(request.headers.get("If-None-Match", ""))]
    return (
        Response(headers={"ETag": tag}, status=304)
        if tag in known or "*" in known
        else Response({**answer, **(more or {})}, headers={"ETag": tag})
    )


def demand_match(answer: Mapping[str, Any], request: Request) -> bool:
    """Whether the request names the state it was made for (If-Match). Raises PreconditionFailed if that is not the present one."""
    wanted = request.headers.get("If-Match")
    if wanted is not None and not {"*", tag_of(answer)}.intersection(parse_etags(wanted)):
        raise PreconditionFailed
    return wanted is not None

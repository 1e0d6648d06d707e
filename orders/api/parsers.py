"""Reading request bodies: JSON only, of bounded size and depth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from orders.api.errors import TooLarge

BODY_LIMIT = 1024 * 1024
MAX_DEPTH = 16


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

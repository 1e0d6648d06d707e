"""The API's reference as one page of plain HTML, made from the OpenAPI schema: no scripts, and readable without the internet."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import override
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator

from supervision.api.reference import problems

JSON = "application/json"


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """The reference: every operation with its parameters, body, answers and problems; then every shape."""
    return render(request, "api/reference.html", _facts())


@cache
def _facts() -> dict[str, Any]:
    """The same for every reader, until the process ends."""
    with override(settings.LANGUAGE_CODE):  # not that of the first reader
        schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    parts: dict[str, list[dict[str, Any]]] = {}
    for path, operations in schema["paths"].items():
        for verb, operation in operations.items():
            parts.setdefault(operation["tags"][0], []).append(_operation(path, verb, operation))
    shapes = [_shape(name, shape) for name, shape in schema["components"]["schemas"].items()]
    catalogue = [
        {"code": code, **known._asdict()} for code, known in sorted(problems.PROBLEMS.items(), key=lambda one: (one[1].status, one[0]))
    ]
    return {"info": schema["info"], "parts": sorted(parts.items()), "shapes": shapes, "problems": catalogue}


def _operation(path: str, verb: str, operation: dict[str, Any]) -> dict[str, Any]:
    answers, refusals = [], []
    for status, answer in operation["responses"].items():
        kinds = answer.get("content", {})
        if status >= "400":
            refusals += [{"status": status, "code": code} for code in problems.of(status, operation["operationId"])]
        else:
            answers.append({"status": status, "words": answer.get("description", ""), "type": _type(kinds.get(JSON, {}).get("schema"))})
    body = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema")
    return {
        "id": operation["operationId"],
        "verb": verb.upper(),
        "path": path,
        "summary": operation["summary"],
        "description": operation.get("description", ""),
        "parameters": [{**one, "type": _type(one["schema"])} for one in operation.get("parameters", [])],
        "body": _type(body) if body else None,
        "answers": answers,
        "refusals": refusals,
    }


def _shape(name: str, shape: dict[str, Any]) -> dict[str, Any]:
    required = shape.get("required", [])
    fields = [
        {"name": field, "required": field in required, "type": _type(facts), "words": facts.get("description", "")}
        for field, facts in shape.get("properties", {}).items()
    ]
    words = shape.get("description", "").partition("\n* `")[0]  # for an enumeration: without the list of its own values
    return {"name": name, "description": words, "fields": fields, "values": [value for value in shape.get("enum", []) if value is not None]}


def _type(facts: dict[str, Any] | None) -> dict[str, Any]:
    """A type in words, and the name of the shape that it leads to: {"words": "list of", "shape": "OrderLine"}."""
    if not facts:
        return {"words": "", "shape": ""}
    if "$ref" in facts:
        return {"words": "", "shape": facts["$ref"].rpartition("/")[2]}
    for several in ("allOf", "oneOf", "anyOf"):
        if several in facts:
            inner = [_type(one) for one in facts[several] if not one.get("$ref", "").endswith("/NullEnum") and one.get("type") != "null"]
            return {**inner[0], "words": inner[0]["words"] + (" or null" if len(facts[several]) > len(inner) else "")}
    kinds = facts.get("type", "any value")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds:
        inner_type = _type(facts.get("items"))
        return {"words": f"list of {inner_type['words']}".rstrip(), "shape": inner_type["shape"]}
    return {"words": " or ".join(kinds) + _limits(facts), "shape": ""}


def _limits(facts: dict[str, Any]) -> str:
    bounds = [f"{words} {facts[name]}" for name, words in _BOUNDS.items() if name in facts]
    if values := [str(value) for value in facts.get("enum", []) if value is not None]:
        bounds.append("one of " + ", ".join(values))
    return f" ({'; '.join(bounds)})" if bounds else ""


_BOUNDS = {
    "format": "as",
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "elements at least",
    "maxItems": "elements at most",
}

"""The catalogue of problems has every code that the code raises, and no other; the document and the schema show them."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.exceptions import APIException

from supervision.api.errors import _BY_STATUS
from supervision.api.reference import problems
from supervision.approvals.gate import MoreAtStake
from supervision.errors import AwaitsApproval, Refused
from supervision.signals.sending import Sent

ROOT = Path(__file__).resolve().parent.parent.parent
RAISED_WITH = {"Refused": 1, "ChangedMeanwhile": 1, "Conflict": 0}  # the place of the code among the arguments
ELSEWHERE = ("orders/simulators", "orders/agents", "orders/gateways", "management")  # no code of theirs reaches a client
RAISES = re.compile(r"\b(Refused|ChangedMeanwhile|Conflict|problem)\(|\"code\":")  # the other modules are not parsed
DOCUMENT = SchemaGenerator().get_schema(request=None, public=True)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in [*(ROOT / "supervision").rglob("*.py"), *(ROOT / "orders").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if "migrations" not in name and not any(part in name for part in ELSEWHERE) and RAISES.search(source := path.read_text()):
            yield name, ast.parse(source)


def codes_of(node: ast.expr, module: str) -> set[str]:
    """The values that this expression may have."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.JoinedStr):  # signal_...: the outcomes that are refusals
        return {f"signal_{one}" for one in (Sent.ENDED, Sent.NOT_AWAITED, Sent.KEY_REUSED, Sent.TOO_MANY)}
    if isinstance(node, ast.IfExp):
        return codes_of(node.body, module) | codes_of(node.orelse, module)
    scope = vars(importlib.import_module(module.removesuffix(".py").replace("/", ".")))
    try:
        return {str(eval(ast.unparse(node), scope))}  # noqa: S307 - our own source
    except NameError:
        return set()  # an argument: its caller's code is found there


@cache
def raised() -> dict[str, str]:
    """Every code in the source, and a place of it."""
    found: dict[str, str] = {}
    for name, tree in modules():
        for node in ast.walk(tree):
            codes: set[str] = set()
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                place = RAISED_WITH.get(called)
                if place is not None and len(node.args) > place:
                    codes = codes_of(node.args[place], name)
                if called in ("problem", "Refused"):
                    codes |= {code for word in node.keywords if word.arg == "code" for code in codes_of(word.value, name)}
            elif isinstance(node, ast.Dict):
                pairs = {key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)}
                if {"detail", "code"} <= set(pairs):
                    codes = codes_of(pairs["code"], name)
            for code in codes:
                found.setdefault(code, f"{name}:{node.lineno}")
    return found


def framework() -> set[str]:
    """The codes that REST framework's exceptions and ours have by themselves, and those that a status alone has."""
    kinds = [kind for kind in kinds_of(APIException) if kind.__module__.split(".")[0] in ("rest_framework", "supervision", "orders")]
    ours = [kind for kind in kinds_of(Refused) if kind not in (AwaitsApproval, MoreAtStake)]  # a 202; a result of a job
    return set(_BY_STATUS.values()) | {kind.default_code for kind in kinds} | {kind.code for kind in [Refused, *ours]}


def kinds_of(error: type[Exception]) -> list[type]:
    """The exceptions that are one of this kind."""
    return [one for kind in error.__subclasses__() for one in (kind, *kinds_of(kind))]


@pytest.mark.parametrize(("code", "place"), sorted(raised().items()))
def test_a_code_that_is_raised_is_in_the_catalogue(code, place):
    assert code in problems.PROBLEMS, f"{place} raises {code!r}: add it to PROBLEMS, with an example and what to do"


def test_the_frameworks_codes_are_in_the_catalogue():
    assert framework() - set(problems.PROBLEMS) == set()


def test_the_catalogue_has_no_code_that_cannot_occur():
    assert set(problems.PROBLEMS) - set(raised()) - framework() == set()


def test_the_document_has_the_same_table():
    assert problems.table() in (ROOT / "docs" / "problems.md").read_text(), f"write this table into docs/problems.md:\n{problems.table()}"


def test_each_refusal_of_the_schema_has_an_example_of_each_of_its_codes():
    known = DOCUMENT["components"]["examples"]
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    examples = answer["content"]["application/problem+json"]["examples"]
                    assert examples, (operation["operationId"], status)
                    assert {known[name]["value"]["status"] for name in examples} == {int(status)}


@pytest.mark.parametrize(
    ("operation", "code"),
    [("abandon_order", "not_cancellable"), ("abandon_order", "changed_meanwhile"), ("stop_job", "changed_meanwhile"),
     ("end_job", "changed_meanwhile"), ("resume_job", "changed_meanwhile"), ("signal_order", "not_permitted")],
)  # fmt: skip
def test_an_operation_shows_the_example_of_a_refusal_that_it_gives(operation, code):
    assert code in problems.of(str(problems.PROBLEMS[code].status), operation)


@pytest.mark.parametrize(("path", "code"), [("/api/v1/nothing/", "not_found"), ("/api/v1/orders/", "not_authenticated")])
def test_every_refusal_names_its_code_and_its_type(client, db, settings, path, code):
    settings.API_THROTTLE = None

    told = client.get(path).json()

    assert (told["code"], told["type"]) == (code, f"urn:problem:{code}")


def test_every_operation_has_a_summary_and_a_description_and_names_are_tidy():
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            assert operation["summary"], operation["operationId"]
            assert operation["description"], operation["operationId"]
    names = set(DOCUMENT["components"]["schemas"])
    assert {"Order", "OrderRequest", "Problem"} <= names
    assert [name for name in names if "RequestRequest" in name or name.endswith("Answer")] == []
    pages = [shape["description"] for name, shape in DOCUMENT["components"]["schemas"].items() if name.endswith("Page")]
    assert "One page of deliveries." in pages
    assert "One page of dead letters." in pages


def test_a_list_that_is_too_short_is_told_in_good_english(client, db):
    from tests.shopping import a_request, signed_in

    answer = signed_in("ada", "customer").post("/api/v1/orders/", a_request(lines=[]))

    assert answer.json()["errors"] == {"lines": {"non_field_errors": ["Expected at least one element."]}}

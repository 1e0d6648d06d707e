"""The schema is complete, and the API keeps to it."""

from __future__ import annotations

import json
import os
import re
from itertools import cycle

import pytest
import schemathesis
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, settings
from knox.models import AuthToken
from schemathesis.checks import CHECKS

from supervision.intake.consuming import consume_batch
from supervision.models import Run, StepState
from tests.shopping import a_client, a_product, a_request, an_account

DOCUMENT = SchemaGenerator().get_schema(request=None, public=True)
pytest_plugins = ["schemathesis.pytest.plugin"]  # pyproject.toml switches it off for the other files: it takes long to import
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
EXAMPLES = 100 if LONG else 6  # for each operation, besides those of the schema
EVERY_BOUND = {"phases": {"coverage": {"enabled": LONG}}}  # each bound of each field: two thirds of this file's time
schema = schemathesis.openapi.from_dict(json.loads(json.dumps(DOCUMENT)), config=schemathesis.Config.from_dict(EVERY_BOUND))
schema.app = get_wsgi_application()

PROMISES = CHECKS.get_by_names(["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"])


def test_the_schema_is_valid_and_nothing_in_it_is_guessed(tmp_path):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml"))

    assert (tmp_path / "schema.yml").read_text().startswith("openapi: 3.1.0")


def test_every_operation_declares_its_refusals():
    for path, operations in DOCUMENT["paths"].items():
        for verb, operation in operations.items():
            refusals = {status for status in operation["responses"] if status >= "400"}
            assert {"400", "401", "404", "405", "406", "429", "500", "503"} <= refusals, (verb, path)
            for status in refusals:
                assert list(operation["responses"][status]["content"]) == ["application/problem+json"], (verb, path, status)


def test_the_schema_and_its_pages_are_served_without_the_internet(db, settings):
    settings.API_THROTTLE = None

    assert a_client().get("/api/schema/").status_code == 200
    page = a_client().get("/api/docs/").content.decode()

    assert "Place order" in page
    assert not re.search(r"(src|href)=.?https?:", page)


@pytest.mark.parametrize(
    ("asked", "begins"), [("?format=json", b"{"), ("?format=yaml", b"openapi:"), ("", b"openapi:"), ("?format=x", b"openapi:")]
)
def test_a_browser_chooses_the_schemas_format(db, settings, asked, begins):
    settings.API_THROTTLE = None

    answer = a_client().get(f"/api/schema/{asked}")

    assert answer.status_code == 200
    assert answer.content.startswith(b"{" if "json" in asked else b"openapi: 3.1.0")
    assert ("json" in answer["Content-Type"]) is ("json" in asked)


@pytest.fixture
def shop(db, settings):
    """A shop with a row of every kind, and the token of an account that may do everything."""
    settings.API_THROTTLE = None
    a_product()
    boss = an_account("boss", "client", "operator")
    client = a_client(boss)
    ids = [client.post("/api/v1/orders/", a_request()).json()["id"] for _ in range(2)]
    consume_batch(born=False)
    StepState.objects.filter(run__key=ids[0], direction="do", position=0).update(process_state="Error", attempt=1)
    Run.objects.filter(key=ids[0]).update(process_state="Error")
    # As Django's own test client does: the requests run inside this test's transaction.
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    # Half of the examples that could name an order name a real one.
    yield cycle([ids[0], None, ids[1], None]), AuthToken.objects.create(boss)[1]
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_is_sent_the_answer_is_a_declared_one(case, shop):
    orders, token = shop
    if "public_id" in (case.path_parameters or {}) and (public_id := next(orders)):
        case.path_parameters["public_id"] = public_id

    # The WSGI transport unpacks no gzip.
    response = case.call(headers={"Authorization": f"Token {token}", "Accept-Encoding": "identity"})

    case.validate_response(response, checks=PROMISES)

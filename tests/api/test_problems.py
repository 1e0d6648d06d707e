"""Every error has the same form of answer, and no answer shows internals."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from rest_framework.test import APIRequestFactory

from orders.api.base import Door
from tests.shopping import a_client

PROBLEM = "application/problem+json"


class FailingDoor(Door):
    permission_classes = []
    error: Exception = RuntimeError("secret: SELECT password FROM users")

    def get(self, request):
        raise self.error


@pytest.mark.parametrize(
    ("verb", "path", "headers", "status"),
    [
        ("get", "/api/v1/nothing/", {}, 404),
        ("get", "/api/nothing", {}, 404),
        ("get", "/api/v1/orders/short/", {}, 404),
        ("get", "/api/v1/orders/%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00%00/", {}, 404),
        ("get", "/api/v1/alerts/1/acknowledge/", {}, 405),
        ("delete", "/api/v1/orders/", {}, 405),
        ("options", "/api/v1/products/", {}, 405),
        ("get", "/api/v1/products/", {"Accept": "text/html"}, 406),
        ("get", "/api/v1/orders/?proces_state=Error", {}, 400),
        ("get", "/api/v1/orders/?cursor=x", {}, 400),
        ("get", "/api/v1/products/?cursor=WzAsIlx1ZDgwMCIsMV0=", {}, 400),  # half of a surrogate pair
        ("get", "/api/v1/orders/?created_after=yesterday", {}, 400),
        ("get", "/api/v1/orders/?created_after=2026-13-01", {}, 400),
        ("get", "/api/v1/orders/?page_size=0", {}, 400),
        ("get", "/api/v1/orders/?email=%00", {}, 400),
        ("get", "/api/v1/alerts/?acknowledged=maybe", {}, 400),
        ("post", "/api/v1/dead-letters/99999/discard/", {}, 404),
        ("get", "/api/v1/dead-letters/999999999999999999999/", {}, 404),
    ],
)
def test_every_refusal_is_a_problem_document(operator, verb, path, headers, status):
    answer = getattr(operator, verb)(path, headers=headers, **({"data": {"reason": "x"}} if verb == "post" else {}))

    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM)
    assert answer.json()["status"] == status


def test_a_fault_of_ours_tells_nothing_of_the_inside(caplog):
    answer = FailingDoor.as_view()(APIRequestFactory().get("/api/v1/x/"))

    assert (answer.status_code, answer["Content-Type"]) == (500, PROBLEM)
    assert b"SELECT" not in answer.content
    assert "SELECT" in caplog.text


def test_a_database_that_does_not_answer_is_told_as_a_pause():
    answer = FailingDoor.as_view(error=OperationalError("connection refused"))(APIRequestFactory().get("/api/v1/x/"))

    assert (answer.status_code, answer["Content-Type"]) == (503, PROBLEM)
    assert int(answer["Retry-After"]) > 0


def test_a_body_of_unknown_length_is_refused(customer):
    answer = customer.generic("POST", "/api/v1/orders/", b"", headers={"Transfer-Encoding": "chunked"}, CONTENT_LENGTH="")

    assert (answer.status_code, answer["Content-Type"]) == (411, PROBLEM)


def test_a_foreign_host_is_a_problem_for_the_api(db):
    answer = a_client().get("/api/v1/products/", headers={"Host": "evil.example"})

    assert (answer.status_code, answer["Content-Type"]) == (400, PROBLEM)

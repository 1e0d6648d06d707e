"""The console's list of API requests: filters, the page of a request, the way from an order, and who may see it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from supervision.admin.requestlog import narrowing
from supervision.models import ApiRequest
from tests.support.console import ORDERS, fail, person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
LIST = "/admin/supervision/apirequest/"


def a_row(**fields: Any) -> ApiRequest:
    given = {"request_id": "r-1", "method": "POST", "path": "/api/v1/orders/", "status": 202, "milliseconds": 12.5, **fields}
    return ApiRequest.objects.create(kind=given["status"] // 100, **given)


def shown(client: Client, **query: str) -> list[str]:
    """The request ids of the list's rows, in its order."""
    answer = client.get(LIST, query)
    assert answer.status_code == 200
    return [row.request_id for row in answer.context["cl"].result_list]


def test_each_filter_leaves_its_rows(operator: Client):
    ada = User.objects.create_user("server-of-ada")
    (order,) = fail()
    a_row(request_id="plain")
    a_row(request_id="refused", status=400, code="invalid", account_id=ada.pk)
    a_row(request_id="broken", status=500, code="internal_error", method="DELETE", path="/api/v1/webhooks/x/")
    a_row(request_id="of-order", order_key=order.public_id)

    assert shown(operator) == ["of-order", "broken", "refused", "plain"]
    assert shown(operator, kind="4") == ["refused"]
    assert shown(operator, kind="5") == ["broken"]
    assert shown(operator, code="invalid") == ["refused"]
    assert shown(operator, method="delete") == ["broken"]
    assert shown(operator, path="webhooks") == ["broken"]
    assert shown(operator, account="server-of-ada") == shown(operator, account=str(ada.pk)) == ["refused"]
    assert shown(operator, account="no-such-account") == []
    assert shown(operator, request_id="broken") == shown(operator, q="broken") == ["broken"]
    assert (
        shown(operator, order=order.number) == shown(operator, order=order.public_id) == shown(operator, q=order.public_id) == ["of-order"]
    )
    assert shown(operator, kind="2", order=order.number) == ["of-order"]
    assert "Expected one of: 2, 3, 4, 5." in operator.get(LIST, {"kind": "x"}).content.decode()


def test_a_part_of_a_path_is_looked_for_in_the_newest_requests(operator: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(narrowing, "LOOKED_AT", 2)
    for name in ("first", "second", "third"):
        a_row(request_id=name)

    assert shown(operator, path="/orders/") == ["third", "second"]


def test_the_page_of_an_order_leads_to_its_requests_and_back(operator: Client):
    (order,) = fail()
    page = f"{ORDERS}{order.pk}/change/"
    assert "sc-requests" not in operator.get(page).content.decode()

    row = a_row(order_key=order.public_id)
    a_row(request_id="another")
    link = re.search(r'id="sc-requests" href="([^"]+)"', operator.get(page).content.decode())

    assert link is not None
    assert [one.pk for one in operator.get(link[1]).context["cl"].result_list] == [row.pk]
    of_run = re.search(r'href="(/admin/[^"]*of-run/\d+/)"', operator.get(f"{LIST}{row.pk}/change/").content.decode())
    assert of_run is not None
    assert operator.get(of_run[1])["Location"] == page


def test_a_request_page_tells_what_is_kept_and_who_asked(operator: Client):
    server, ada = User.objects.create_user("server"), User.objects.create_user("ada@example.com")
    first = a_row(account_id=server.pk, status=409, code="busy", key="replayed", signed_in="token")
    second, gone = a_row(account_id=ada.pk), a_row(account_id=10**9)

    said = operator.get(f"{LIST}{first.pk}/change/").content.decode()
    for words in ("r-1", "POST /api/v1/orders/", "409", "busy", "12.5 ms", "server", "token", "answered before"):
        assert words in said, words
    for row in (second, gone):
        said = operator.get(f"{LIST}{row.pk}/change/").content.decode()
        assert "ada@" not in said
        assert f"account {row.account_id}" in said


def test_missing_requests_are_said_where_they_are_missing_and_above_the_list(operator: Client):
    a_row()
    ApiRequest.objects.create(request_id="", method="", path="", status=0, kind=0, milliseconds=0, missing=1312)

    said = operator.get(LIST).content.decode()

    assert "1312 requests are missing here" in said
    assert "1,312 requests of the last day are missing" in said


def test_an_empty_list_says_what_it_means(operator: Client, settings: Any):
    settings.SUPERVISION = {**settings.SUPERVISION, "REQUEST_LOG_DAYS": 14}
    assert "No API client has changed anything or was refused anything in 14 days." in operator.get(LIST).content.decode()
    assert "No entry matches these filters." in operator.get(LIST, {"kind": "4"}).content.decode()

    settings.SUPERVISION = {**settings.SUPERVISION, "REQUEST_LOG_DAYS": 0}
    assert "The request log is off" in operator.get(LIST).content.decode()


def test_a_viewer_sees_it_and_an_account_without_that_right_does_not(viewer: Client):
    row = a_row()
    assert shown(viewer) == ["r-1"]
    assert viewer.get(f"{LIST}{row.pk}/change/").status_code == 200
    assert viewer.post(f"{LIST}{row.pk}/change/").status_code == 405

    stranger = Client()
    stranger.force_login(person("stan"))
    assert stranger.get(LIST).status_code == 403
    assert stranger.get(f"{LIST}{row.pk}/change/").status_code == 403


def test_the_list_costs_the_same_for_more_rows_and_accounts(operator: Client):
    def statements() -> int:
        with CaptureQueriesContext(connection) as seen:
            operator.get(LIST)
        return len(seen)

    a_row(account_id=User.objects.create_user("first").pk)
    statements()
    few = statements()
    for number in range(30):
        a_row(account_id=User.objects.create_user(f"server-{number}").pk)

    assert statements() == few

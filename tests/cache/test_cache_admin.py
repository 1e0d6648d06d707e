"""Cached answers in the console: viewers see them, operators refresh one."""

from __future__ import annotations

import pytest
from django.test import Client

from supervision.models import CachedResult
from tests.support.console import person

pytestmark = pytest.mark.django_db
LIST = "/admin/supervision/cachedresult/"


def visit(group: str) -> Client:
    client = Client()
    client.force_login(person(f"anna-{group}", group))
    return client


@pytest.fixture
def answer(db: None) -> CachedResult:
    return CachedResult.objects.create(
        cache="delivery-days", key="IT", value={"a": "<script>"}, fetched_at="2026-10-01T00:00Z", expires_at="2999-01-01T00:00Z"
    )


def test_a_viewer_sees_the_answers_and_changes_nothing(answer):
    viewer = visit("viewer")

    page = viewer.get(LIST).text

    assert "delivery-days" in page
    assert "&lt;script&gt;" in page
    viewer.post(LIST, {"action": "forget_selected", "_selected_action": [answer.pk]})
    assert viewer.post(f"{LIST}{answer.pk}/delete/", {"post": "yes"}).status_code == 403
    answer.refresh_from_db()
    assert answer.value == {"a": "<script>"}


def test_an_operator_has_an_answer_fetched_anew(answer):
    page = visit("operator").post(LIST, {"action": "forget_selected", "_selected_action": [answer.pk]}, follow=True)

    assert "1 answer was forgotten." in page.text
    answer.refresh_from_db()
    assert (answer.value, answer.fetched_at, answer.refresh_at, answer.version) == (None, None, None, 2)


def test_a_customer_sees_nothing_of_it(answer):
    assert visit("customer").get(LIST).status_code == 403

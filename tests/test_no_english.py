"""A reader of Italian or Brazilian Portuguese finds no English on any page of the shop and the console."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django_celery_beat.models import PeriodicTask

from supervision import testing
from supervision.incidents import lifecycle
from supervision.models import DeadLetter
from supervision.operations import pauses
from supervision.workflow import workflows
from tests.shopping import an_account
from tests.support.console import confirm, fail, mug, page, person, place, verb
from tests.support.crawl import crawl, english

pytestmark = [pytest.mark.django_db(transaction=True)]
LANGUAGES = pytest.mark.parametrize("language", ["it", "pt-br"])
# A text that is not marked for translation is English in every language, and `test_catalogues` holds each catalogue complete: of the
# two walks through the whole console each has one language, and `-m ""` the other, too.
MOSTLY_ITALIAN = pytest.mark.parametrize("language", ["it", pytest.param("pt-br", marks=pytest.mark.nightly)])
MOSTLY_PORTUGUESE = pytest.mark.parametrize("language", ["pt-br", pytest.param("it", marks=pytest.mark.nightly)])
# What is no text of ours: names, data, and words that are the same in all languages.
NAMES = re.compile(
    r"Harbour Goods|Blue mug|\| Can |^(America|Europe)/"
    r"|^(English|customer|payment|refused|incident|operator|viewer|client|root)$"
)
# Names of agents and groups that a page writes with a capital.
TITLES = {"/admin/supervision/resource/": "Payment", "/admin/auth/group/": "Customer"}


@pytest.fixture
def shop() -> Iterator[None]:
    """Orders in many states, and something in every list of the console."""
    with testing.quiet():
        yield


def left_in_english(client: Client, language: str, *starts: str) -> dict[str, set[str]]:
    """The English texts by page."""
    found: dict[str, set[str]] = {}
    steps = {step.name for workflow in workflows() for step in workflow.steps}  # of other tests' workflows, too
    schedules = set(PeriodicTask.objects.values_list("name", flat=True))
    schedules |= {name.capitalize() for name in schedules}
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    for path, seen, _html in crawl(client, language, *starts):
        title = next((name for start, name in TITLES.items() if path.startswith(start)), None)
        wrong = {
            text
            for text in seen.said()
            if text != title
            and text not in steps
            and not NAMES.search(text)
            and not any(name in text for name in schedules)
            and english(text, language)
        }
        if wrong:
            found[path] = wrong
    return found


@LANGUAGES
def test_a_guest_reads_no_english(shop, client, language) -> None:
    (order,) = place()
    mug()
    client.post("/cart/MUG-BLUE/add/", {"quantity": 2})

    shop = ("/", "/cart/", "/checkout/", "/products/MUG-BLUE/", f"/orders/{order.public_id}/")
    starts = (*shop, "/accounts/login/", "/no-such-page/", "/orders/none/")
    assert left_in_english(client, language, *starts) == {}


@LANGUAGES
def test_a_customer_reads_no_english(shop, client, language) -> None:
    ada = an_account("ada", "customer")
    client.force_login(ada)
    mug()

    assert left_in_english(client, language, "/", "/orders/", "/accounts/password_change/") == {}


@MOSTLY_PORTUGUESE
def test_an_operator_reads_no_english(shop, client, language) -> None:
    client.force_login(person("olga", "operator"))
    placed = place()
    failed = fail(2)
    pauses.pause("agent", "payment", reason="banca", by="olga")
    DeadLetter.objects.create(source="pgmq:submissions", body=b"{}", reason="the body is not JSON")
    lifecycle.look()
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    confirm(client, failed[0], "resubmit", reason="banca")

    verbs = [verb(failed[1], name) for name in ("resubmit", "skip", "complete", "compensate", "cancel")]
    starts = ["/admin/", *map(page, [*placed, *failed]), *verbs]
    assert left_in_english(client, language, *starts) == {}


@pytest.mark.nightly
@MOSTLY_ITALIAN
def test_an_administrator_reads_no_english(shop, client, language) -> None:
    client.force_login(User.objects.create_superuser("root", "root@example.com", "a password for tests"))
    place()

    assert left_in_english(client, language, "/admin/") == {}

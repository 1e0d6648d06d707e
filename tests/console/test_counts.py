"""Lists write how many rows there are in the number form of the reader's language, and name cells as headers do."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import translation
from django.utils.safestring import mark_safe

from supervision.console import shared
from supervision.console.lists.found_rows import AtLeast, Counted
from supervision.models import DeadLetter
from supervision.templatetags.console import lean
from tests.orders.test_catalogue import a_product

pytestmark = pytest.mark.django_db
LETTERS = "/admin/supervision/deadletter/"


def letters(count: int) -> None:
    DeadLetter.objects.bulk_create(DeadLetter(source="orders", reason="no JSON", body=b"{") for _ in range(count))


def test_a_number_of_rows_has_the_separators_of_the_language():
    assert (str(Counted(2504)), str(AtLeast(10_000)), Counted(2504)) == ("2,504", "10,000+", 2504)
    with translation.override("it"):
        assert (str(Counted(2504)), str(AtLeast(10_000))) == ("2.504", "10.000+")


@pytest.mark.parametrize(("language", "shown"), [("en", "1,200"), ("it", "1.200")])
def test_a_list_says_how_many_rows_it_has(operator: Client, language: str, shown: str):
    letters(1200)

    html = operator.get(LETTERS, headers={"accept-language": language}).content.decode()

    assert re.search(rf"\s{re.escape(shown)}\s", html)
    assert not re.search(r"\s1200\s", html)


def test_a_filtered_list_says_it_beside_its_title_too(operator: Client):
    letters(1200)

    html = operator.get(LETTERS, {"open": "yes"}).content.decode()

    assert re.search(r"1,200\s+results", html)


def test_the_catalogues_list_says_it(operator: Client):
    for number in range(3):
        a_product(f"P-{number}")
    shown = operator.get("/admin/orders/product/").context["cl"]

    assert type(shown.result_count) is type(shown.full_result_count) is Counted


def test_counts_of_the_side_bar_have_separators():
    letters(1201)

    assert shared.count_up_to(DeadLetter.objects.all()) == "1,000+"
    assert shared.count_up_to(DeadLetter.objects.all(), 1200) == "1,200+"
    assert shared.count_up_to(DeadLetter.objects.all(), 5000) == "1,201"


def test_a_phone_shows_the_label_of_a_cell_with_a_capital():
    cell = mark_safe('<td class="field-kind nowrap" data-label="last sent at">now</td>')

    assert lean(cell) == '<td class="field-kind" data-label="Last sent at">now</td>'
    assert lean(cell, one_line=True) == '<td class="field-kind">now</td>'

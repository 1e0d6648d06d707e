"""One search field for all that names an order, saved views of the list, and the list as a file."""

from __future__ import annotations

import csv
import io
from importlib import import_module
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils.translation import override

from orders.filters import named
from orders.models import Order, Parcel, PaymentAdjustment, PaymentEvent
from orders.searching import ways
from supervision.console.lists import export, saved_views
from supervision.models import Alert, SavedView, StepState
from tests.support.console import ORDERS, fail, place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
VIEWS = f"{ORDERS}views/"


@pytest.fixture
def failed() -> Order:
    """One order in Error, with everything by which it can be found; another order is beside it."""
    (order,), _others = fail(), place(2, email="bob@example.com")
    Order.objects.filter(pk=order.pk).update(email="grace@example.com", customer="Grace Hopper")
    StepState.objects.filter(run=order.run, process_state="Error").update(last_error="402 the issuer says no")
    Alert.objects.filter(run=order.run).update(code="issuer_said_no")
    Parcel.objects.create(key="a-key", order_key=order.public_id, tracking_number="TRACK-7")
    PaymentEvent.objects.create(event_id="evt_1", kind="payment_intent.succeeded", intent="pi_77", order_key=order.public_id)
    PaymentAdjustment.objects.create(
        external_id="re_5", kind="refund", intent="pi_88", order_key=order.public_id, amount=1, currency="EUR", status="succeeded",
        gives_back=True, rank=1,
    )  # fmt: skip
    order.refresh_from_db()
    return order


def found(client: Client, **query: str) -> list[str]:
    return [order.public_id for order in client.get(ORDERS, query).context["cl"].result_list]


def test_the_search_field_understands_whatever_names_an_order_and_says_what_it_understood(operator: Client, failed: Order):
    words = {
        failed.number: "order number", failed.number.replace("-", ""): "order number", failed.public_id: "public id",
        f"#{failed.number}": "order number", failed.number.replace("-", "\u2011"): "order number",
        "grace@example.com": "e-mail", "grace@": "e-mail", "TRACK-7": "tracking number", "pi_77": "payment", "evt_1": "payment",
        "pi_88": "payment", "re_5": "payment", "hopper gr": "customer", "issuer_said_no": "error code", "Issuer SAYS": "error text",
    }  # fmt: skip

    for term, meaning in words.items():
        page = operator.get(ORDERS, {"q": term})
        assert [order.public_id for order in page.context["cl"].result_list] == [failed.public_id], term
        assert f"Understood as {meaning}: <b>{term}</b>." in page.content.decode(), term


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("Siobhan O’Brien", ["O’Brien", "O'Brien", "o’b", "Siobhan O’Brien", "\u00a0Siobhan\u00a0O’Brien\u200b"]),
        ("Siobhan O'Brien", ["O’Brien", "O'Brien", "brien"]),
        ("Chloé L’Été", ["L’Été", "Chloe\u0301", "chloé"]),
        ("हिन्दी नाम", ["हिन्दी", "हिन्दी नाम"]),
        ("مُحَمَّد علي", ["مُحَمَّد", "\u200fمُحَمَّد علي\u200f", "علي"]),
        ("علی\u200cرضا نوری", ["علی\u200cرضا"]),
        ("José Araújo", ["jose", "ARAUJO JOSE", "José", "Jose\u0301 arau"]),
        ("Jose Araujo", ["José Araújo"]),
        ("LÈA Żółć-İnan", ["lea", "zolc", "inan", "Lèa ŻÓŁĆ"]),
        ("Nguye\u0302\u0303n", ["nguyen", "Nguyễn"]),
        ("Сергей", ["сергей", "Серге\u0438\u0306"]),
        ("Серге\u0438\u0306", ["Сергей", "Серге\u0438\u0306"]),
        ("Νίκος", ["νίκος", "Νι\u0301κος"]),
        ("Ḥasan \u0958लम", ["H\u0323asan", "Ḥasan", "\u0958लम"]),
        ("H\u0323asan", ["Ḥasan", "hasan"]),
        ("Anne-Marie \\ 'Oak' & Co:*", ["anne-m", "marie", "'Oak' & Co:*", "\\ oak"]),
    ],
)
def test_a_name_is_found_as_it_is_written_whatever_its_apostrophe_accents_and_direction(
    operator: Client, failed: Order, name: str, terms: list[str]
):
    Order.objects.filter(pk=failed.pk).update(customer=name)

    for term in terms:
        assert found(operator, q=term) == [failed.public_id], ascii(term)


def test_a_tracking_number_is_found_as_a_label_prints_it(operator: Client, failed: Order):
    Parcel.objects.filter(order_key=failed.public_id).update(tracking_number="1Z999AA10123456784")

    for term in ("1Z 999 AA1 01 2345 6784", "1z999aa10123456784", "1Z999AA1\u00a00123456784"):
        assert found(operator, q=term) == [failed.public_id], ascii(term)
    assert found(operator, tracking_number="1z 999 AA1 01 2345 6784") == [failed.public_id]


def test_a_mail_address_is_found_in_capital_and_in_small_letters(operator: Client, failed: Order):
    Order.objects.filter(pk=failed.pk).update(email="Grace+shop_Desk@Example.com")

    for term in ("grace+shop_desk@example.com", "Grace+Shop_Desk@example.COM", "grace+shop_desk", "GRACE+shop_desk@ex"):
        assert found(operator, q=term) == [failed.public_id], term
    assert found(operator, email="grace+SHOP_desk@example.com") == [failed.public_id]
    assert found(operator, q="grace+shop-desk") == []


def test_a_search_that_finds_nothing_says_so_and_one_with_a_filter_keeps_to_it(operator: Client, failed: Order):
    for term in ("nothing of the kind", "' OR 1=1", "x" * 500, "%", "_"):
        page = operator.get(ORDERS, {"q": term})
        assert page.status_code == 200
        assert "No entry matches the search." in page.content.decode(), term
    assert found(operator, q="grace@example.com", process_state="Error") == [failed.public_id]
    assert found(operator, q="grace@example.com", process_state="Cancelled") == []


def test_each_way_of_the_search_is_answered_by_an_index(operator: Client, failed: Order):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")

    for way in ways():
        for term in ("123", "a_b", "some name", "Ada+Shop@example", "1z 99 a"):
            source = way.runs(term)
            assert source is None or "Seq Scan" not in source.explain(), (way.label, term)


def test_a_plain_word_of_a_name_is_read_once_from_the_index():
    assert str(named(Order.objects.order_by(), "Grace hop").query).count(":*") == 2
    assert str(named(Order.objects.order_by(), "O'Brien").query).count(":*") > 2


# --- Saved views ------------------------------------------------------------------------------------------------------


def save(client: Client, name: str, query: str = "process_state=Error", **more: Any) -> Any:
    return client.post(f"{VIEWS}save/", {"name": name, "query": query, **more}, follow=True)


def test_a_view_keeps_the_filters_of_the_page_for_the_person_who_saved_it(operator: Client, viewer: Client, failed: Order):
    save(operator, "my errors", "process_state=Error&p=3&evil=1&q=grace@example.com")

    (view,) = SavedView.objects.all()
    assert view.query == "process_state=Error&q=grace%40example.com"
    assert 'href="?process_state=Error&amp;q=grace%40example.com"' in operator.get(ORDERS).content.decode()
    assert "my errors" not in viewer.get(ORDERS).content.decode()
    opened = operator.get(f"{ORDERS}?{view.query}").content.decode()
    assert 'aria-current="true">my errors' in opened
    assert f"views/{view.pk}/rename/" in opened


def test_a_shared_view_is_for_all_and_only_operators_share_and_change_it(operator: Client, viewer: Client):
    assert save(viewer, "all errors", shared="on").status_code == 403
    save(operator, "all errors", shared="on")

    (view,) = SavedView.objects.all()
    assert view.shared
    assert "all errors" in viewer.get(ORDERS).content.decode()
    assert viewer.post(f"{VIEWS}{view.pk}/delete/").status_code == 403
    assert viewer.post(f"{VIEWS}{view.pk}/rename/", {"name": "mine"}).status_code == 403
    operator.post(f"{VIEWS}{view.pk}/rename/", {"name": "errors"})
    assert SavedView.objects.get().name == "errors"
    operator.post(f"{VIEWS}{view.pk}/delete/")
    assert not SavedView.objects.exists()


def test_a_persons_view_is_changed_by_that_person_alone(operator: Client, viewer: Client):
    save(viewer, "mine")
    (view,) = SavedView.objects.all()

    assert operator.post(f"{VIEWS}{view.pk}/delete/").status_code == 403
    assert operator.get(f"{VIEWS}{view.pk}/delete/").status_code == 405
    assert Client().post(f"{VIEWS}save/", {"name": "x", "query": "q=1"}).status_code == 302  # to the login
    User.objects.get(username="vera").delete()
    assert not SavedView.objects.exists()


@pytest.mark.parametrize(("name", "query"), [("", "process_state=Error"), ("x" * 61, "process_state=Error"), ("no filter", "p=2")])
def test_a_view_without_a_name_or_a_filter_is_refused_in_one_sentence(operator: Client, name: str, query: str):
    assert "A view needs a name of at most 60 characters, and a filter." in save(operator, name, query).content.decode()
    assert not SavedView.objects.exists()


def test_a_name_is_given_once_and_a_person_keeps_so_many_views(operator: Client, monkeypatch: pytest.MonkeyPatch):
    save(operator, "errors")
    assert "There is a view “errors” already." in save(operator, "errors", "q=1").content.decode()
    save(operator, "errors", shared="on")  # a shared one may have the name of a person's own
    assert SavedView.objects.count() == 2

    monkeypatch.setattr(saved_views, "MOST", 1)
    assert "There are 1 views already" in save(operator, "more").content.decode()
    assert SavedView.objects.count() == 2


# --- File -------------------------------------------------------------------------------------------------------------


def table(client: Client, query: str = "") -> list[list[str]]:
    answer = client.get(f"{ORDERS}export/{query}")
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == 'attachment; filename="orders.csv"'
    return list(csv.reader(io.StringIO(b"".join(answer.streaming_content).decode("utf-8-sig"))))


def test_the_filtered_list_is_a_file_with_the_reason_of_each_order(operator: Client, failed: Order):
    header, *rows = table(operator, "?process_state=Error")

    assert header[:5] == ["Order number", "E-mail", "Customer", "Total", "Currency"]
    assert [row[:9] for row in rows] == [
        [failed.number, "grace@example.com", "Grace Hopper", "25.80", "EUR", failed.public_id, "Error", "charge-payment",
         "402 the issuer says no"],
    ]  # fmt: skip
    assert len(table(operator)) == 1 + 3
    assert len(table(operator, "?q=grace@example.com")) == 1 + 1


def test_the_file_has_the_language_of_its_reader_also_when_another_page_is_answered_meanwhile(operator: Client, failed: Order):
    answer = operator.get(f"{ORDERS}export/", headers={"accept-language": "it"})
    with override("pt-br"):  # what the thread that sends the file has answered before
        header = b"".join(answer.streaming_content).decode("utf-8-sig").splitlines()[0]

    assert header.startswith("Numero d")


def test_a_cell_that_a_spreadsheet_would_calculate_is_text(operator: Client, failed: Order):
    for name in ("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20SUM(A1)", "'=1"):
        Order.objects.filter(pk=failed.pk).update(customer=name)
        assert table(operator, "?process_state=Error")[1][2] == f"'{name}"
    Order.objects.filter(pk=failed.pk).update(customer='a "b", c\nd')
    assert table(operator, "?process_state=Error")[1][2] == 'a "b", c\nd'


def test_only_who_may_act_takes_the_file_and_the_log_says_who_took_what(operator: Client, viewer: Client, failed: Order):
    assert viewer.get(f"{ORDERS}export/").status_code == 403
    assert "As CSV" not in viewer.get(ORDERS).content.decode()

    table(operator, "?process_state=Error&error_code=issuer_said_no")

    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.change_message) == ("olga", "error_code=issuer_said_no&process_state=Error")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Ada;=cmd|' /C calc'!A0;", "Ada;'=cmd|' /C calc'!A0;"),  # Excel divides at semicolons where commas are for decimals
        ("Ada\t +1; @x", "Ada\t '+1; '@x"),
        ("=1;-2", "'=1;'-2"),
        ("Ada; Grace; 1-2", "Ada; Grace; 1-2"),
        ("refused\n=1+1;x", "refused\n'=1+1;x"),  # a quoted cell that does not begin with its mark ends with its line there
        ("\r\n@x\r\n- a", "'\r\n'@x\r\n'- a"),
        ('a;"=1+1;"b', 'a;"\'=1+1;"b'),  # doubled in the file, the mark is an empty text there
    ],
)
def test_a_formula_is_none_wherever_another_program_begins_a_cell(text: str, written: str):
    assert export.safe(text) == written


def test_the_file_is_read_in_portions_that_follow_each_other(operator: Client, monkeypatch: pytest.MonkeyPatch):
    place(7)
    Order.objects.filter(number__in=Order.objects.values("number")[:4]).update(created_at="2026-01-01T00:00:00Z")  # equal times
    monkeypatch.setattr(export, "PORTION", 2)

    rows = table(operator)[1:]

    assert [row[0] for row in rows] == list(Order.objects.order_by("-created_at", "-id").values_list("number", flat=True))
    sizes = [len(portion) for portion in export.portions(Order.objects.all(), ("-created_at", "-id"))]
    assert sizes == [2, 2, 2, 1]


def test_the_indexes_of_words_are_counted_when_they_are_made(failed: Order):
    count = import_module("orders.migrations.0042_statistics").COUNT
    with connection.cursor() as cursor:
        cursor.execute(count)
        cursor.execute("SELECT DISTINCT tablename FROM pg_stats WHERE tablename IN ('order_mail', 'order_customer_plain')")
        assert {name for (name,) in cursor.fetchall()} >= {"order_mail"}

"""Notes on an order and who looks after it: kept under its public id, audited, seen in the list."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.db.models import F
from django.test import Client

from supervision.desk import notes
from supervision.errors import Refused, UnknownRun
from supervision.models import Assignee, RunNote
from tests.engine.kit import BLOCKED, fetch
from tests.support.console import ATTACK, ORDERS, fail, page, person
from tests.support.shop import until

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


def desk(order) -> str:
    return page(order).replace("change", "desk")


def html(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_an_operator_notes_something_and_hands_the_order_over(operator: Client):
    (order,) = fail()
    person("otto", "operator")

    operator.post(desk(order), {"text": "the bank calls back at nine"})
    operator.post(desk(order), {"owner": "otto"})

    shown = html(operator, page(order))
    assert "the bank calls back at nine" in shown
    assert "<b>otto</b> looks after it." in shown
    assert [(note.author, note.text) for note in notes.of(order.public_id)] == [
        ("olga", "Assigned to otto."),
        ("olga", "the bank calls back at nine"),
    ]
    logged = LogEntry.objects.filter(object_id=str(order.run_id)).values_list("user__username", "change_message")
    assert set(logged) == {("olga", "noted: the bank calls back at nine"), ("olga", "Assigned to otto.")}
    assert "otto" in html(operator, ORDERS)


def test_an_order_is_given_back_and_a_repeated_assignment_changes_nothing(operator: Client):
    (order,) = fail()
    assert notes.assign(order.public_id, "olga", by="olga")
    assert not notes.assign(order.public_id, "olga", by="olga")
    assert notes.assign(order.public_id, "", by="olga")
    assert not notes.assign(order.public_id, "", by="olga")

    assert notes.owners([order.public_id]) == {}
    assert [note.text for note in notes.of(order.public_id)] == ["Without an owner from now on.", "Assigned to olga."]


def test_who_may_not_act_on_orders_is_given_none(operator: Client, viewer: Client):
    (order,) = fail()

    for name in ("vera", "no-such-account"):
        answer = operator.post(desk(order), {"owner": name}, follow=True)
        assert f"{name} is no operator." in answer.content.decode()
    assert not Assignee.objects.exists()


@pytest.mark.parametrize("text", ["", "  ", "x" * 2001, "a\0b"])
def test_a_note_that_is_empty_or_too_long_is_refused(operator: Client, text: str):
    (order,) = fail()

    answer = operator.post(desk(order), {"text": text}, follow=True)

    assert "A note has between 1 and 2000 characters." in answer.content.decode()
    assert not RunNote.objects.exists()


def test_a_note_that_is_refused_is_shown_again_as_it_was_typed(operator: Client, monkeypatch: pytest.MonkeyPatch):
    (order,) = fail()
    monkeypatch.setattr(notes, "MOST_NOTES", 0)

    answer = operator.post(desk(order), {"text": "the bank\r\ncalls back"})

    assert answer.status_code == 400
    assert "The order has 0 notes. It takes no more." in answer.text
    assert "the bank\r\ncalls back</textarea>" in answer.text


def test_a_note_of_several_lines_may_be_as_long_as_the_browser_lets_it(operator: Client):
    (order,) = fail()
    text = "\n".join(["x" * 999, "x" * 1000])

    operator.post(desk(order), {"text": text.replace("\n", "\r\n")})

    assert [note.text for note in notes.of(order.public_id)] == [text]


def test_a_second_click_adds_no_second_note(operator: Client):
    (order,) = fail()

    for text in ("no answer", "no answer", "an answer"):
        operator.post(desk(order), {"text": text})
    notes.add(order.public_id, "no answer", by="otto")
    assert [note.text for note in notes.of(order.public_id)] == ["no answer", "an answer", "no answer"]

    RunNote.objects.update(at=F("at") - timedelta(minutes=2))
    operator.post(desk(order), {"text": "no answer"})
    assert RunNote.objects.count() == 4


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_the_same_moment_add_one_note():
    (order,) = fail()

    with ThreadPoolExecutor(2) as threads:
        with transaction.atomic():
            fetch(notes._ONE_AT_A_TIME, {"key": order.public_id})
            adding = [threads.submit(_add, order.public_id) for _click in range(2)]
            until(lambda: len(fetch(BLOCKED)) == 2, within=20, what="both to wait")
        answers = {one.result(30) for one in adding}

    assert answers == {RunNote.objects.get().pk}


def _add(key: str) -> int:
    try:
        return notes.add(key, "no answer", by="olga").pk
    finally:
        connection.close()


def test_an_order_takes_so_many_notes_and_no_more(monkeypatch: pytest.MonkeyPatch):
    (order,) = fail()
    monkeypatch.setattr(notes, "MOST_NOTES", 1)
    notes.add(order.public_id, "one", by="olga")

    with pytest.raises(Refused, match="takes no more"):
        notes.add(order.public_id, "two", by="olga")
    with pytest.raises(UnknownRun):
        notes.add("no-such-order", "one", by="olga")


def test_a_viewer_reads_notes_and_adds_none(viewer: Client):
    (order,) = fail()
    notes.add(order.public_id, ATTACK, by="olga")

    shown = html(viewer, page(order))
    assert ATTACK not in shown
    assert "&lt;script&gt;" in shown
    assert 'id="sc-add-note"' not in shown
    assert viewer.post(desk(order), {"text": "mine"}).status_code == 403
    assert viewer.get(desk(order))["Location"] == page(order)

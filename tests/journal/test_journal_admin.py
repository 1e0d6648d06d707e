"""The journal in the console: read only, problems at the top, downloads for operators."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from supervision.journal.writer import Writer
from supervision.models import JournalEntry
from tests.engine.kit import fetch
from tests.journal.kit import KEY, append, files, flushed
from tests.support.console import person
from tests.support.history import rewrite

pytestmark = pytest.mark.usefixtures("journal_dir")
FILES, ENTRIES = "/admin/supervision/journalfile/", "/admin/supervision/journalentry/"


@pytest.fixture
def visit(journal_dir):
    """A client that is signed in with an account of this group."""
    made: list[str] = []

    def as_(group: str) -> Client:
        client = Client()
        client.force_login(person(f"anna-{group}", group))
        made.append(group)
        return client

    yield as_
    rewrite("DELETE FROM django_admin_log")
    fetch("DELETE FROM django_session")
    User.objects.all().delete()


def download(number: int) -> str:
    return reverse("admin:supervision_journalfile_download", args=[number])


def test_an_operator_sees_what_waits_and_downloads_what_is_acknowledged(visit, journal_dir):
    flushed("e-1")
    append("e-2")
    [file] = files()
    with (journal_dir / file.path).open("ab") as opened:
        opened.write(b"not acknowledged")
    operator = visit("operator")

    page = operator.get(FILES).text
    answer = operator.get(download(file.pk))

    assert file.path in page
    assert "1 event waits." in page
    assert "Writer: " in page
    content = b"".join(answer.streaming_content)
    assert len(content) == file.length == int(answer["Content-Length"])
    assert content.endswith(b"\r\n")
    assert answer["Content-Type"].startswith("text/csv")
    assert file.path.rpartition("/")[2] in answer["Content-Disposition"]


def test_a_viewer_sees_the_journal_and_downloads_nothing(visit):
    flushed("e-1")
    viewer = visit("viewer")

    assert viewer.get(FILES).status_code == 200
    assert viewer.get(ENTRIES).status_code == 200
    assert viewer.get(download(files()[0].pk)).status_code == 403


def test_a_customer_sees_nothing_of_it(visit):
    flushed("e-1")
    customer = visit("customer")

    assert customer.get(FILES).status_code == 403
    assert customer.get(download(files()[0].pk)).status_code == 403


def test_trouble_stands_at_the_top_and_what_others_wrote_is_only_text(visit, journal_dir):
    journal_dir.write_text("in the way")
    append("e-1", sku="<script>window.pwned=1</script>")
    Writer().flush(KEY)

    page = visit("operator").get(FILES).text

    assert "Cannot be written since" in page
    assert "NotADirectoryError" in page
    assert "<script>window" not in page


def test_a_file_on_another_machine_is_named_instead_of_sent(visit, journal_dir):
    flushed("e-1")
    (journal_dir / files()[0].path).unlink()
    operator = visit("operator")

    answer = operator.get(download(files()[0].pk), follow=True)

    assert "is not on this machine" in answer.text


@pytest.mark.parametrize(("fate", "shown"), [("waiting", "late"), ("failed", "bad"), ("written", "good")])
def test_events_are_found_by_their_fate_and_id(visit, fate, shown):
    append("bad", lines=[])
    flushed("good")
    append("late")
    viewer = visit("viewer")

    found = [viewer.get(f"{ENTRIES}?fate={fate}").context["cl"].result_list, viewer.get(f"{ENTRIES}?q={shown}").context["cl"].result_list]

    assert [[row.event_id for row in rows] for rows in found] == [[shown], [shown]]


def test_nothing_of_it_can_be_changed(visit):
    flushed("e-1")
    operator = visit("operator")
    entry = JournalEntry.objects.get()

    assert operator.get(f"{ENTRIES}add/").status_code == 403
    assert operator.post(f"{ENTRIES}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    assert operator.post(f"{ENTRIES}{entry.pk}/change/", {"event_id": "x"}).status_code == 403

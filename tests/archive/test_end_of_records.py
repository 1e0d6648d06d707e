"""The end of what was kept: archived orders with the rows of the shop, records of operators, documents after their years, events."""

from __future__ import annotations

from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from orders.documents.tables import Document, DocumentCounter
from orders.models import (
    Parcel,
    ParcelEvent,
    PaymentAdjustment,
    PaymentEvent,
)
from orders.records import expired
from supervision import testing
from supervision.models import (
    Approval,
    ArchivedRun,
    Assignee,
    DeadLetter,
    Finding,
    Incident,
    IncidentNote,
    Pause,
    RunNote,
    StrayReply,
    Submission,
)
from supervision.postgres import db
from supervision.recovery import upkeep
from supervision.runtime import tidying
from tests.engine.conftest import tuned  # noqa: F401
from tests.orders.test_returns import ada, asked, deliver, delivered, olga, shop
from tests.support.console import person
from tests.support.history import rewrite

from .test_all_of_an_order import archived, left_of, rich, sound, told

__all__ = ["ada", "delivered", "olga", "shop"]

DAYS = 3650


def age(days: float) -> None:
    """Everything in the archive, and every record, is this much older."""
    for table, moments in {
        "supervision_archivedrun": ("created_at", "finished_at"),
        "supervision_incident": ("opened_at", "closed_at"),
        "supervision_approval": ("asked_at", "decided_at"),
        "supervision_finding": ("found_at", "closed_at"),
        "supervision_pause": ("paused_at", "lifted_at"),
        "supervision_deadletter": ("created_at", "resolved_at"),
        "django_admin_log": ("action_time",),
    }.items():
        earlier = ", ".join(f"{moment} = {moment} - {days} * interval '1 day'" for moment in moments)
        rewrite(f"UPDATE {table} SET {earlier}")  # noqa: S608 - the names above
    for table in testing.CHAIN:
        rewrite(f"DELETE FROM {table}")  # noqa: S608 - its digests cover the times


def tidied() -> None:
    while tidying.turn(60.0):
        pass


def test_after_the_records_days_the_archive_forgets_the_order_and_keeps_its_documents(shop, ada):
    order, young = rich(shop, ada), deliver(shop, ada)
    told(shop)
    archived(keep=True)
    run_id = ArchivedRun.objects.get(key=order).run_id
    StrayReply.objects.create(run_id=run_id, direction="do", position=0, attempt=9, outcome="processed", actor="late")
    Assignee.objects.create(run_key=order, owner="olga")
    age(DAYS - 1)
    tidied()
    assert ArchivedRun.objects.filter(key=order).exists()
    assert left_of(order)["Order"] == 1

    age(2)
    ArchivedRun.objects.filter(key=young).update(finished_at="2126-01-01T00:00Z")
    tidied()

    assert list(ArchivedRun.objects.values_list("key", flat=True)) == [young]
    assert left_of(order) == dict.fromkeys(left_of(order), 0)
    assert (RunNote.objects.count(), Assignee.objects.count(), StrayReply.objects.count()) == (0, 0, 0)
    assert list(Submission.objects.values_list("public_id", flat=True)) in ([], [young])
    assert Document.objects.filter(order_key=order).count() == 4
    assert sound()


def test_a_row_that_came_after_the_order_had_left_goes_with_its_archive(shop, ada):
    order = deliver(shop, ada)
    told(shop)
    archived(keep=False)
    Parcel.objects.create(key=f"{order}:book-shipment:do:1", order_key=order)
    PaymentAdjustment.objects.create(
        external_id="dp_1", kind="dispute", intent="pi", order_key=order, amount=1, currency="EUR", status="lost", gives_back=True, rank=1
    )

    age(DAYS + 1)
    tidied()

    assert not Parcel.objects.exists()
    assert not PaymentAdjustment.objects.exists()


def test_the_archive_forgets_no_order_of_which_something_later_still_runs(shop, ada):
    order = deliver(shop, ada)
    told(shop)
    archived(keep=True)
    asked(shop, order, mugs=1)

    age(DAYS + 1)
    tidied()

    assert ArchivedRun.objects.filter(key=order).exists()
    assert left_of(order)["Return"] == 1
    assert sound()


def test_records_end_once_they_are_over_and_old_and_what_stands_stays(shop, tuned):  # noqa: F811
    def both(make):
        return make(over=True), make(over=False)

    now = "2026-11-01T00:00Z"
    both(lambda over: Incident.objects.create(kind="k", cause=f"c{over}", closed_at=now if over else None))
    for incident in Incident.objects.all():
        IncidentNote.objects.create(incident=incident, author="olga", text="seen")
    both(lambda over: Finding.objects.create(service="s", kind="k", external_id=str(over), closed_at=now if over else None))
    both(
        lambda over: Approval.objects.create(
            verb="v", subject="s", identity=str(over), reason="r", asked_by="olga", expires_at=now,
            state="refused" if over else "pending", decided_at=now if over else None,
        )
    )  # fmt: skip
    both(lambda over: Pause.objects.create(scope="agent", name=str(over), reason="r", paused_by="o", lifted_at=now if over else None))
    both(
        lambda over: DeadLetter.objects.create(
            source="submission", body=b"x", reason="r", public_id=f"p{over}", resolved_at=now if over else None
        )
    )
    for letter in DeadLetter.objects.all():
        Submission.objects.create(public_id=letter.public_id, workflow="w", payload="x", consumed_at=now)
    LogEntry.objects.create(user_id=person("otto", "operator").pk, object_repr="x", action_flag=2)
    counts = [model.objects.count() for model in (Incident, IncidentNote, Finding, Approval, Pause, DeadLetter, Submission)]
    assert counts == [2] * 7

    tuned(RECORD_DAYS=None)
    age(DAYS + 1)
    tidied()
    assert Incident.objects.count() == 2  # off

    tuned(RECORD_DAYS=DAYS)
    tidied()

    counts = [model.objects.count() for model in (Incident, IncidentNote, Finding, Approval, Pause, DeadLetter, Submission)]
    assert counts == [1] * 7
    assert not LogEntry.objects.exists()
    assert (Finding.objects.get().closed_at, Pause.objects.get().lifted_at, DeadLetter.objects.get().resolved_at) == (None, None, None)


def test_documents_stay_for_their_years_and_leave_no_gap_that_the_audit_would_tell(shop, ada, settings):
    _order, later = rich(shop, ada), deliver(shop, ada)
    told(shop)
    for model in (Document, DocumentCounter):
        model.objects.update(year=2015)
    later_invoice = Document.objects.get(order_key=later)
    Document.objects.filter(pk=later_invoice.pk).update(year=2017, number=1)
    DocumentCounter.objects.filter(series="INV").update(last=1)
    DocumentCounter.objects.create(series="INV", year=2017, last=1)
    assert sound()

    tidied()

    assert list(Document.objects.values_list("order_key", flat=True)) == [later]  # 2017 is kept to the end of 2027
    assert sorted(DocumentCounter.objects.values_list("series", "year", "last", "gone")) == [
        ("CRN", 2015, 3, 3),
        ("INV", 2015, 1, 1),
        ("INV", 2017, 1, 0),
    ]
    assert sound()
    settings.DOCUMENT_YEARS = 8
    tidied()
    assert not Document.objects.exists()
    assert sound()


def test_documents_go_in_batches_and_the_audit_understands_each(shop, monkeypatch):
    monkeypatch.setattr(expired, "SIZE", 2)
    DocumentCounter.objects.create(series="INV", year=2010, last=5)
    for number in range(1, 6):
        Document.objects.create(
            kind="invoice", series="INV", year=2010, number=number, order_key=str(number), issued_at="2010-05-05T00:00Z",
            currency="EUR", total=1, vat=0, body={"lines": [{"rate": "0", "amount": "1.00", "vat": "0.00"}]},
        )  # fmt: skip
    left = []
    while expired.documents():
        left.append(Document.objects.count())
        assert sound()

    assert left == [3, 1, 0]


def test_a_credit_note_may_outlive_its_invoice(shop):
    this_year = timezone.now().year
    for kind, series, age, back in (("invoice", "INV", 11, ""), ("credit_note", "CRN", 10, "r")):
        DocumentCounter.objects.create(series=series, year=this_year - age, last=1)
        Document.objects.create(
            kind=kind, series=series, year=this_year - age, number=1, order_key="o", cause=back, issued_at="2010-05-05T00:00Z",
            currency="EUR", total=1, vat=0, body={"lines": [{"rate": "0", "amount": "1.00", "vat": "0.00"}]},
        )  # fmt: skip
    assert sound()

    expired.documents()

    assert [one.kind for one in Document.objects.all()] == ["credit_note"]
    assert sound()


def test_events_of_webhooks_and_expired_sessions_go_without_new_ones(shop):
    old = "2020-01-01T00:00Z"
    for number in (1, 2):
        PaymentEvent.objects.create(event_id=f"e{number}", kind="k", intent="i")
        ParcelEvent.objects.create(event_id=f"e{number}", key="k", state="booked", at=old)
    PaymentEvent.objects.filter(event_id="e1").update(received_at=old)
    ParcelEvent.objects.filter(event_id="e1").update(received_at=old)
    Parcel.objects.create(key="not ours", booked_at=old)
    Parcel.objects.create(key="not ours and young")
    Parcel.objects.create(key="ours", order_key="an order", booked_at=old)
    visitor = Client()
    visitor.force_login(person("otto", "operator"))
    db.run("INSERT INTO django_session SELECT session_key || 'x', session_data, now() - interval '1 s' FROM django_session")

    tidied()

    assert list(PaymentEvent.objects.values_list("event_id", flat=True)) == ["e2"]
    assert list(ParcelEvent.objects.values_list("event_id", flat=True)) == ["e2"]
    assert set(Parcel.objects.values_list("key", flat=True)) == {"not ours and young", "ours"}
    assert db.run("SELECT count(*) FROM django_session")[0][0] == 1


def test_one_tidier_that_fails_keeps_no_other_from_its_work_and_a_turn_ends_in_time(monkeypatch, shop):
    done = []

    def fails() -> bool:
        raise ValueError("broken")

    monkeypatch.setattr(tidying, "_TIDIERS", {"fails": fails, "endless": lambda: True, "short": lambda: bool(done.append(1))})

    assert tidying.turn(0.05) is True
    assert done == [1]


def test_the_sweep_tidies_on_soon_while_there_is_more_and_hourly_otherwise(monkeypatch, shop):
    turns = []
    monkeypatch.setattr(tidying, "turn", lambda: turns.append(1) or len(turns) == 1)
    monkeypatch.setattr(upkeep, "_tidied", float("-inf"))
    clock = [1000.0]
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: clock[0])

    upkeep.turn(), upkeep.turn()
    assert len(turns) == 1
    clock[0] += upkeep.TIDY_ON_SECONDS + 1
    upkeep.turn()
    assert len(turns) == 2
    clock[0] += upkeep.TIDY_ON_SECONDS + 1
    upkeep.turn()
    assert len(turns) == 2

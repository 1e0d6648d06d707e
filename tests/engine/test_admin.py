"""The engine's part of the console: landing page, alerts, dead letters, processes, schedules, and the rights to see them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from supervision import testing
from supervision.console.shared import TONES, age_in_words
from supervision.deadletters.dead_letters import hex_dump
from supervision.intake import submission
from supervision.models import Alert, DeadLetter, Heartbeat, LeaderLease, Notification, Resource, Run, StepState, Submission
from supervision.states import ProcessState, RunState
from supervision.templatetags.console import tone
from supervision.worker import heartbeats
from tests.support.console import ATTACK, ATTACKS, fail, person, place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
INDEX = "/admin/"
LISTS = ("run", "alert", "deadletter", "submission", "notification", "heartbeat", "leaderlease")


def letter(**fields: Any) -> DeadLetter:
    return DeadLetter.objects.create(**{"source": "submission", "body": b"{not json", "reason": "not JSON", **fields})


def waiting() -> str:
    key = submission.new_public_id()
    submission.accept([submission.NewSubmission(public_id=key, workflow="fulfil-order", payload="{not json")])
    return key


# --- Landing page -----------------------------------------------------------------------------------------------------


def test_the_landing_page_counts_and_every_number_leads_to_its_rows(operator: Client):
    fail(2)
    (order,) = place()
    StepState.objects.filter(run=order.run, process_state="Processing").update(complete_by="2026-01-01T00:00Z")
    letter()
    waiting()

    html = operator.get(INDEX).content.decode()

    for words in ("1</b> overdue steps", "2</b> open alerts", "1</b> waiting submissions", "1</b> open dead letters", "charge-payment"):
        assert words in html, words
    links = set(re.findall(r'href="(/admin/[^"]*\?[^"]*)"', html))
    assert len(links) >= 10
    for link in links:
        assert operator.get(link.replace("&amp;", "&")).status_code == 200, link
    assert operator.get("/admin/orders/order/?at=overdue").content.decode().count(order.number) >= 1


def test_the_landing_page_says_who_lives_and_who_leads(operator: Client):
    heartbeats.beat("supervisor")
    LeaderLease.objects.create(name="supervisor", holder="supervisor@one", expires_at="2100-01-01T00:00Z")

    html = operator.get(INDEX).content.decode()

    assert "supervisor</b> is led by supervisor@one" in html
    life = html[html.index('class="sc-life"') :]
    assert "never seen" not in life[: life.index("Beat")]
    assert "never seen" in life[life.index("Beat") :]


def test_the_landing_page_asks_the_database_as_often_for_many_orders_as_for_few(operator: Client):
    asked = []
    for more in (2, 60):
        fail(more)
        operator.get(INDEX)
        with CaptureQueriesContext(connection) as queries:
            operator.get(INDEX)
        asked.append(len(queries))

    assert asked[0] == asked[1] <= 20


def sidebar_of(client: Client) -> str:
    html = client.get(INDEX).content.decode()
    return html[html.index('id="nav-sidebar-apps"') :]


def test_the_sidebar_carries_the_numbers_and_only_what_one_may_see(operator: Client, viewer: Client):
    fail(3)

    sidebar = sidebar_of(operator)

    assert re.search(r"<span>Orders</span>.{0,1500}?\b3\b", sidebar, re.S)
    assert "/admin/supervision/alert/?open=yes" in sidebar
    assert "/admin/auth/user/" not in sidebar
    assert "/admin/django_celery_beat/periodictask/" in sidebar
    assert "/admin/django_celery_beat/crontabschedule/" not in sidebar
    assert "/admin/django_celery_beat/" not in sidebar_of(viewer)


def test_staff_without_rights_sees_nothing_on_the_landing_page(client: Client):
    (order,) = fail()
    client.force_login(person("stan"))

    html = client.get(INDEX).content.decode()

    assert "may not see orders" in html
    assert "charge-payment" not in html
    assert order.number not in html


# --- Alerts -----------------------------------------------------------------------------------------------------------


def test_an_alert_is_acknowledged_in_place_and_keeps_the_name(operator: Client):
    fail(2)
    first, second = Alert.objects.order_by("pk")

    answer = operator.post(reverse("admin:supervision_alert_acknowledge"), {"alert": first.pk, "next": INDEX})

    assert answer["Location"] == INDEX
    first.refresh_from_db()
    second.refresh_from_db()
    assert first.acknowledged_by == "olga"
    assert second.acknowledged_at is None


def test_selected_alerts_are_acknowledged_from_the_list(operator: Client):
    fail(2)

    chosen = {"action": "acknowledge_selected", "_selected_action": list(Alert.objects.values_list("pk", flat=True))}
    operator.post("/admin/supervision/alert/", chosen)

    assert not Alert.objects.filter(acknowledged_at=None).exists()


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "javascript:alert(1)", ""])
def test_acknowledging_never_leads_away_from_here(operator: Client, target: str):
    answer = operator.post(reverse("admin:supervision_alert_acknowledge"), {"alert": "x", "next": target})

    assert answer["Location"] == INDEX


def test_a_viewer_acknowledges_nothing(viewer: Client):
    fail()
    alert = Alert.objects.get()

    answer = viewer.post(reverse("admin:supervision_alert_acknowledge"), {"alert": alert.pk})
    viewer.post("/admin/supervision/alert/", {"action": "acknowledge_selected", "_selected_action": [alert.pk]})

    assert answer.status_code == 403
    alert.refresh_from_db()
    assert alert.acknowledged_at is None
    assert viewer.get(reverse("admin:supervision_alert_acknowledge")).status_code == 405


# --- Dead letters -----------------------------------------------------------------------------------------------------


def test_a_dead_letters_bytes_are_shown_as_text_and_as_digits(operator: Client):
    body = b"\x00\xff<script>window.pwned=1</script>" + bytes(range(32))

    html = operator.get(reverse("admin:supervision_deadletter_change", args=[letter(body=body).pk])).content.decode()

    assert r"\xff" in html
    assert "00 ff 3c 73 63 72 69 70 74" in html
    assert "<script>window.pwned" not in html


def test_the_digits_have_offsets_and_printable_characters():
    assert hex_dump(b"order\x00" + b"a" * 12).splitlines() == [
        "000000  6f 72 64 65 72 00 61 61 61 61 61 61 61 61 61 61  order.aaaaaaaaaa",
        "000010  61 61                                            aa",
    ]


def test_a_dead_letter_is_requeued_or_discarded_with_a_reason(operator: Client):
    key = waiting()
    testing.schedule()
    requeued, discarded = DeadLetter.objects.get(public_id=key), letter()

    for item, verb in ((requeued, "requeue"), (discarded, "discard")):
        address = reverse("admin:supervision_deadletter_resolve", args=[item.pk, verb])
        assert "This field is required" in operator.post(address, {"reason": " "}).content.decode()
        item.refresh_from_db()
        assert item.resolved_at is None
        assert operator.get(address).status_code == 200
        assert operator.post(address, {"reason": "the shop has fixed it"}).status_code == 302

    requeued.refresh_from_db()
    discarded.refresh_from_db()
    assert "the shop has fixed it" in requeued.resolution
    assert "the shop has fixed it" in discarded.resolution
    assert Submission.objects.get(public_id=key).consumed_at is None


def test_a_dead_letter_that_somebody_else_resolved_is_left_alone(operator: Client):
    resolved = letter(resolved_at="2026-01-01T00:00Z", resolution="vera: discarded: mine")
    address = reverse("admin:supervision_deadletter_resolve", args=[resolved.pk, "discard"])

    answer = operator.post(address, {"reason": "mine too"}, follow=True)

    assert "resolved meanwhile" in answer.content.decode()
    resolved.refresh_from_db()
    assert resolved.resolution == "vera: discarded: mine"


def test_a_viewer_resolves_no_dead_letter(viewer: Client):
    item = letter()

    for verb in ("requeue", "discard"):
        address = reverse("admin:supervision_deadletter_resolve", args=[item.pk, verb])
        assert viewer.get(address).status_code == 403
        assert viewer.post(address, {"reason": "because"}).status_code == 403

    item.refresh_from_db()
    assert item.resolved_at is None


# --- Every page -------------------------------------------------------------------------------------------------------


def every_page() -> list[str]:
    """One URL of each kind of page in the console, with rows to show."""
    fail()
    letter(reason=ATTACK, body=ATTACK.encode(), content_type=ATTACK[:100], headers={"x": ATTACK}, source=ATTACK[:60])
    submission.accept([submission.NewSubmission(public_id="waiting", workflow="fulfil-order", payload=ATTACK, client=ATTACK)])
    heartbeats.beat("supervisor", {"note": ATTACK})
    Heartbeat.objects.create(incarnation=ATTACK, role=ATTACK)
    LeaderLease.objects.create(name=ATTACK[:50], holder=ATTACK, expires_at="2100-01-01T00:00Z")
    Notification.objects.create(kind="x", payload={"x": ATTACK}, last_error=ATTACK)
    Alert.objects.update(message=ATTACK, step=ATTACK)
    StepState.objects.filter(process_state="Error").update(last_error=ATTACK)
    pages = [INDEX]
    for name in LISTS:
        pages.append(f"/admin/supervision/{name}/")
        model = {m._meta.model_name: m for m in admin.site._registry}[name]
        if name != "alert":
            pages.append(reverse(f"admin:supervision_{name}_change", args=[model.objects.order_by("pk").first().pk]))
    return pages


def test_everything_others_wrote_is_text_on_every_page(operator: Client):
    for address in every_page():
        answer = operator.get(address)
        html = answer.content.decode()
        assert answer.status_code == 200, address
        for attack in ATTACKS[:3]:
            assert attack not in html, (address, attack)


def test_a_viewer_sees_every_page_and_finds_nothing_to_act_with(viewer: Client):
    for address in every_page():
        answer = viewer.get(address)
        html = answer.content.decode()
        assert answer.status_code == 200, address
        for button in ("/operate/", "/resolve/", "acknowledge/", '_selected"', "addlink", 'name="_save"', "deletelink"):
            assert button not in html, (address, button)


def test_customers_and_strangers_see_no_page(client: Client):
    pages = every_page()
    for who in (None, person("carl", "customer", staff=False)):
        if who is not None:
            client.force_login(who)
        for address in pages:
            answer = client.get(address)
            assert answer.status_code == 302, address
            assert "/login/" in answer["Location"]


@pytest.mark.parametrize("name", LISTS)
def test_nobody_adds_changes_or_deletes_what_the_engine_writes(client: Client, admin_user: Any, name: str):
    every_page()
    model = {m._meta.model_name: m for m in admin.site._registry}[name]
    row = model.objects.order_by("pk").first()
    client.force_login(admin_user)
    count = model.objects.count()

    assert client.get(f"/admin/supervision/{name}/add/").status_code == 403
    assert client.post(reverse(f"admin:supervision_{name}_change", args=[row.pk]), {"key": "x"}).status_code in (403, 405)
    assert client.post(reverse(f"admin:supervision_{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    client.post(f"/admin/supervision/{name}/", {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    assert model.objects.count() == count


# --- Schedules --------------------------------------------------------------------------------------------------------


def test_an_operator_edits_the_interval_of_the_sweep_here(operator: Client):
    task = PeriodicTask.objects.get(task="supervision.sweep")  # as the migrations make it
    address = reverse("admin:django_celery_beat_intervalschedule_change", args=[task.interval_id])
    shown = operator.get(address).content.decode()
    management = dict(re.findall(r'name="(periodictask_set-[A-Z_]+)" value="(\d+)"', shown))
    inline = dict(re.findall(r'name="(periodictask_set-\d+-\w+)" value="(\w*)"', shown))
    answer = operator.post(address, {**management, **inline, "every": "17", "period": "seconds"})

    assert answer.status_code == 302
    assert IntervalSchedule.objects.get(pk=task.interval_id).every == 17


def test_a_viewer_is_refused_the_schedules_that_an_operator_sees(operator: Client, viewer: Client):
    for name in ("periodictask", "intervalschedule"):
        address = f"/admin/django_celery_beat/{name}/"
        assert (operator.get(address).status_code, viewer.get(address).status_code) == (200, 403)


def test_an_operator_changes_the_limits_of_a_resource_and_a_viewer_only_sees_them(operator: Client, viewer: Client):
    resource = Resource.objects.create(name="bank")
    address = reverse("admin:supervision_resource_change", args=[resource.pk])
    limits = {"breaker_threshold": "7", "cool_down_seconds": "9", "probe_limit": "1"}

    assert viewer.get(address).status_code == 200
    assert viewer.post(address, limits).status_code == 403
    assert operator.post(address, limits).status_code == 302

    resource.refresh_from_db()
    assert resource.breaker_threshold == 7


def test_only_a_resource_that_can_be_deleted_offers_it(operator: Client):
    needed, _ = Resource.objects.get_or_create(name="payment")
    spare = Resource.objects.create(name="payment-north", service="payment")

    def offered(row: Resource) -> bool:
        address = f"/admin/supervision/resource/{row.pk}/"
        return f"{address}delete/" in operator.get(f"{address}change/").content.decode()

    assert offered(spare)
    spare.delete()
    assert not offered(needed)


def test_every_kind_of_schedule_has_its_pages_in_this_theme(client: Client, admin_user: Any):
    client.force_login(admin_user)
    CrontabSchedule.objects.create(minute="0", hour="4")

    for name in ("periodictask", "intervalschedule", "crontabschedule", "clockedschedule", "solarschedule"):
        assert client.get(f"/admin/django_celery_beat/{name}/").status_code == 200
        html = client.get(f"/admin/django_celery_beat/{name}/add/").content.decode()
        assert "rounded-default" in html


def test_the_task_of_a_schedule_is_chosen_from_the_registered_ones(client: Client, admin_user: Any):
    client.force_login(admin_user)

    html = client.get("/admin/django_celery_beat/periodictask/add/").content.decode()

    assert '<option value="supervision.sweep"' in html


# -- Wording -----------------------------------------------------------------------------------------------------------


def test_every_state_has_a_tone():
    assert set(TONES) == set(RunState)
    assert {tone(state.value) for state in ProcessState} <= {"neutral", "info", "success", "warning", "danger"}


def test_every_kind_of_alert_is_shown_in_words(operator: Client):
    fail()
    run = Run.objects.get()
    for position, kind in enumerate(Alert.Kind.values):
        Alert.objects.get_or_create(run=run, position=position, direction="do", generation=9, kind=kind)

    html = operator.get("/admin/supervision/alert/").content.decode()

    for kind in Alert.Kind:
        assert str(kind.label) in html


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "never"),
        (-3, "0 seconds"),
        (1, "1 second"),
        (59.9, "59 seconds"),
        (60, "1\xa0minute"),
        (7300, "2\xa0hours"),
        (90000, "1\xa0day"),
    ],
)
def test_an_age_is_said_in_one_unit(seconds: float | None, words: str):
    assert age_in_words(seconds) == words

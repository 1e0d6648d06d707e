"""The console's pages for pauses, resources and routes: what operators see and what they may change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from supervision import testing
from supervision.governance import resources
from supervision.models import Pause, Resource, ResourceRoute, Slot, StepState
from supervision.operations import pauses
from supervision.wakeup import hints
from tests.support.console import ATTACK, ATTACKS, ORDERS, fail, page, place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
INDEX, PAUSES = "/admin/", "/admin/supervision/pause/"
ADD = f"{PAUSES}add/"
FORM = {
    "capacity": "5",
    "rate_per_second": "",
    "breaker_threshold": "5",
    "cool_down_seconds": "5",
    "probe_limit": "1",
    "settings": "{}",
}
RESOURCES, ROUTES = "/admin/supervision/resource/", "/admin/supervision/resourceroute/"


def html(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return str(answer.content.decode())


def a_resource(name: str = "shipping", **fields: Any) -> Resource:
    row, _made = Resource.objects.update_or_create(name=name, defaults=fields)
    resources.forget()
    return row


def address_of(resource: Resource) -> str:
    return reverse("admin:supervision_resource_change", args=[resource.pk])


# --- Pauses -----------------------------------------------------------------------------------------------------------


def test_an_operator_pauses_an_agent_with_a_reason_and_comes_back_to_where_she_was(operator: Client):
    landing = html(operator, INDEX)
    link = f"{ADD}?scope=agent&amp;name=payment&amp;next=%2Fadmin%2F"
    assert link in landing
    form = html(operator, link.replace("&amp;", "&"))
    assert '<option value="agent:payment" selected>' in form

    answer = operator.post(link.replace("&amp;", "&"), {"target": "agent:payment", "reason": "the bank called", "until": "2h"})

    assert answer["Location"] == INDEX
    held = Pause.objects.get()
    assert (held.scope, held.name, held.reason, held.paused_by) == ("agent", "payment", "the bank called", "olga")
    assert held.until is not None
    landing = html(operator, INDEX)
    assert "The agent payment" in landing
    assert "the bank called" in landing
    assert LogEntry.objects.get().change_message == "pause: the bank called"


def test_an_operator_resumes_with_a_reason(operator: Client):
    held = pauses.pause("all", reason="moving house", by="oscar")
    address = f"{PAUSES}{held.pk}/change/"
    assert "moving house" in html(operator, address)
    assert operator.post(address, {"reason": ""}).status_code == 200

    answer = operator.post(address, {"reason": "we have moved"})

    assert answer["Location"] == f"{PAUSES}?active=yes"
    held.refresh_from_db()
    assert (held.lifted_by, held.lift_reason) == ("olga", "we have moved")
    assert "we have moved" in html(operator, address)
    assert 'name="reason"' not in html(operator, address)
    operator.post(address, {"reason": "twice"})
    held.refresh_from_db()
    assert held.lift_reason == "we have moved"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"target": "all:", "reason": ""}, "This field is required"),
        ({"target": "order:", "reason": "r"}, "Which order?"),
        ({"target": "order:", "order": "no-such-order", "reason": "r"}, "no order &#x27;no-such-order&#x27; is known"),
        ({"target": "all:", "order": "x", "reason": "r"}, "Leave this empty"),
        ({"target": "agent:no-such-agent", "reason": "r"}, "Select a valid choice"),
        ({"target": "all:", "reason": "r", "until": "9999-12-31T23:59-12:00"}, "at most ten years from now"),
        ({"target": "all:", "reason": "r", "until": "2020-01-01T00:00Z"}, "passed already"),
    ],
)
def test_a_mistake_is_told_at_its_field(operator: Client, sent: dict[str, str], words: str):
    answer = operator.post(ADD, sent)

    assert answer.status_code == 200
    assert words in answer.content.decode()
    assert not Pause.objects.exists()


def test_an_order_is_paused_and_resumed_from_its_page_which_says_so(operator: Client):
    (order,) = place()
    StepState.objects.filter(run=order.run, position=0).update(process_state="Pending", locked_by=None, not_before=timezone.now())
    shown = html(operator, page(order))
    link = next(part for part in shown.split('"') if part.startswith(ADD)).replace("&amp;", "&")

    answer = operator.post(link, {"target": "order:", "order": order.public_id, "reason": "an odd address"})

    assert answer["Location"] == page(order)
    shown = html(operator, page(order))
    assert "The order is paused by olga since" in shown
    assert shown.count("an odd address") >= 2  # in the reason for waiting and in the timeline
    assert "The order is paused by olga since" in html(operator, ORDERS)
    resume = next(part for part in shown.split('"') if part.startswith(PAUSES) and "change" in part).replace("&amp;", "&")
    assert operator.post(resume, {"reason": "it is right"})["Location"] == page(order)
    assert "resumed" in html(operator, page(order))


def test_an_order_that_has_ended_offers_no_pause(operator: Client):
    (order,) = place()
    testing.run_of(order.public_id)
    operator.post(reverse("admin:orders_order_operate", args=[order.pk, "cancel"]), {"reason": "r", "attempt": "", "plan_version": ""})

    assert ADD not in html(operator, page(order))


def test_a_viewer_sees_pauses_and_changes_nothing(viewer: Client):
    held = pauses.pause("all", reason="moving house", by="oscar")

    assert "Everything" in html(viewer, f"{PAUSES}?active=yes")
    assert 'name="reason"' not in html(viewer, f"{PAUSES}{held.pk}/change/")
    assert ADD not in html(viewer, INDEX)
    assert viewer.get(ADD).status_code == 403
    assert viewer.post(f"{PAUSES}{held.pk}/change/", {"reason": "r"}).status_code == 403
    assert pauses.active().count() == 1


def test_the_list_tells_those_in_force_from_those_that_are_over(operator: Client):
    pauses.pause("agent", "email", reason="first of all", by="oscar", until=timedelta(hours=1))
    Pause.objects.update(until=timezone.now() - timedelta(days=1))
    pauses.pause("agent", "payment", reason="second of all", by="oscar")

    assert "second of all" in html(operator, f"{PAUSES}?active=yes")
    assert "first of all" not in html(operator, f"{PAUSES}?active=yes")
    over = html(operator, f"{PAUSES}?active=no")
    assert "first of all" in over
    assert "its time was over" in over


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_pausing_never_leads_away_from_here(operator: Client, target: str):
    answer = operator.post(f"{ADD}?next={target}", {"target": "all:", "reason": "r"})

    assert answer["Location"] == f"{PAUSES}?active=yes"


def test_nothing_that_somebody_wrote_runs_on_these_pages(operator: Client):
    held = pauses.pause("all", reason=ATTACK, by=ATTACK)
    bank = a_resource("payment", last_error=ATTACK, last_error_at=timezone.now(), settings={"account": ATTACK})

    for address in (INDEX, PAUSES, f"{PAUSES}{held.pk}/change/", RESOURCES, address_of(bank)):
        shown = html(operator, address)
        for attack in ATTACKS[:3]:
            assert attack not in shown, address


# --- Resources --------------------------------------------------------------------------------------------------------


def test_the_list_shows_calls_breaker_waiting_rate_and_the_last_error(operator: Client):
    now = timezone.now()
    a_resource("payment", capacity=5, rate_per_second=2.5, last_error="503 from the bank", last_error_at=now - timedelta(minutes=3.5))
    a_resource("shipping", breaker_state="open", opened_at=now - timedelta(minutes=10.5), paused=False)
    a_resource("email", paused=True)
    Slot.objects.create(resource="payment", run_id=1, direction="do", position=1, attempt=1, holder="x", until=now + timedelta(minutes=1))

    shown = html(operator, RESOURCES)

    for words in ("1 of 5", "2.5", "3\xa0minutes ago: 503 from the bank", "open for 10\xa0minutes", "paused"):
        assert words in shown, words


def test_the_list_asks_as_often_for_many_resources_as_for_few(operator: Client):
    asked = []
    for n in (1, 30):
        for number in range(n):
            a_resource(f"carrier-{n}-{number}", service="shipping")
        operator.get(RESOURCES)
        with CaptureQueriesContext(connection) as queries:
            operator.get(RESOURCES)
        asked.append(len(queries))

    assert asked[0] == asked[1]


def test_limits_are_edited_with_their_history_and_the_breaker_is_left_alone(operator: Client, monkeypatch: pytest.MonkeyPatch):
    sent: list[str] = []
    monkeypatch.setattr(hints, "send", sent.append)
    bank = a_resource("payment", capacity=5)
    form = {**FORM, "capacity": "2", "rate_per_second": "1.5"}
    operator.get(address_of(bank))
    Resource.objects.filter(pk=bank.pk).update(breaker_state="open", failures=9)  # while the form is open

    assert operator.post(address_of(bank), form).status_code == 302

    bank.refresh_from_db()
    assert (bank.capacity, bank.rate_per_second, bank.breaker_state, bank.failures) == (2, 1.5, "open", 9)
    assert sent == [hints.SCHEDULE]
    assert resources.look().by_name["payment"].capacity == 2
    shown = html(operator, address_of(bank))
    assert "capacity: 5 -&gt; 2; rate_per_second: none -&gt; 1.5" in shown
    assert "olga" in html(operator, f"{RESOURCES}{bank.pk}/history/")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("capacity", "0", "greater than or equal to 1"),
        ("capacity", "many", "Enter a whole number"),
        ("rate_per_second", "-1", "greater than or equal to 0.001"),
        ("breaker_threshold", "", "This field is required"),
        ("probe_limit", "0", "greater than or equal to 1"),
        ("settings", "[1]", "Expected a JSON object"),
        ("settings", "{", "Enter a valid JSON"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_at_its_field(operator: Client, field: str, value: str, words: str):
    bank = a_resource("payment", capacity=5)

    answer = operator.post(address_of(bank), {**FORM, field: value})

    assert answer.status_code == 200
    assert words in answer.content.decode()


def a_second_carrier(operator: Client, name: str = "carrier-north") -> Any:
    return operator.post(
        f"{RESOURCES}add/",
        {**FORM, "name": name, "service": "shipping", "capacity": "3", "settings": '{"account": "north"}'},
    )


def test_a_second_resource_of_a_service_is_added_and_taken_away_again(operator: Client):
    a_resource("shipping")

    assert a_second_carrier(operator).status_code == 302
    north = Resource.objects.get(name="carrier-north")
    assert (north.service, north.capacity, north.settings) == ("shipping", 3, {"account": "north"})
    assert a_second_carrier(operator, "two words").status_code == 200
    assert a_second_carrier(operator).status_code == 200  # the name is taken

    assert operator.post(f"{RESOURCES}{north.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Resource.objects.filter(pk=north.pk).exists()


def test_a_resource_that_is_needed_is_not_deleted(operator: Client):
    only = a_resource("payment")
    a_resource("shipping")
    a_second_carrier(operator)
    north = Resource.objects.get(name="carrier-north")
    ResourceRoute.objects.create(service="shipping", partition="0", resource="carrier-north")

    def refused(resource: Resource) -> str:
        return str(operator.post(f"{RESOURCES}{resource.pk}/delete/", {"post": "yes"}, follow=True).content.decode())

    assert "It is the only resource of payment." in refused(only)
    assert "Routes lead to it." in refused(north)
    ResourceRoute.objects.all().delete()
    (order,) = place()
    StepState.objects.filter(run=order.run, name="book-shipment").update(resource="carrier-north", effect="unknown")
    assert "Unfinished orders have steps" in refused(north)
    assert Resource.objects.filter(pk__in=[only.pk, north.pk]).count() == 2
    operator.post(RESOURCES, {"action": "delete_selected", "_selected_action": [only.pk], "post": "yes"})
    assert Resource.objects.filter(pk=only.pk).exists()


def test_an_operator_closes_a_breaker_without_waiting_for_the_probe(operator: Client):
    bank = a_resource("payment", breaker_state="open", failures=9, opened_at=timezone.now())

    operator.post(RESOURCES, {"action": "close_breakers", "_selected_action": [bank.pk]})

    bank.refresh_from_db()
    assert bank.breaker_state == "closed"
    assert "breaker closed by hand" in html(operator, address_of(bank))


def test_an_operator_closes_a_breaker_on_its_own_page(operator: Client, viewer: Client):
    bank = a_resource("payment", breaker_state="open", failures=9, opened_at=timezone.now())
    close = f"{RESOURCES}{bank.pk}/close/"
    assert close in html(operator, address_of(bank))
    assert close not in html(viewer, address_of(bank))
    assert (viewer.post(close).status_code, operator.get(close).status_code) == (403, 405)
    assert operator.post(f"{RESOURCES}999/close/").status_code == 404

    said = operator.post(close, follow=True).content.decode()

    bank.refresh_from_db()
    assert (bank.breaker_state, close in said) == ("closed", False)
    assert "1 breaker was closed." in said
    assert "breaker closed by hand by olga" in said


def test_a_viewer_sees_resources_and_changes_nothing(viewer: Client):
    bank = a_resource("payment", capacity=5)

    assert "Calls under way" in html(viewer, RESOURCES)
    assert viewer.post(address_of(bank), {"capacity": "1"}).status_code == 403
    assert viewer.get(f"{RESOURCES}add/").status_code == 403
    assert viewer.post(f"{RESOURCES}{bank.pk}/delete/", {"post": "yes"}).status_code == 403
    assert viewer.get(f"{ROUTES}add/").status_code == 403


# --- Routes -----------------------------------------------------------------------------------------------------------


def test_a_partition_is_moved_by_editing_its_route_and_the_version_rises(operator: Client):
    a_resource("shipping")
    a_second_carrier(operator)
    assert operator.post(f"{ROUTES}add/", {"service": "shipping", "partition": "7", "resource": "shipping"}).status_code == 302
    assert operator.post(f"{ROUTES}add/", {"service": "shipping", "partition": "*", "resource": "shipping"}).status_code == 302
    route = ResourceRoute.objects.get(partition="7")
    before = route.changed_at

    assert operator.post(f"{ROUTES}{route.pk}/change/", {"resource": "carrier-north"}).status_code == 302

    route.refresh_from_db()
    assert (route.resource, route.version, route.partition) == ("carrier-north", 2, "7")
    assert route.changed_at > before
    assert resources.look().route("shipping", "7") == ("carrier-north", 2)
    shown = html(operator, ROUTES)
    assert "partitions 7 to <b>carrier-north</b>" in shown
    assert "all others to <b>shipping</b>" in shown
    assert LogEntry.objects.latest("pk").change_message == "resource: shipping -> carrier-north"


def test_a_route_leads_only_to_a_resource_that_serves_the_service(operator: Client):
    a_resource("shipping")
    a_resource("payment")

    wrong = operator.post(f"{ROUTES}add/", {"service": "shipping", "partition": "7", "resource": "payment"})
    twice = [operator.post(f"{ROUTES}add/", {"service": "shipping", "partition": "7", "resource": "shipping"}) for _ in range(2)][1]

    assert "payment does not serve shipping; its resources: shipping." in wrong.content.decode()
    assert twice.status_code == 200
    assert ResourceRoute.objects.count() == 1


# --- Landing page -----------------------------------------------------------------------------------------------------


def test_the_landing_page_shows_open_breakers_full_resources_and_pauses_first(operator: Client):
    now = timezone.now()
    a_resource("shipping", breaker_state="open", opened_at=now - timedelta(minutes=10.5))
    a_resource("payment", capacity=1)
    Slot.objects.create(resource="payment", run_id=1, direction="do", position=1, attempt=1, holder="x", until=now + timedelta(minutes=1))
    a_resource("email")
    pauses.pause("workflow", "fulfil-order", reason="stocktaking", by="oscar")

    shown = html(operator, INDEX)

    panel = shown[shown.index('id="sc-resources"') :]
    assert panel.index("shipping") < panel.index("payment") < panel.index("email")
    assert "for 10\xa0minutes" in panel
    assert panel.index("full") < panel.index("1 of 1")
    assert "by oscar, until an operator resumes it: stocktaking" in shown


def test_the_landing_page_asks_as_often_however_much_is_paused(operator: Client):
    asked = []
    for count in (1, 12):
        for order in fail(count):
            pauses.pause("order", order.public_id, reason="r", by="oscar")
        operator.get(INDEX)
        with CaptureQueriesContext(connection) as queries:
            operator.get(INDEX)
        asked.append(len(queries))

    assert asked[0] == asked[1]
    assert "All pauses" in html(operator, INDEX)


def test_the_queue_table_says_how_many_consumers_the_work_wants(operator: Client):
    place(3)

    shown = html(operator, INDEX)

    assert "0, needs 1" in shown
    assert html(operator, "/admin/orders/order/?at=stock.waiting").count("Processing") >= 3

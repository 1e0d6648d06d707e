"""The console in a real browser: with a desktop and a phone screen, in the light and the dark theme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from orders.models import Order
from supervision import testing
from supervision.incidents import pulse
from supervision.jobs import steering, working
from supervision.models import Alert, Job, Resource
from supervision.operations import operator_verbs, pauses
from tests.browser.test_console_axe import sign_in
from tests.support.console import ATTACK, fail, person, place

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore:No directory at"),
]
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
Open = Callable[..., Any]


@pytest.fixture
def open_console(chromium: Any, live_server: Any) -> Iterator[Open]:
    """`open_console("operator")`: a page with an account of this group logged in. A script error fails the test."""
    contexts, complaints = [], []

    def open_as(group: str, *, viewport: dict[str, int] = DESK, dark: bool = False) -> Any:
        if not contexts:
            person("olga", group)
        context = chromium.new_context(
            base_url=live_server.url, viewport=viewport, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("request", lambda request: request.url.startswith((live_server.url, "data:")) or complaints.append(request.url))
        sign_in(page)
        return page

    with testing.quiet():
        yield open_as
    for context in contexts:
        context.close()
    assert complaints == []


def pages(order: Order) -> list[str]:
    return [
        "/admin/",
        "/admin/orders/order/",
        reverse("admin:orders_order_change", args=[order.pk]),
        *(reverse("admin:orders_order_operate", args=[order.pk, verb]) for verb in ("resubmit", "skip", "compensate", "cancel")),
        "/admin/orders/product/",
        *(f"/admin/orders/order/bulk/{verb}/?process_state=Error" for verb in ("resubmit", "skip")),
        "/admin/supervision/alert/",
        "/admin/supervision/deadletter/",
        "/admin/supervision/submission/",
        "/admin/supervision/heartbeat/",
        "/admin/supervision/leaderlease/",
        "/admin/supervision/run/",
        "/admin/supervision/pause/",
        "/admin/supervision/pause/add/?scope=agent&name=payment",
        reverse("admin:supervision_pause_change", args=[pauses.pause("agent", "email", reason=ATTACK, by=ATTACK).pk]),
        "/admin/supervision/resource/",
        "/admin/supervision/resource/add/",
        reverse("admin:supervision_resource_change", args=[Resource.objects.get_or_create(name="payment")[0].pk]),
        "/admin/supervision/resourceroute/",
        "/admin/supervision/resourceroute/add/",
    ]


def test_an_operator_corrects_an_address_and_resubmits(open_console: Open):
    (order,) = fail(at="book-shipment", message="422 address_not_serviceable")
    page = open_console("operator")

    page.get_by_role("link", name="book-shipment").first.click()
    page.get_by_role("link", name="Resubmit").click()
    page.get_by_label("Postal code").fill("10122")
    page.get_by_label("Reason").fill("the customer mistyped it")
    page.get_by_role("button", name="Resubmit").click()
    page.get_by_text("The failed step will run again.").wait_for()

    assert page.get_by_text("the customer mistyped it").count() >= 1
    run = testing.run_of(order.public_id)
    assert run.process_state == "Processing"
    assert run.payload["shipping_address"]["postal_code"] == "10122"


def test_an_operator_who_is_too_late_is_told_and_nothing_happens(open_console: Open):
    (order,) = fail()
    page = open_console("operator")
    page.goto(reverse("admin:orders_order_operate", args=[order.pk, "skip"]))
    operator_verbs.resubmit(order.public_id, by="another operator", reason="first")

    page.get_by_label("Reason").fill("not needed")
    page.get_by_role("button", name="Skip").click()

    page.get_by_text("The order changed meanwhile").wait_for()
    assert testing.step(order.public_id, "charge-payment").process_state == "Pending"


def watched(page: Any, failed: list[Order]) -> None:
    """The page of the job that was just started shows its progress by itself."""
    page.get_by_text("0 of 3 orders").wait_for()
    assert {testing.run_of(order.public_id).process_state for order in failed} == {"Error"}
    working.turn(rest=0.0)
    page.get_by_text("3 of 3 orders").wait_for()
    assert {testing.run_of(order.public_id).process_state for order in failed} == {"Processing"}
    assert page.locator("table tbody tr").count() == 3


def test_selected_orders_are_resubmitted_after_a_look(open_console: Open):
    failed = fail(3)
    page = open_console("operator")
    page.goto("/admin/orders/order/?process_state=Error")

    page.locator("#action-toggle").first.check()
    page.locator("select[name=action]").select_option("resubmit_selected")
    page.locator("#changelist-actions-wrapper button[type=submit], #changelist-actions-wrapper [name=index]").last.click()
    page.get_by_text("3 orders in Error are chosen").wait_for()
    page.get_by_label("Reason").fill("the bank works again")
    page.get_by_role("button", name="Resubmit").click()

    watched(page, failed)


def test_all_orders_that_a_filter_finds_are_resubmitted_after_a_look(open_console: Open):
    failed = fail(3)
    place(2)
    page = open_console("operator")
    page.goto("/admin/orders/order/?error_code=refused")

    page.get_by_text("All that fit", exact=True).click()
    page.get_by_role("link", name="Resubmit: all that fit").click()
    page.get_by_text("What differs among them").wait_for()
    page.get_by_label("Reason").fill("the bank works again")
    page.get_by_role("button", name="Resubmit: 3 orders").click()

    watched(page, failed)


def test_what_an_operator_types_outlives_the_updates_of_the_page(open_console: Open):
    fail(2)
    job = steering.start("resubmit", {"error_code": "refused"}, by="command (olga)", reason="the bank is back")
    page = open_console("operator")
    page.goto(f"/admin/supervision/job/{job.pk}/change/")
    Job.objects.filter(pk=job.pk).update(position=1, done=1)
    page.get_by_text("1 of 2 orders").wait_for()  # the page brings itself up to date

    page.locator("[name=reason]").fill("the service still refuses")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(5000)  # two updates

    assert page.locator("[name=reason]").input_value() == "the service still refuses"
    page.get_by_role("button", name="Stop the job").click()
    page.get_by_text("The job is stopped.").wait_for()


def test_a_result_of_a_job_takes_a_line_on_a_phone_and_a_stopped_job_is_ended(open_console: Open):
    fail(3)
    job = steering.start("resubmit", {"error_code": "refused"}, by="command (olga)", reason="the bank is back")
    working.turn(rest=0.0)
    page = open_console("operator", viewport=PHONE)
    page.goto(f"/admin/supervision/job/{job.pk}/change/")

    rows = page.locator("#console tbody tr")
    heights = [rows.nth(number).bounding_box()["height"] for number in range(rows.count())]

    assert len(heights) == 3
    assert max(heights) < 50
    job = steering.start("cancel", {"process_state": "Processing"}, by="command (olga)", reason="gone")
    steering.stop(job.pk, by="olga", reason="wait")
    page.goto(f"/admin/supervision/job/{job.pk}/change/")
    page.locator("[name=reason]").fill("by hand")
    page.get_by_role("button", name="End the job").click()
    page.get_by_text("The job is ended.").wait_for()


def test_an_alert_is_acknowledged_on_the_landing_page(open_console: Open):
    fail()
    page = open_console("operator")

    page.get_by_role("button", name="Acknowledge").click()

    page.get_by_text("No open alerts.").wait_for()
    assert Alert.objects.get().acknowledged_by == "olga"


@pytest.mark.parametrize(
    ("viewport", "dark"),
    [
        pytest.param(DESK, False, id="desk-light", marks=pytest.mark.nightly),
        pytest.param(PHONE, True, id="phone-dark"),
        pytest.param(DESK, True, id="desk-dark", marks=pytest.mark.nightly),
        pytest.param(PHONE, False, id="phone-light", marks=pytest.mark.nightly),
    ],
)
def test_every_page_fits_its_screen_and_runs_nothing_that_others_wrote(open_console: Open, viewport: dict[str, int], dark: bool):
    (order,) = fail(message=ATTACK)
    place()
    page = open_console("operator", viewport=viewport, dark=dark)

    for address in pages(order):
        answer = page.goto(address)
        assert answer.status == 200, address
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        assert page.evaluate("document.documentElement.classList.contains('dark')") is dark
        assert page.evaluate("window.pwned") is None, address
        cut = page.evaluate(
            "[...document.querySelectorAll('td.action-checkbox')]"
            ".filter(e => e.offsetParent && e.clientWidth < e.firstElementChild.offsetWidth).length"
        )
        assert cut == 0, f"{address}: the boxes that select rows are cut off"
        nameless = page.evaluate(
            "[...document.querySelectorAll('#content a, #content button')].filter(e => e.offsetParent"
            " && !(e.innerText || e.getAttribute('aria-label') || e.title).trim()).map(e => e.outerHTML)"
        )
        assert [tag for tag in nameless if 'id="searchbar-submit"' not in tag] == [], address
    page.context.close()


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_the_charts_of_the_landing_page_have_words_that_do_not_overlap(open_console: Open, viewport: dict[str, int]):
    pulse.record()
    page = open_console("operator", viewport=viewport)

    boxes = page.locator(".sc-axis").evaluate_all(
        "axes => axes.map(axis => [...axis.children].map(one => one.getBoundingClientRect().toJSON()))"
    )

    assert len(boxes) == 4
    for words in boxes:
        assert all(word["height"] < 24 for word in words)  # one line
        for one, other in combinations(words, 2):
            beside = one["right"] <= other["left"] or other["right"] <= one["left"]
            assert beside or one["bottom"] <= other["top"] or other["bottom"] <= one["top"]


@pytest.mark.parametrize("language", ["it", *(pytest.param(other, marks=pytest.mark.nightly) for other in ("en", "pt-br"))])
def test_every_column_of_the_list_of_orders_is_seen_on_a_small_desk(open_console: Open, language: str):
    fail(message="402 the bank says no: the card was declined, and the customer should try another one")
    place(email="maximilian.von.habsburg-lothringen@post.example-company.com")
    page = open_console("operator", viewport={"width": 1280, "height": 800})
    page.context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": language, "url": page.url}])

    page.goto("/admin/orders/order/")

    assert page.locator("html").get_attribute("lang") == language
    list_, seen = page.locator("#sc-list"), page.locator("#result_list thead th:visible")
    assert list_.evaluate("list => list.scrollWidth <= list.clientWidth")
    assert seen.count() == 9
    assert all(seen.nth(column).bounding_box()["width"] >= 30 for column in range(9))

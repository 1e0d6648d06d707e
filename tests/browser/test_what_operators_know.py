"""What operators know from other consoles, one row after another, in a real browser at a real shop."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.test_console_axe import sign_in
from tests.browser.test_storefront_browser import PATIENCE, expect
from tests.support.console import PASSWORD
from tests.support.requests import ADDRESS
from tests.support.shop import Shop, open_shop, until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

ORDERS = "/admin/orders/order/"
DECLINED = "pm_card_visa_chargeDeclined"
WHY = "the bank has called"
NOWHERE = {**ADDRESS, "postal_code": "00000"}  # the carrier does not serve it: the order stops after its charge


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Every role as a real process. A verb on more than 40 of a currency needs a second operator: on more than one order."""
    with open_shop("pgmq://", tmp_path_factory.mktemp("shop"), SUPERVISION_SWEEP_SECONDS="1", APPROVAL_ABOVE="40") as running:
        running.manage("create_user", "bob", "--group", "operator", "--password", PASSWORD)
        yield running


@pytest.fixture(scope="module")
def sent(shop: Shop) -> list[str]:
    """Two orders that are Processed."""
    keys = [shop.place(shop.headers(), email=f"sent{n}@example.com") for n in range(2)]
    for key in keys:
        shop.ends(key, "Processed")
    return keys


@pytest.fixture(scope="module")
def refused(shop: Shop) -> list[str]:
    """Four orders whose cards were declined, in one incident."""
    keys = [shop.place(shop.headers(), email=f"refused{n}@example.com", payment_method=DECLINED) for n in range(4)]
    for key in keys:
        shop.ends(key, "Error")
    until(lambda: shop.rows("SELECT 1 FROM supervision_incident WHERE closed_at IS NULL AND orders = 4"))
    return keys


def signed_in(chromium: Any, shop: Shop, name: str, password: str) -> Any:
    context = chromium.new_context(base_url=shop.url, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    sign_in(page, name, password)
    return page


@pytest.fixture(scope="module")
def desk(chromium: Any, shop: Shop) -> Iterator[Any]:
    """An operator's page."""
    page = signed_in(chromium, shop, "operator", json.loads((shop.directory / "accounts.json").read_text())["operator"])
    yield page
    page.context.close()


def open_order(page: Any, shop: Shop, key: str) -> None:
    [[run]] = shop.rows("SELECT id FROM supervision_run WHERE key = %s", key)
    page.goto(f"{ORDERS}of-run/{run}/")


def listed(page: Any) -> int:
    return int(page.locator("#result_list tbody tr").count())


def test_failures_are_grouped_by_cause(desk: Any, shop: Shop, refused: list[str]) -> None:
    desk.goto("/admin/")

    expect(desk.locator(".sc-cause")).to_have_count(1)
    expect(desk.get_by_role("link", name=re.compile(r"^4 orders"))).to_be_visible()


def test_a_view_is_saved_and_a_list_is_a_file(desk: Any, refused: list[str]) -> None:
    desk.goto(f"{ORDERS}?error_code=card_declined")
    desk.get_by_text("Save this view").click()
    desk.locator("form[action='views/save/'] [name=name]").fill("Declined cards")
    desk.get_by_role("button", name="Save", exact=True).click()
    desk.goto(ORDERS)
    desk.get_by_role("link", name="Declined cards").click()
    expect(desk.locator("#result_list tbody tr")).to_have_count(4)

    with desk.expect_download() as download:
        desk.get_by_role("link", name="As CSV").click()
    rows = list(csv.reader(io.StringIO(download.value.path().read_text("utf-8-sig"))))

    assert len(rows) == 5
    assert any("refused0@example.com" in row for row in rows)


def test_a_list_is_live(desk: Any, shop: Shop, refused: list[str]) -> None:
    desk.goto(f"{ORDERS}?email=late@example.com")
    assert listed(desk) == 0

    key = shop.place(shop.headers(), email="late@example.com")

    expect(desk.locator("#result_list tbody tr")).to_have_count(1, timeout=PATIENCE)
    shop.ends(key, "Processed")


def test_an_order_shows_its_steps_drawn_over_time_to_the_millisecond(desk: Any, shop: Shop, sent: list[str]) -> None:
    open_order(desk, shop, sent[0])

    assert desk.locator(".sc-path .sc-node").count() >= 4
    assert desk.locator("rect.sc-bar-worked").count() >= 4
    assert re.search(r"\d\.\d{3} s", desk.locator("#sc-path").inner_text())
    assert re.search(r"\d{2}:\d{2}:\d{2}\.\d{3}", desk.locator("#sc-told").inner_text())


def test_each_attempt_shows_its_request_and_answer(desk: Any, shop: Shop, refused: list[str]) -> None:
    until(lambda: shop.rows("SELECT 1 FROM supervision_exchange e JOIN supervision_run r ON r.id = e.run_id WHERE r.key = %s", refused[0]))
    open_order(desk, shop, refused[0])

    desk.get_by_text("More about charge-payment").click()
    desk.get_by_text(re.compile("Attempt 1 to payment")).last.click()

    said = desk.locator(".sc-said[open]")
    expect(said).to_contain_text("generic_decline")
    assert DECLINED not in said.inner_text()


def test_a_part_of_the_money_goes_back_and_the_mail_is_sent_again(desk: Any, shop: Shop, sent: list[str]) -> None:
    open_order(desk, shop, sent[1])
    desk.get_by_role("link", name="Give money back").click()
    desk.get_by_label("Amount").fill("5.00")
    desk.get_by_label("Reason").fill(WHY)
    desk.get_by_role("button", name="Give back").click()
    expect(desk.get_by_text("The money goes back.")).to_be_visible()
    desk.get_by_role("link", name="Send the mail again").click()
    desk.get_by_label("Reason").fill(WHY)
    desk.get_by_role("button", name="Send").click()
    expect(desk.get_by_text("The mail is sent again.")).to_be_visible()

    until(lambda: [entry for entry in shop.ledger("payment") if entry["operation"] == "refund"], within=60)
    until(
        lambda: shop.rows(
            "SELECT 1 FROM orders_mailagain m JOIN supervision_run r ON r.key = m.public_id WHERE r.process_state = 'Processed'"
        )
    )


def test_a_step_is_done_by_hand_and_an_order_goes_back_to_an_earlier_step(desk: Any, shop: Shop, refused: list[str]) -> None:
    open_order(desk, shop, refused[3])

    desk.get_by_role("link", name="Go back to a step").click()
    desk.get_by_label("Step").select_option("reserve-stock")
    desk.get_by_label("Reason").fill(WHY)
    desk.get_by_role("button", name="Go back to a step").click()
    expect(desk.get_by_text("The order goes back to the step.")).to_be_visible()
    until(lambda: shop.rows("SELECT 1 FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id"
                            " WHERE r.key = %s AND s.name = 'charge-payment' AND s.process_state = 'Error' AND s.direction = 'do'"
                            " AND r.direction = 'do'", refused[3]))  # fmt: skip
    desk.reload()
    desk.get_by_role("link", name="Done by hand").click()
    desk.get_by_label("Result").fill('{"id": "pi_by_hand", "method": "cash"}')
    desk.get_by_label("Reason").fill("paid in cash")
    desk.get_by_role("button", name="Done by hand").click()

    expect(desk.get_by_text("The step is done and the order goes on.")).to_be_visible()
    shop.ends(refused[3], "Processed")


def test_much_money_needs_a_second_operator_and_many_orders_are_one_job(chromium: Any, desk: Any, shop: Shop, refused: list[str]) -> None:
    desk.goto(f"{ORDERS}?error_code=card_declined")
    desk.get_by_text("All that fit", exact=True).click()
    desk.get_by_role("link", name="Skip step: all that fit").click()
    expect(desk.get_by_text("will not be charged")).to_be_visible()
    desk.get_by_label("Reason").fill(WHY)
    desk.get_by_role("button", name=re.compile("Skip step: 3 orders")).click()
    expect(desk.get_by_text("Another operator has to approve request").first).to_be_visible()
    job = desk.url

    other = signed_in(chromium, shop, "bob", PASSWORD)
    other.goto("/admin/supervision/approval/?state__exact=pending")
    other.locator("#result_list tbody a").first.click()
    other.get_by_label("Reason").fill("agreed")
    other.get_by_role("button", name="Approve").click()
    expect(other.get_by_text("Approved: it is carried out.")).to_be_visible()
    other.context.close()

    desk.goto(job)
    expect(desk.get_by_text("3 of 3 orders")).to_be_visible()
    expect(desk.locator("table tbody tr")).to_have_count(3)
    for key in refused[:3]:
        shop.ends(key, "Processed")


def test_an_order_is_cancelled_without_undo_and_its_charge_stays(desk: Any, shop: Shop) -> None:
    key = shop.place(shop.headers(), email="kept@example.com", shipping_address=NOWHERE)
    shop.ends(key, "Error")
    open_order(desk, shop, key)

    desk.get_by_role("link", name="Cancel without undo").click()
    expect(desk.get_by_text("stay charged: the customer does not get the money back.")).to_be_visible()
    expect(desk.get_by_text("is left out: its effect stays")).to_be_visible()
    desk.get_by_label("Reason").fill(WHY)
    desk.get_by_role("button", name="Cancel without undo").click()

    expect(desk.get_by_text("The order is cancelled without undo.")).to_be_visible()
    shop.ends(key, "Cancelled")
    assert not [entry for entry in shop.ledger("payment") if entry["operation"] == "refund" and entry["order"] == key]


def test_the_lines_of_an_order_are_changed_before_its_charge(desk: Any, shop: Shop) -> None:
    key = shop.place(shop.headers(), email="fewer@example.com", payment_method=DECLINED)
    shop.ends(key, "Error")
    open_order(desk, shop, key)

    desk.get_by_role("link", name="Change the lines").click()
    desk.get_by_role("spinbutton").first.fill("1")
    desk.get_by_label("Reason").fill(WHY)
    desk.get_by_role("button", name="Look").click()
    expect(desk.get_by_text("1 instead of 2. 1 piece goes back on the shelf.")).to_be_visible()
    desk.get_by_role("button", name="Change the lines").click()

    expect(desk.get_by_text("The lines are changed.")).to_be_visible()
    pieces = "SELECT l.quantity FROM orders_orderline l JOIN orders_order o ON o.id = l.order_id WHERE o.public_id = %s"
    assert shop.rows(pieces, key) == [(1,)]


def test_the_pulse_is_drawn_as_charts(desk: Any, shop: Shop, sent: list[str]) -> None:
    until(lambda: shop.rows("SELECT 1 FROM supervision_pulse WHERE processed > 0"), within=120)
    desk.goto("/admin/?pulse=hour")

    assert desk.locator(".sc-figure svg").count() >= 4
    assert desk.locator(".sc-figure svg rect").count() > 0

"""An outage of the payment service as its operator lives it: from the sign-in until nothing waits for an operator, click by click.

The bank behind the payment service is away. At first the service declines every card, so orders stop in Error; then it does not
answer at all, so orders wait at its breaker. Among them are cards that are refused after the outage, too. Once the service is back,
the operator closes the breaker and has the stopped orders resubmitted by a job. What is left are the refused cards: their customers
have a mail with the link to pay again.

STORY chooses how many orders; the suite places 40. STORY_SCREENSHOTS names a directory that keeps a picture of each state.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from orders.payments.patience import TELL
from tests.support.shop import Shop, open_shop, order, until
from tests.support.soak import sized

pytestmark = [pytest.mark.browser, pytest.mark.timeout(3000)]

ORDERS = int(os.environ.get("STORY", sized(40, 2_000)))
MOST_CLICKS = 12
EVERY = 40 if ORDERS >= 2_000 else 8  # one card in so many is refused: 50 of 2,000
REFUSED_CARD = "pm_card_visa_chargeDeclined"
BATCH = 100
WITHIN = 60.0 + ORDERS / 2
QUICK = {"SUPERVISION_SWEEP_SECONDS": "1", "PAYMENT_MAIL_AFTER": str(sized(3, 60))}

STATES = "SELECT process_state, count(*) FROM supervision_run GROUP BY 1"
AT_THE_BREAKER = """
SELECT count(*) FROM supervision_stepstate s JOIN supervision_resource p ON p.name = 'payment' AND p.breaker_state = 'open'
 WHERE s.name = 'charge-payment' AND s.process_state = 'Pending' AND s.not_before IS NOT NULL
"""
INCIDENTS = "SELECT kind, severity, orders FROM supervision_incident WHERE closed_at IS NULL ORDER BY kind"
REFUSED = "SELECT r.key, s.attempt FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id WHERE s.process_state = 'Error'"
FOR_AN_OPERATOR = """
SELECT 'alert ' || step || ' ' || message FROM supervision_alert
 WHERE closed_at IS NULL AND acknowledged_at IS NULL AND severity <> 'info'
UNION ALL SELECT 'incident ' || title FROM supervision_incident WHERE closed_at IS NULL AND severity <> 'info'
UNION ALL SELECT 'job ' || id FROM supervision_job WHERE state <> 'done'
UNION ALL SELECT 'dead letter ' || id FROM supervision_deadletter WHERE resolved_at IS NULL
"""


class Operator:
    """A person at the console, whose clicks are counted. Choosing a field to type into is a click, too."""

    def __init__(self, page: Any, pictures: Path) -> None:
        self.page, self.pictures = page, pictures
        self.clicks: list[str] = []

    def click(self, role: str, name: str) -> None:
        """Click the first visible element of this role and name."""
        self.page.get_by_role(role, name=name).first.click()
        self.clicks.append(name)

    def type(self, field: str, text: str) -> None:
        """Click the field of this name and type."""
        self.page.locator(f"[name={field}]").first.click()
        self.clicks.append(field)
        self.page.keyboard.type(text)

    def see(self, text: str, picture: str, *, within: float = 30.0) -> None:
        """Wait until the page says this, and take a picture of it. The landing page and a job's page bring themselves up to date."""
        self.page.get_by_text(text).first.wait_for(timeout=1000 * within)
        self.pictures.mkdir(parents=True, exist_ok=True)
        number = len(list(self.pictures.glob("*.png"))) + 1
        self.page.screenshot(path=self.pictures / f"{number:02}-{picture}.png", full_page=True)


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    """Every role as a real process, with simulated services."""
    with open_shop("pgmq://", tmp_path, **QUICK) as running:
        running.manage("set_stock", "MUG-BLUE", str(10 * ORDERS))
        yield running


def cards(first: int, count: int) -> list[str]:
    """The cards of these orders of the story."""
    return [REFUSED_CARD if number % EVERY == 0 else "pm_card_visa" for number in range(first, first + count)]


def place(shop: Shop, headers: dict[str, str], wanted: list[str]) -> set[str]:
    """Place an order for each of these cards; returns the public ids of those whose card is refused."""
    refused = set()
    for first in range(0, len(wanted), BATCH):
        batch = wanted[first : first + BATCH]
        body = {"orders": [order(payment_method=card) for card in batch]}
        results = shop.http.post("/api/v1/orders/batch/", json=body, headers=headers).json()["results"]
        assert [one["status"] for one in results] == [202] * len(batch)
        refused |= {one["id"] for one, card in zip(results, batch, strict=True) if card == REFUSED_CARD}
    return refused


def rests(shop: Shop, expected: dict[str, int], what: str) -> None:
    until(lambda: dict(shop.rows(STATES)) == expected, within=WITHIN, what=what)


def told(shop: Shop) -> set[tuple[str, int]]:
    """The order and the refused attempt of each delivered mail that asks to pay again."""
    mails = [entry["key"].strip("<>").partition("@")[0].split(".") for entry in shop.ledger("mail") if TELL in (entry["key"] or "")]
    return {(key, int(attempt)) for key, attempt, _kind in mails}


@pytest.mark.nightly
def test_from_the_sign_in_until_nothing_waits_for_an_operator_takes_twelve_clicks_at_most(
    chromium: Any, shop: Shop, tmp_path: Path
) -> None:
    headers, stopped = shop.headers(), ORDERS // 3
    shop.rows("UPDATE supervision_resource SET cool_down_seconds = 3600 WHERE name = 'payment'")  # it stays open for its operator
    shop.fault(service="payment", mode="decline")
    refused = place(shop, headers, cards(0, stopped))
    rests(shop, {"Error": stopped}, "the first orders to be declined")
    shop.fault(service="payment", mode="down")
    refused |= place(shop, headers, cards(stopped, ORDERS - stopped))
    until(lambda: shop.rows(AT_THE_BREAKER) == [(ORDERS - stopped,)], within=WITHIN, what="the other orders to wait at the breaker")
    shown = [("outage", "critical", ORDERS - stopped), ("step_error", "info", stopped)]
    until(lambda: shop.rows(INCIDENTS) == shown, within=WITHIN, what="both incidents with their orders")
    shop.fault()  # the service is back: the operator is called

    context = chromium.new_context(base_url=shop.url, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    operator = Operator(context.new_page(), Path(os.environ.get("STORY_SCREENSHOTS") or tmp_path / "pictures"))
    account = json.loads((tmp_path / "accounts.json").read_text())
    operator.page.goto("/admin/")
    operator.type("username", "operator")
    operator.type("password", account["operator"])
    operator.see("Log in", "sign-in")
    operator.click("button", "Log in")
    operator.see("payment is out since", "incidents")

    operator.click("link", "See the breaker")
    operator.see("Close the breaker now", "breaker-open")
    operator.click("button", "Close the breaker now")
    operator.see("1 breaker was closed.", "breaker-closed")
    left = len([card for card in cards(stopped, ORDERS - stopped) if card == REFUSED_CARD])
    rests(shop, {"Error": stopped + left, "Processed": ORDERS - stopped - left}, "the waiting orders to be charged")
    shown = [("step_error", "info", stopped + left)]
    until(lambda: shop.rows(INCIDENTS) == shown, within=WITHIN, what="the outage to end")

    operator.click("link", "Incidents")
    operator.see("waits for the customers, not for an operator", "declined")
    operator.click("link", "List its orders")
    operator.see("All that fit", "list")
    operator.page.get_by_text("All that fit", exact=True).click()
    operator.clicks.append("All that fit")
    operator.click("link", "Resubmit: all that fit")
    operator.see("What differs among them", "job-before")
    operator.type("reason", "the bank works again")
    operator.click("button", "Resubmit")
    operator.see("Progress", "job-started")
    operator.see("Finished", "job-done", within=WITHIN)
    rests(shop, {"Error": len(refused), "Processed": ORDERS - len(refused)}, "the orders to be charged after all")
    until(lambda: shop.rows(INCIDENTS) == [("step_error", "info", len(refused))], within=WITHIN, what="the incidents to be counted")

    operator.click("link", "Incidents")
    operator.see("Nothing waits for an operator.", "settled")
    print(f"{ORDERS} orders, {len(refused)} refused cards: {len(operator.clicks)} clicks: {', '.join(operator.clicks)}")
    assert len(operator.clicks) <= MOST_CLICKS
    assert shop.rows(FOR_AN_OPERATOR) == []
    waiting = set(shop.rows(REFUSED))
    assert {key for key, _attempt in waiting} == refused
    until(lambda: waiting <= told(shop), within=WITHIN, what="the customers of the refused cards to have their mail")
    assert "all hold" in shop.manage("audit")
    context.close()

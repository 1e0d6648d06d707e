"""Many orders with second factors, refusals, cancellations and unreliable webhooks, while processes are killed.

Every order is charged once or not at all, and the books agree with the payment service. PAYMENTS chooses how many
orders; the suite places 40.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from chaos.look import TLS
from orders.payments.codes import REFUSALS
from tests.support.shop import Shop, open_shop, order
from tests.support.simulators import SECOND_FACTOR
from tests.support.soak import sized

ORDERS = int(os.environ.get("PAYMENTS", sized(40, 500)))
KILLS = 15 + ORDERS // 10
SEED = int(os.environ.get("PAYMENTS_SEED", "7"))
CARDS = ("pm_card_visa",) * 3 + (SECOND_FACTOR,) * 5 + ("pm_card_visa_chargeDeclined",) * 2
VICTIMS = ("agents", "web", "supervisor", "agents", "scheduler")
QUICK = {
    "SUPERVISION_COMPLETE_WITHIN": "5",
    "SUPERVISION_SWEEP_SECONDS": "1",
    "SUPERVISION_FAILURE_THRESHOLD": "100",
    "PAYMENT_ACTION_WITHIN": "12",
    "PAYMENT_LOOK_AFTER": "4",
    "PAYMENT_TRIES": "3",
}
SLOW_CARRIER = {"service": "carrier", "mode": "slow", "latency_ms": 400}
WAITING = """
SELECT r.key, s.checkpoint->'action'->>'url' FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
 WHERE s.process_state = 'Pending' AND s.turn_at IS NULL AND s.awaits = 'payment-answered'
"""
REFUSED = """
SELECT r.key, s.attempt FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
 WHERE s.process_state = 'Error' AND s.agent = 'payment' AND s.direction = 'do' AND r.process_state = 'Error'
"""
RESERVED = """
SELECT r.key, s.result->>'intent' FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
 WHERE s.name = 'authorise-payment' AND s.direction = 'do' AND s.process_state = 'Processed' AND r.process_state = 'Processing'
"""
STOPPED = """
SELECT r.key, a.step, a.code FROM supervision_alert a JOIN supervision_run r ON r.id = a.run_id
 WHERE a.closed_at IS NULL AND a.kind = 'error'
"""
UNDER_WAY = """
SELECT count(*) FROM supervision_submission u LEFT JOIN supervision_run r ON r.key = u.public_id
 WHERE coalesce(r.process_state, 'Pending') NOT IN ('Processed', 'Cancelled', 'Error')
"""


class Customers:
    """Answers the bank, cancels, pays again: each order and each payment once, by the dice."""

    def __init__(self, shop: Shop, headers: dict[str, str]) -> None:
        self.shop, self.dice = shop, random.Random(SEED)
        self.http = httpx2.Client(timeout=20, trust_env=False, headers=headers)
        self.done: Counter[str] = Counter()
        self.seen: set[tuple[str, Any]] = set()
        self.stop = threading.Event()
        self.hands = ThreadPoolExecutor(8)

    def call(self, what: str, url: str, *, after: float = 0.0, **body: Any) -> None:
        """Make this call later, on another thread. A process that was just killed does not answer: the customer leaves it at that."""
        self.done[what] += 1
        self.hands.submit(self._call, url, after, body)

    def _call(self, url: str, after: float, body: dict[str, Any]) -> None:
        time.sleep(after)
        with suppress(httpx2.HTTPError):
            self.http.post(url, json=body)

    def look(self) -> None:
        """Act once on everything that has changed."""
        for key, url in self.shop.rows(WAITING):
            if url and (key, url) not in self.seen:
                self.seen.add((key, url))
                self.answer(key, url)
        for key, attempt in self.shop.rows(REFUSED):
            if (key, attempt) not in self.seen:
                self.seen.add((key, attempt))
                if self.dice.random() < 0.5:
                    self.call("pay again", f"{self.shop.url}/api/v1/orders/{key}/payment/", payment_method=self.dice.choice(CARDS))

        for key, intent in self.shop.rows(RESERVED):
            if (key, intent) not in self.seen:
                self.seen.add((key, intent))
                self.reserved(key, intent)

    def reserved(self, key: str, intent: str) -> None:
        """The amount is reserved, and may be charged at any moment: cancel the order, or let the amount lapse."""
        match self.dice.choices(("cancel", "lapse", "both", "wait"), (15, 15, 5, 65))[0]:
            case "cancel":
                self.call("cancel when reserved", f"{self.shop.url}/api/v1/orders/{key}/cancel/", reason="dice")
            case "lapse":
                self.call("lapse", f"{self.shop.simulators_url}/payments/{intent}/expire")
            case "both":
                self.call("lapse", f"{self.shop.simulators_url}/payments/{intent}/expire", after=0.02)
                self.call("cancel when reserved", f"{self.shop.url}/api/v1/orders/{key}/cancel/", after=0.02, reason="dice")

    def answer(self, key: str, url: str) -> None:
        match self.dice.choices(("confirm", "refuse", "never", "late", "cancel", "both"), (50, 12, 8, 10, 8, 12))[0]:
            case "confirm":
                self.call("confirm", f"{url}/confirm", after=self.dice.random())
            case "refuse":
                self.call("refuse", f"{url}/refuse")
            case "late":  # as the time of the wait ends
                self.call("late", f"{url}/confirm", after=11 + 2 * self.dice.random())
            case "cancel":
                self.call("cancel", f"{self.shop.url}/api/v1/orders/{key}/cancel/", reason="dice")
                self.call("confirm after cancel", f"{url}/confirm", after=1.0)
            case "both":
                self.call("cancel", f"{self.shop.url}/api/v1/orders/{key}/cancel/", after=0.05, reason="dice")
                self.call("confirm", f"{url}/confirm", after=0.05)
            case _:
                self.done["never"] += 1


def kill_one_after_the_other(shop: Shop, stop: threading.Event, killed: Counter[str]) -> None:
    """Kill KILLS processes. The next one dies when the last one works again: on a slow machine, too, something is left that works."""
    for number in range(KILLS):
        if stop.wait(1.0):
            return
        name = VICTIMS[number % len(VICTIMS)]
        shop.kill9(name)
        killed[name] += 1
        shop.start(name)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("capture", ["after-booking", "at-once"][: sized(1, 2)])
def test_every_order_is_charged_once_or_not_at_all(tmp_path: Path, capture: str) -> None:
    with open_shop("pgmq://", tmp_path, **QUICK, SHOP_CAPTURE=capture) as shop:
        shop.manage("set_stock", "MUG-BLUE", str(10 * ORDERS))
        if capture == "after-booking":  # the bookings take a while, so that cancellations and lapses come before the captures
            httpx2.post(f"{shop.simulators_url}/faults", json=SLOW_CARRIER, verify=TLS).raise_for_status()
        behaviour = {"webhooks_late": 1.5, "webhooks_repeated": 1, "webhooks_lost": 0.2, "search_lag": 5}
        httpx2.post(f"{shop.simulators_url}/behaviour", json=behaviour, verify=TLS).raise_for_status()
        headers, dice = shop.headers(), random.Random(SEED)
        customers, killed = Customers(shop, headers), Counter[str]()
        fire = threading.Thread(target=kill_one_after_the_other, args=(shop, customers.stop, killed), daemon=True)
        began = time.monotonic()
        keys = place(shop, headers, [dice.choice(CARDS) for _ in range(ORDERS)])
        fire.start()

        moved, newest = began, None  # when the last event was seen, and which
        rest = 0.0  # since when nothing is under way, and no customer acts
        while not rest or time.monotonic() - rest < 4:
            customers.look()
            busy = shop.rows(UNDER_WAY)[0][0] or customers.hands._work_queue.qsize()
            if not busy and not customers.stop.is_set():
                customers.stop.set()
                fire.join(120)
            rest = 0.0 if busy else rest or time.monotonic()
            newest, before = shop.rows("SELECT max(at) FROM supervision_stepevent")[0][0], newest
            moved = moved if newest == before else time.monotonic()
            assert time.monotonic() - moved < 120, f"{busy} orders are still under way, and nothing has happened for two minutes"
            time.sleep(0.2)
        customers.hands.shutdown()

        states = dict(shop.rows("SELECT key, process_state FROM supervision_run"))
        print(f"{ORDERS} orders in {time.monotonic() - began:.0f} s: {Counter(states.values())}; {customers.done}; killed {killed}")
        print("events:", shop.rows("SELECT outcome, count(*) FROM orders_paymentevent GROUP BY 1 ORDER BY 2 DESC"))
        assert set(states) == set(keys)
        charges, net = charged(shop)
        wrong = {
            key: (state, charges[key], net[key])
            for key, state in states.items()
            if net[key] != (2580 if state == "Processed" else 0) or charges[key] > 1
        }
        assert wrong == {}
        assert {key for key, _, code in shop.rows(STOPPED) if code in REFUSALS} == {key for key in states if states[key] == "Error"}
        assert min(Counter(states.values())[one] for one in ("Processed", "Cancelled", "Error")) > 0
        held = {entry["order"] for entry in shop.ledger("payment") if entry["effect"] and entry["answer"] == "200 requires_capture"}
        assert bool(held) == (capture == "after-booking")
        assert [key for key in held if states[key] != "Error" and "requires_capture" in statuses(shop, key)] == []
        assert "all hold" in shop.manage("audit")
        assert "no findings" in (said := shop.manage("reconcile", "--service", "payment", check=False)), said


def statuses(shop: Shop, key: str) -> set[str]:
    """The states of an order's payments, at the payment service."""
    headers = {"Authorization": "Bearer sk_test_simulator"}
    names = {entry["intent"] for entry in shop.ledger("payment") if entry["order"] == key and entry["operation"] == "confirm"}
    return {httpx2.get(f"{shop.simulators_url}/v1/payment_intents/{name}", headers=headers, verify=TLS).json()["status"] for name in names}


def place(shop: Shop, headers: dict[str, str], cards: list[str]) -> list[str]:
    keys: list[str] = []
    for first in range(0, len(cards), 100):
        batch = {"orders": [order(payment_method=card) for card in cards[first : first + 100]]}
        answer = shop.http.post("/api/v1/orders/batch/", json=batch, headers=headers)
        keys += [one["id"] for one in answer.json()["results"]]
    return keys


def charged(shop: Shop) -> tuple[Counter[str], dict[str, int]]:
    """How often each order was charged, and what is left of it, by the payment service's own ledger."""
    charges: Counter[str] = Counter()
    net: dict[str, int] = defaultdict(int)
    for entry in shop.ledger("payment"):
        if entry["operation"] in ("confirm", "authenticate", "capture") and entry["amount"]:
            charges[entry["order"]] += 1
            net[entry["order"]] += entry["amount"]
        elif entry["operation"] == "refund":
            net[entry["order"]] -= entry["amount"]
    return charges, net

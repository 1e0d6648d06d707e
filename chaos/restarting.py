"""A rolling restart: every process gets SIGTERM and is replaced, one after the other, while customers order."""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx2

from chaos.look import order, until
from chaos.shop import Shop, role_of

PROCESSES = ("scheduler", "agents", "agents.2", "supervisor", "beat", "web", "web.2")
LONGEST_GOODBYE = 30.0  # seconds from SIGTERM to the end
CALM_SECONDS = 20.0
FEWEST = 100  # answers of which a 99th percentile says something
MOST_TIMES = 2.0  # p99 of an order's answer during the restart, against p99 before it
_OPEN = """
SELECT count(*) FROM supervision_submission s LEFT JOIN supervision_run r ON r.key = s.public_id
 WHERE coalesce(r.process_state, '') NOT IN ('Processed', 'Error', 'Cancelled')
"""

_REPEATED = """
SELECT r.key FROM supervision_effect e JOIN supervision_run r ON r.id = e.run_id WHERE e.service = 'mail' AND e.operation = 'repeat'
"""


class Customers(threading.Thread):
    """Order steadily at web processes that serve; a load balancer stops sending to the one that is about to be replaced.

    rate: orders a second. took: when each request began, and how many seconds its answer took.
    """

    def __init__(self, shop: Shop, rate: float) -> None:
        super().__init__(daemon=True)
        self.shop, self.rate, self.headers = shop, rate, shop.headers()
        self.serving = ["web", "web.2"]
        self.keys: list[str] = []
        self.errors: list[str] = []
        self.took: list[tuple[float, float]] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        """Order until stopped."""
        with httpx2.Client(timeout=20, trust_env=False, headers=self.headers) as http:
            number = 0
            while not self.stopped.wait(1 / self.rate):
                number += 1
                url = self.shop.url_of(self.serving[number % len(self.serving)])
                began = time.monotonic()
                try:
                    answer = http.post(f"{url}/api/v1/orders/", json=order())
                except httpx2.HTTPError as error:
                    self.errors.append(repr(error))
                    continue
                self.took.append((began, time.monotonic() - began))
                if answer.status_code == 202:
                    self.keys.append(answer.json()["id"])
                else:
                    self.errors.append(f"{answer.status_code} {answer.text[:200]}")

    def stop(self) -> None:
        """Order no more; returns when the last request has its answer."""
        self.stopped.set()
        self.join(30)

    def p99(self, begin: float, end: float) -> float | None:
        """The 99th percentile, in seconds, of the answers to requests that began between these `time.monotonic()` values.

        None: they are fewer than FEWEST.
        """
        found = [seconds for at, seconds in self.took if begin <= at < end]
        return statistics.quantiles(found, n=100)[98] if len(found) >= FEWEST else None


def replace(shop: Shop, customers: Customers, name: str) -> float:
    """Send SIGTERM to one process, as a service manager does, and start a new one; returns how many seconds the old one took."""
    if name in customers.serving:
        customers.serving = [other for other in customers.serving if other != name]
    began = time.monotonic()
    process = shop.processes[name]
    process.send_signal(signal.SIGTERM)
    process.wait(LONGEST_GOODBYE + 10)
    took = time.monotonic() - began
    shop.start(name)
    if role_of(name) == "web":
        customers.serving = sorted({*customers.serving, name})
    return took


def judge(shop: Shop, customers: Customers, goodbyes: Sequence[float], transfers: Sequence[str] = (), *, killed: bool = False) -> list[str]:
    """Wait until every order has ended; one line for each thing that a customer or an operator would have noticed.

    transfers: ids of further orders, which were paid by bank transfer. killed: an agents process was killed, maybe while it sent
    a mail. It is not known then whether it was sent, so it may be sent once more.
    """
    wrong = []
    try:
        until(lambda: shop.rows(_OPEN)[0][0] == 0, within=90, what="every order to end")
    except AssertionError as late:
        wrong.append(str(late))
    wrong += [f"a customer saw: {error}" for error in customers.errors]
    if max(goodbyes) >= LONGEST_GOODBYE:
        wrong.append(f"a process took {max(goodbyes):.0f} s to end")
    states = dict(shop.rows("SELECT process_state, count(*) FROM supervision_run GROUP BY 1"))
    keys = sorted([*customers.keys, *transfers])
    if states != {"Processed": len(keys)}:
        wrong.append(f"{len(keys)} orders were accepted, and the runs are {states}")
    for service, operation in (("payment", "confirm"), ("carrier", "create"), ("mail", "deliver")):
        calls = shop.ledger(service)
        done = [entry["order"] for entry in calls if entry["operation"] == operation and entry["order"]]  # mails to operators have none
        expected = Counter(customers.keys if service == "payment" else keys)
        if service == "mail":
            expected += sent_again(shop, Counter(done) - expected, killed=killed)
        if Counter(done) != expected:
            wrong.append(f"{service}: {len(done)} times {operation} for {len(expected)} orders")
    if alerts := shop.rows("SELECT count(*) FROM supervision_alert")[0][0]:
        wrong.append(f"{alerts} alerts")
    if "all hold" not in shop.manage("audit", check=False):
        wrong.append("the audit found something")
    return wrong


def sent_again(shop: Shop, more: Counter[str], *, killed: bool) -> Counter[str]:
    """Of the orders whose mail came more than once: those of which the shop had noted before that it sends the mail once more."""
    noted = {key for (key,) in shop.rows(_REPEATED)} if killed else set()
    return Counter({order: 1 for order in more if order in noted})


def drill(shop: Shop, *, rate: float) -> tuple[dict[str, Any], list[str]]:
    """Order, replace every process, go on ordering; returns the figures, and one line for each thing that is wrong."""
    customers = Customers(shop, rate)
    customers.start()
    until(lambda: customers.keys or customers.errors, within=30 + 2 / rate, what="the first order")
    began = time.monotonic()
    time.sleep(CALM_SECONDS)
    restarting = time.monotonic()
    goodbyes = {name: replace(shop, customers, name) for name in PROCESSES}
    ended = time.monotonic()
    customers.stop()
    wrong = judge(shop, customers, list(goodbyes.values()))
    calm, meanwhile = customers.p99(began, restarting), customers.p99(restarting, ended)
    if calm is None or meanwhile is None:
        wrong.append(f"there are fewer than {FEWEST} answers before the restart or during it, too few to compare: give a higher --rate")
    elif meanwhile > MOST_TIMES * calm:
        wrong.append(f"the 99th percentile was {meanwhile / calm:.1f} x as long during the restart")
    return {
        "orders": len(customers.keys),
        "errors that customers saw": len(customers.errors),
        "p99 of an answer before the restart, ms": calm and round(calm * 1000, 1),
        "p99 during the restart, ms": meanwhile and round(meanwhile * 1000, 1),
        "seconds of the restart": round(ended - restarting, 1),
        "seconds from SIGTERM to the end": {name: round(seconds, 1) for name, seconds in goodbyes.items()},
    }, wrong

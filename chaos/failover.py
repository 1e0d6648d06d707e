"""`./run chaos failover`: replace the database by one without the last seconds of commits, and account for every effect.

A round: 1. Customers order. The replica stops following the primary, and customers go on ordering. 2. The drill kills the
primary and promotes the replica. With `--restore` it starts a server from a backup instead, and an operator declares that
with `manage.py epoch`. 3. Customers repeat lost orders under the same idempotency key. 4. When no order is under way, an
operator settles the findings of `manage.py reconcile`. 5. Charges and parcels are counted in the remote services' ledgers.

Exit code 0: no customer was charged twice and every effect belongs to an order. 1: the output names what is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg

from chaos.brokers import broker_of
from chaos.look import order, until
from chaos.replica import Follower
from chaos.shop import Shop
from supervision.embedded.server import EmbeddedPostgres

PROCESSES = ("web", "scheduler", "agents", "agents.2", "supervisor", "beat")
REST_SECONDS = 180.0
SETTLINGS = 5  # how often an operator asks for findings, at most
PREFERRED = ("adopt", "cancel", "refund")  # an operator chooses the first of these verbs that a finding offers


@dataclass
class Customer:
    """One customer with one order. key: its idempotency key. ids: every public id that the shop accepted it under, newest last.

    accepted_at: the monotonic times of these answers.
    """

    number: int
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    ids: list[str] = field(default_factory=list)
    accepted_at: list[float] = field(default_factory=list)

    @property
    def body(self) -> dict[str, Any]:
        """The request of this customer."""
        return order(email=f"customer{self.number}@example.com")


class Customers:
    """All customers. They order at a steady rate, and repeat unanswered requests under the same idempotency key."""

    def __init__(self, shop: Shop, rate: float) -> None:
        self.shop, self.rate = shop, rate
        self.all: list[Customer] = []
        self.lost: list[Customer] = []
        self._headers = shop.headers()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(32)
        self._thread = threading.Thread(target=self._order_steadily, daemon=True)

    def start(self) -> None:
        """Start ordering."""
        self._thread.start()

    def stop(self) -> None:
        """Stop ordering; returns when every customer has an answer or has given up."""
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()

    def order_lost_ones_again(self) -> int:
        """Repeat the orders that the shop has lost, under the same keys; returns how many were lost."""
        self.lost = [one for one in self.all if one.ids and not self._is_known(one.ids[-1])]
        for one in self.lost:
            self._place(one)
        return len(self.lost)

    def _order_steadily(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            one = Customer(len(self.all))
            self.all.append(one)
            self._pool.submit(self._place, one)
            due += 1 / self.rate
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _place(self, one: Customer) -> None:
        deadline = time.monotonic() + REST_SECONDS
        while time.monotonic() < deadline:
            try:
                headers = {**self._headers, "Idempotency-Key": one.key}
                answer = self.shop.http.post("/api/v1/orders/", json=one.body, headers=headers, timeout=10)
            except httpx2.HTTPError:
                time.sleep(0.3)
                continue
            if answer.status_code == 202:
                one.ids.append(str(answer.json()["id"]))
                one.accepted_at.append(time.monotonic())
                return
            time.sleep(0.3)

    def _is_known(self, public_id: str) -> bool:
        answer = until(lambda: self._asked(public_id), within=60, what="an answer about an order")
        return bool(answer.status_code == 200)

    def _asked(self, public_id: str) -> Any:
        try:
            answer = self.shop.http.get(f"/api/v1/orders/{public_id}/", headers=self._headers)
        except httpx2.HTTPError:
            return None
        return answer if answer.status_code in (200, 404) else None


def drill(directory: Path, broker: str, *, rate: float, lost_seconds: float, restore: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Run one round; returns its figures, and one line for each thing that is wrong."""
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        postgres = EmbeddedPostgres(directory / "postgres")
        postgres.start()
        stack.callback(postgres.stop)
        bus = stack.enter_context(broker_of(broker, postgres.url, directory))
        shop = Shop(postgres.url, bus.url, directory, first_port=23000, SUPERVISION_SWEEP_SECONDS="1", SUPERVISION_COMPLETE_WITHIN="5")
        stack.callback(shop.close)
        shop.open(*PROCESSES)
        follower = Follower(postgres)
        stack.callback(follower.close)
        if not restore:
            follower.start()
        customers = Customers(shop, rate)
        customers.start()
        time.sleep(4.0)
        (follower.back_up if restore else follower.cut)()
        time.sleep(lost_seconds)
        if restore:
            shop.kill9(*PROCESSES)
            follower.restore()
            shop.manage("epoch", "--begin", "--reason", "restored from the backup")
        else:
            follower.fail_over()
        start_again_who_ended(shop)
        time.sleep(3.0)
        customers.stop()
        lost = customers.order_lost_ones_again()
        rest(shop)
        kinds, settled = settle(shop)
        wrong = list(judge(shop, customers.all))
        audit = shop.manage("audit", check=False)
        wrong += [] if "all hold" in audit else [f"audit: {line}" for line in audit.splitlines()]
        figures = {"customers": len(customers.all), "lost": lost, "findings": dict(kinds), "settled": settled, "wrong": len(wrong)}
        return figures, wrong


def start_again_who_ended(shop: Shop) -> None:
    """Start every process that has ended, as a service manager would."""
    for name, process in list(shop.processes.items()):
        if process.poll() is not None:
            shop.spawn(name)


def rest(shop: Shop) -> None:
    """Wait until no order is under way. Resubmit orders in Error, as an operator would."""
    deadline = time.monotonic() + REST_SECONDS
    while time.monotonic() < deadline:
        start_again_who_ended(shop)
        try:
            open_runs = shop.rows("SELECT key, process_state FROM supervision_run WHERE process_state NOT IN ('Processed', 'Cancelled')")
            waiting = shop.rows("SELECT count(*) FROM supervision_submission WHERE consumed_at IS NULL")[0][0]
        except psycopg.Error:
            time.sleep(0.5)
            continue
        if not open_runs and not waiting:
            return
        for key, state in open_runs:
            if state == "Error":
                shop.manage("resubmit", key, "--reason", "after the failover", check=False)
        time.sleep(1.0)


def settle(shop: Shop) -> tuple[Counter[str], int]:
    """Settle the findings of reconciliation, as an operator would; returns the findings by kind and how many were settled."""
    kinds: Counter[str] = Counter()
    settled = 0
    for _ in range(SETTLINGS):
        told = shop.manage("reconcile", "--json", check=False)
        findings = json.loads(told or "[]")
        findings = findings["findings"] if isinstance(findings, dict) else findings
        if not findings:
            break
        by_verb: dict[str, list[str]] = defaultdict(list)
        for one in findings:
            kinds[one["kind"]] += 1
            verb = next((verb for verb in PREFERRED if verb in one["verbs"]), None)
            if verb is not None:
                by_verb[verb].append(str(one["id"]))
        for verb, ids in by_verb.items():
            shop.manage("reconcile", "--settle", verb, "--reason", "after the failover", *ids, check=False)
            settled += len(ids)
        rest(shop)
    return kinds, settled


def judge(shop: Shop, customers: list[Customer]) -> Iterator[str]:
    """Compare charges and parcels in the services' ledgers with each customer's orders. Yields differences and unknown orders."""
    states = dict(shop.rows("SELECT key, process_state FROM supervision_run"))
    totals = {key: int(total * 100) for key, total in shop.rows("SELECT public_id, total FROM orders_order")}
    paid: Counter[str] = Counter()
    for entry in shop.ledger("payment"):
        sign = {"confirm": 1, "refund": -1}.get(entry["operation"], 0)
        paid[entry["order"]] += sign * entry["amount"]
    parcels: Counter[str] = Counter()
    for entry in shop.ledger("carrier"):
        parcels[entry["order"]] += {"create": 1, "delete": -1}.get(entry["operation"], 0)
    for one in customers:
        done = [public_id for public_id in one.ids if states.get(public_id) == "Processed"]
        net, sent = sum(paid[public_id] for public_id in set(one.ids)), sum(parcels[public_id] for public_id in set(one.ids))
        due = sum(totals[public_id] for public_id in set(done))
        if len(set(done)) != 1 or net != due or sent != 1:
            yield f"customer {one.number}: orders {[(i, states.get(i, 'lost')) for i in one.ids]}, paid {net} of {due}, {sent} parcels"
    known = {public_id for one in customers for public_id in one.ids}
    for public_id in {*paid, *parcels} - known:
        if paid[public_id] or parcels[public_id]:
            yield f"order {public_id} is known to no customer: paid {paid[public_id]}, {parcels[public_id]} parcels"


def main(arguments: list[str]) -> int:
    """Read the command line, run the rounds and print their results."""
    parser = argparse.ArgumentParser(prog="./run chaos failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="rounds (20)")
    parser.add_argument("--rate", type=float, default=10.0, help="orders per second (10)")
    parser.add_argument("--lost", type=float, default=4.0, help="seconds of commits that the replica lacks (4)")
    parser.add_argument("--restore", action="store_true", help="restore a backup instead of promoting a replica")
    parser.add_argument("--broker", choices=["amqp", "redis", "pgmq"], default="pgmq", help="(pgmq)")
    parser.add_argument("--directory", type=Path, help="where logs go (var/chaos/...)")
    given = parser.parse_args(arguments)
    usual = Path(__file__).resolve().parent.parent / "var" / "chaos" / time.strftime("failover-%Y%m%d-%H%M%S")
    directory = (given.directory or usual).resolve()
    bad = 0
    for number in range(given.runs):
        figures, wrong = drill(directory / f"{number:02}", given.broker, rate=given.rate, lost_seconds=given.lost, restore=given.restore)
        print(json.dumps({"round": number, **figures}), flush=True)
        for line in wrong:
            print(f"  {line}", flush=True)
        bad += bool(wrong)
    print(f"{given.runs - bad} of {given.runs} rounds accounted for everything; logs: {directory}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

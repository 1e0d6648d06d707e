"""An upgrade from an older release: its code on its tables, then today's, process by process, while customers order.

Old processes work on the newer tables, both releases work side by side and lose processes to SIGKILL, the older code is put back,
and the newer comes again. Some orders wait for a bank transfer meanwhile, which comes to either release.
The older release is what git holds under a revision. It runs with the packages that are installed here.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from chaos.look import order, until
from chaos.releases import PARTS
from chaos.restarting import PROCESSES, Customers, judge, replace
from chaos.shop import Shop
from sasproject.roles import ROOT

CALM_SECONDS = 5.0  # between two parts of the drill
TRANSFERS = 9  # a third of them is paid in each of the three replacements
MOVES = (("to the newer release", True), ("back to the older code", False), ("to the newer release again", True))


def older(directory: Path, revision: str) -> Path:
    """The source tree of a revision, written below `directory`. Raises ValueError with git's reason if there is none."""
    packed = subprocess.run(["git", "archive", revision, "--", *PARTS], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        raise ValueError(packed.stderr.decode(errors="replace").strip())
    tree = directory / "older"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


def drill(shop: Shop, old: Path, *, rate: float, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """Run the drill on an empty database; returns its figures, and one line for each thing that is wrong."""
    say("starting the older release")
    shop.trees = dict.fromkeys(PROCESSES, old)
    shop.start_simulators()
    shop.prepare(old)
    shop.start(*PROCESSES)
    transfers = by_transfer(shop)
    customers = Customers(shop, rate)
    customers.start()
    until(lambda: customers.keys or customers.errors, within=30 + 2 / rate, what="the first order")
    time.sleep(CALM_SECONDS)
    say("migrating, while the older release runs")
    began = time.monotonic()
    shop.manage("migrate", "-v0")
    migrated = time.monotonic() - began
    time.sleep(CALM_SECONDS)
    placed = {"to the older release": len(customers.keys)}
    goodbyes = []
    for turn, (moving, newer) in enumerate(MOVES):
        say(f"replacing every process: {moving}")
        goodbyes += moved(shop, customers, None if newer else old)
        for key in transfers[turn::3]:
            pay(shop, key, ROOT if newer else old)
        time.sleep(CALM_SECONDS)
        placed[f"meanwhile {moving}"] = len(customers.keys) - sum(placed.values())
    customers.stop()
    say("waiting until every order has ended")
    wrong = judge(shop, customers, goodbyes, transfers, killed=True)
    wrong += [f"no order was placed {when}" for when, count in placed.items() if not count]
    figures = {"errors that customers saw": len(customers.errors), "seconds of the migrations": round(migrated, 1)}
    return {"orders": len(customers.keys), "orders placed": placed, **figures}, wrong


def moved(shop: Shop, customers: Customers, tree: Path | None) -> list[float]:
    """Replace every process by one of this tree (None: ours) and kill one agents process of each; returns the seconds of each goodbye."""
    goodbyes = []
    for name in PROCESSES:
        shop.trees.pop(name, None)
        if tree is not None:
            shop.trees[name] = tree
        goodbyes.append(replace(shop, customers, name))
        if name == "agents":
            shop.kill9("agents", "agents.2")
            shop.start("agents", "agents.2")
    return goodbyes


def by_transfer(shop: Shop) -> list[str]:
    """Place orders that wait for a bank transfer; returns their ids."""
    with httpx2.Client(base_url=shop.url, timeout=30, trust_env=False, headers=shop.headers()) as http:
        answers = [http.post("/api/v1/orders/", json=order(payment_method="bank_transfer")) for _ in range(TRANSFERS)]
    return [answer.raise_for_status().json()["id"] for answer in answers]


def pay(shop: Shop, key: str, tree: Path) -> None:
    """Tell the shop, by the command of a source tree, that the transfer has come."""
    total = shop.rows("SELECT total FROM orders_order WHERE public_id = %s", key)[0][0]
    payload = json.dumps({"amount": str(total), "currency": "EUR", "reference": key})
    told = ("--name", "transfer-received", "--payload", payload, "--key", key, "--reason", "bank statement")
    shop.manage("signal", key, *told, tree=tree)

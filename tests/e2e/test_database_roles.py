"""A whole shop whose processes connect as the roles of docs/operations.md, "Database roles". PGMQ: the broker that needs most rights."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from sasproject.database_roles import ROLES
from tests.support.shop import Shop, first_port, prepared, role_of, until
from tests.support.shop import scratch_database as scratch


class ShopOfRoles(Shop):
    """Each process has the URL of its role."""

    urls: dict[str, str]

    def as_(self, role: str, *arguments: str) -> str:
        """What a command prints that connects as this role."""
        before, self.env["DATABASE_URL"] = self.env["DATABASE_URL"], self.urls[role]
        try:
            return self.manage(*arguments, check=arguments != ("doctor",))  # a server of tests may not sync: the doctor refuses it
        finally:
            self.env["DATABASE_URL"] = before

    def _spawn(self, name: str, command: list[str], **environ: str) -> None:
        role = "web" if role_of(name) == "web" else "worker"
        super()._spawn(name, command, **environ, **({} if name == "simulators" else {"DATABASE_URL": self.urls[role]}))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopOfRoles]:
    directory = tmp_path_factory.mktemp("roles")
    prefix = f"t{uuid.uuid4().hex[:8]}"
    prepared(directory)
    try:
        with scratch(directory) as url:
            shop = ShopOfRoles(url, "pgmq://", directory, first_port=first_port())
            try:
                shop.prepare()
                passwords = directory / "passwords"
                shop.manage("database_roles", "--apply", "--prefix", prefix, "--passwords", str(passwords))
                shop.urls = {role: url_as(url, f"{prefix}_{role}", passwords) for role in ROLES}
                shop.start_simulators()
                shop.start("scheduler", "agents", "supervisor", "beat", "web")
                yield shop
            finally:
                shop.close()
    finally:
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
            for role in (f"{prefix}_{role}" for role in ROLES):
                server.execute(f"DROP ROLE IF EXISTS {role}")  # type: ignore[arg-type]


def url_as(url: str, role: str, passwords: Path) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:{(passwords / role).read_text().strip()}@{parts.netloc.rpartition('@')[2]}"))


def accepted(answer: Any) -> Any:
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()


def test_an_order_of_each_fate_ends_under_the_roles_and_no_process_lacks_a_right(shop: ShopOfRoles) -> None:
    customer, operator = shop.headers("customer"), shop.headers("operator")
    good = shop.place(customer)
    shop.ends(good, "Processed")

    bad = shop.place(customer, payment_method="pm_card_visa_chargeDeclined")
    shop.ends(bad, "Error")
    again = {"reason": "another card", "amend": {"payment_method": "pm_card_visa"}}
    accepted(shop.http.post(f"/api/v1/orders/{bad}/resubmit/", json=again, headers=operator))
    shop.ends(bad, "Processed")

    shop.fault(service="carrier", mode="decline")
    undone = shop.place(customer)
    shop.ends(undone, "Error")
    accepted(shop.http.post(f"/api/v1/orders/{undone}/cancel/", json={"reason": "no carrier"}, headers=operator))
    shop.ends(undone, "Cancelled")
    shop.fault()

    wanted = {"lines": [{"sku": "MUG-BLUE", "quantity": 1}], "reason": "too many"}
    back = accepted(shop.http.post(f"/api/v1/orders/{good}/returns/", json=wanted, headers=customer))["id"]
    came = {"lines": [{"sku": "MUG-BLUE", "accepted": 1}], "reason": "as new"}
    until(lambda: shop.http.post(f"/api/v1/returns/{back}/goods/", json=came, headers=operator).status_code == 202, what="the return")
    shop.ends(back, "Processed")
    refund = {"amount": "1.00", "reason": "scratched"}
    accepted(shop.http.post(f"/api/v1/orders/{bad}/refunds/", json=refund, headers={**operator, "Idempotency-Key": "once"}))
    until(lambda: len([e for e in shop.ledger("payment") if e["operation"] == "refund"]) >= 3, what="the refund")

    assert "all hold" in shop.as_("read", "audit")
    assert good in shop.as_("read", "order", good)
    shop.as_("read", "orders")
    shop.as_("worker", "reconcile")
    shop.as_("migrate", "migrate")
    until(lambda: "0 orders" not in shop.as_("worker", "archive", "--older-than", "0"), what="the archive")
    assert shop.rows("SELECT count(*) FROM supervision_archivedrun WHERE key = %s", good) == [(1,)]
    assert "all hold" in shop.as_("read", "audit")
    assert "ok    database role" in shop.as_("worker", "doctor")
    logs = [line for name in shop.processes for line in shop.log(name).splitlines()]
    assert [line for line in logs if "permission denied" in line or "must be owner" in line] == []

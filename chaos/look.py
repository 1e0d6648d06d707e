"""Reads and drives a running shop from outside: through its API, its database and the simulated remote services."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psycopg

TLS = ssl.create_default_context()  # without it, each call of httpx2 reads all certificates of the machine again
ADDRESS = {
    "name": "Ada L.",
    "line1": "Via Roma 1",
    "line2": "",
    "city": "Torino",
    "postal_code": "10121",
    "country": "IT",
}


def order(**changes: Any) -> dict[str, Any]:
    """An order request as a customer sends it."""
    return {
        "email": "ada@example.com",
        "shipping_address": ADDRESS,
        "lines": [{"sku": "MUG-BLUE", "quantity": 2}],
        "payment_method": "pm_card_visa",
        **changes,
    }


SLOWEST = 3.0  # how many times as long as a quiet machine the slowest one takes


def until(condition: Callable[[], Any], *, within: float = 30.0, what: str = "the condition", told: Callable[[], Any] = str) -> Any:
    """Wait for the condition; returns its first true value. Raises AssertionError after `within` seconds of a quiet machine.

    told: what is known at that moment, for the error.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > within * SLOWEST:
            raise AssertionError(f"{what} did not come true within {within * SLOWEST:.0f} s {told()}")
        time.sleep(min(max(0.02, waited / 20), 0.1))  # the condition costs time of the processes that it waits for
    return value


class Outlook:
    """Calls to a running shop. The subclass `chaos.shop.Shop` sets the addresses."""

    database_url: str
    simulators_url: str
    directory: Path
    http: httpx2.Client
    _line: psycopg.Connection | None = None

    def manage(self, *arguments: str, check: bool = True) -> str:
        """Run a management command; returns what it printed."""
        raise NotImplementedError

    def token(self, user: str = "shop") -> str:
        """An API token of one of the demo's accounts."""
        return self.manage("create_api_token", user).strip().splitlines()[-1]

    def headers(self, user: str = "shop") -> dict[str, str]:
        """Request headers that name this account."""
        return {"Authorization": f"Token {self.token(user)}"}

    def place(self, headers: dict[str, str], **changes: Any) -> str:
        """Place an order over the API; returns its public id."""
        answer = self.http.post("/api/v1/orders/", json=order(**changes), headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def get(self, key: str, headers: dict[str, str]) -> dict[str, Any]:
        """The order as the API shows it."""
        answer = self.http.get(f"/api/v1/orders/{key}/", headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Rows of the shop's database. The connection is kept: a test that waits asks fifty times a second."""
        kept = self._line is not None
        try:
            if self._line is None:
                self._line = psycopg.connect(self.database_url, autocommit=True)
            cursor = self._line.execute(query, params)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            self.hang_up()
            if not kept:
                raise
        return self.rows(query, *params)  # the database was restarted, or it cut this connection

    def hang_up(self) -> None:
        """Close the connection to the database; the next query opens another."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def state(self, key: str) -> str | None:
        """The run's state; None while no scheduler has consumed the order."""
        rows = self.rows("SELECT process_state FROM supervision_run WHERE key = %s", key)
        return rows[0][0] if rows else None

    def scheduled_by(self, key: str) -> list[str]:
        """The processes that consumed this order and claimed its first step, from its history."""
        events = "SELECT e.actor FROM supervision_stepevent e JOIN supervision_run r ON r.id = e.run_id WHERE r.key = %s"
        return [actor for (actor,) in self.rows(f"{events} AND e.seq <= 2 ORDER BY e.seq", key)]

    def ends(self, key: str, state: str, *, within: float = 60.0) -> None:
        """Wait until the order is in this state."""
        try:
            until(lambda: self.state(key) == state, within=within, what=f"order {key} to be {state}")
        except AssertionError as error:
            steps = self.rows(
                "SELECT s.name, s.direction, s.process_state, s.attempt, s.failure_count, s.last_error FROM"
                " supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id WHERE r.key = %s ORDER BY 2, 1",
                key,
            )
            raise AssertionError(f"{error}; it is {self.state(key)}: {steps}") from None

    def ledger(self, service: str, key: str | None = None, *, effects: bool = True) -> list[dict[str, Any]]:
        """The calls that a simulated service received, for one order or for all. effects: only calls that had an effect."""
        answer = httpx2.get(f"{self.simulators_url}/ledger/{service}", timeout=10, verify=TLS)
        entries = [json.loads(line) for line in answer.text.splitlines()]
        return [entry for entry in entries if (key is None or entry["order"] == key) and (entry["effect"] or not effects)]

    def fault(self, **fault: Any) -> None:
        """Switch a fault of the simulators on. Without arguments: switch all their faults off."""
        if fault:
            answer = httpx2.post(f"{self.simulators_url}/faults", json=fault, timeout=10, verify=TLS)
        else:
            answer = httpx2.delete(f"{self.simulators_url}/faults", timeout=10, verify=TLS)
        assert answer.status_code < 300, answer.text

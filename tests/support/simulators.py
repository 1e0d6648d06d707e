"""The simulators as a real process that tests can query, break, kill and restart.

with Simulators.started(tmp_path / "ledger.jsonl") as simulators:
    simulators.faults("payment", "timeout_after_effect")
    assert simulators.effects("payment", "confirm", order="abc") == 1
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30
WEBHOOK_SECRET = "whsec_of_the_tests"
CARRIER_SECRET = "carrier_secret_of_the_tests"
SECOND_FACTOR = "pm_card_threeDSecure2Required"
KEY = {"Authorization": "Bearer sk_test_simulator"}


class Simulators:
    """One simulators process, its ledger and its ports; the ports stay the same over restarts."""

    def __init__(self, ledger: Path) -> None:
        self.ledger_file = ledger
        self._ports = ("0", "0")
        self._webhook: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self.url = self.smtp_url = ""
        self.http = httpx2.Client(timeout=10, trust_env=False)

    @classmethod
    @contextmanager
    def started(cls, ledger: Path) -> Iterator[Simulators]:
        """Simulators that run for the length of the block."""
        simulators = cls(ledger)
        simulators.start()
        try:
            yield simulators
        finally:
            simulators.stop()

    # --- the process ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start and wait until everything answers."""
        command = [sys.executable, str(ROOT / "manage.py"), "simulators", "--ledger", str(self.ledger_file), "--search-lag", "0"]
        port, smtp_port = self._ports
        # The simulators need no database; a broken URL proves it.
        environment = {
            **os.environ,
            "DATABASE_URL": "postgres://user@127.0.0.1:1/nowhere",
            "STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
            "CARRIER_WEBHOOK_SECRET": CARRIER_SECRET,
        }
        self._process = forked.Popen(
            [*command, "--port", port, "--smtp-port", smtp_port, *self._webhook],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        line = self._process.stdout.readline()  # blocks until the process is ready or has ended
        if "ready" not in line:
            raise RuntimeError(f"the simulators did not start: {line!r}, exit {self._process.wait(START_SECONDS)}")
        self.url, self.smtp_url = (word.strip(",") for word in line.split() if "://" in word)
        self._ports = (self.url.rpartition(":")[2], self.smtp_url.rpartition(":")[2])

    def kill(self) -> None:
        """kill -9, without any cleanup."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it with its regular signal; does nothing when it has ended."""
        self._end(signal.SIGTERM)
        self.http.close()

    def restart(self) -> None:
        """kill -9 and start again on the same ports and the same ledger."""
        self.kill()
        self.start()

    def restart_with(self, webhook: str) -> None:
        """kill -9 and start again, with an address to which the payment service tells its events from the start."""
        self._webhook = ["--payment-webhook", webhook]
        self.restart()

    def restart_with_carrier(self, webhook: str) -> None:
        """The same for the carrier's events."""
        self._webhook = ["--carrier-webhook", webhook]
        self.restart()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(10)
        self._process.stdout.close()
        self._process = None

    # --- what they know ---------------------------------------------------------------------------------------------

    @property
    def smtp(self) -> tuple[str, int]:
        """Host and port of the mail server."""
        host, _, port = self.smtp_url.removeprefix("smtp://").rpartition(":")
        return host, int(port)

    def settings(self) -> dict[str, Any]:
        """The Django settings that make the shop use these services."""
        host, port = self.smtp
        return {
            "STRIPE_API_BASE": self.url,
            "STRIPE_API_KEY": "sk_test_simulator",
            "STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
            "CARRIER_URL": self.url,
            "CARRIER_API_KEY": "carrier_test_simulator",
            "CARRIER_WEBHOOK_SECRET": CARRIER_SECRET,
            "EMAIL_BACKEND": "sasproject.mail.EmailBackend",
            "EMAIL_HOST": host,
            "EMAIL_PORT": port,
        }

    def environment(self) -> dict[str, str]:
        """The environment that makes the shop's processes use these services."""
        return {
            "STRIPE_API_BASE": self.url,
            "STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
            "CARRIER_URL": self.url,
            "CARRIER_WEBHOOK_SECRET": CARRIER_SECRET,
            "EMAIL_URL": self.smtp_url,
        }

    def ledger(self, service: str, order: str | None = None) -> list[dict[str, Any]]:
        """What the service received, oldest first."""
        answer = self.http.get(f"{self.url}/ledger/{service}", params={"order": order} if order else {})
        answer.raise_for_status()
        return [json.loads(line) for line in answer.text.splitlines()]

    def effects(self, service: str, operation: str, order: str | None = None) -> int:
        """How often this operation had an effect."""
        return sum(entry["effect"] for entry in self.ledger(service, order) if entry["operation"] == operation)

    def charged(self, order: str) -> int:
        """Money taken for the order and not given back, in minor units."""
        sign = {"confirm": 1, "authenticate": 1, "capture": 1, "refund": -1, "refund_failed": 1}
        entries = [entry for entry in self.ledger("payment", order) if entry["effect"]]
        return sum(sign.get(entry["operation"], 0) * entry["amount"] for entry in entries)

    def status(self, intent: str) -> str:
        """The state of a payment."""
        return str(self.http.get(f"{self.url}/v1/payment_intents/{intent}", headers=KEY).json()["status"])

    def stats(self) -> dict[str, dict[str, int]]:
        """Calls and how many were in flight at most, by service."""
        return self.http.get(f"{self.url}/stats").json()

    # --- faults -----------------------------------------------------------------------------------------------------

    def faults(self, service: str, mode: str, **more: Any) -> None:
        """Break a service."""
        self.http.post(f"{self.url}/faults", json={"service": service, "mode": mode, **more}).raise_for_status()

    def clear(self) -> None:
        """Heal every service."""
        self.http.delete(f"{self.url}/faults").raise_for_status()

    # --- what healthy services do -----------------------------------------------------------------------------------

    def behave(self, **settings: Any) -> None:
        """Change how healthy services behave: search_lag, refund_settles, repeated_mail, webhooks_..."""
        self.http.post(f"{self.url}/behaviour", json=settings).raise_for_status()

    def tell(self, url: str, service: str = "payment") -> None:
        """Let the payment service, or the carrier, tell its events to this address; empty: to none."""
        self.http.post(f"{self.url}/webhook", json={"url": url, "service": service}).raise_for_status()

    def move(self, shipment: str, state: str) -> None:
        """Let a parcel travel on: picked_up, delivered or returned."""
        self.http.post(f"{self.url}/shipments/{shipment}/{state}").raise_for_status()

    def answer_bank(self, url: str, word: str = "confirm") -> int:
        """Let the customer confirm or refuse on the bank's page; the answer's status."""
        return int(self.http.post(f"{url}/{word}").status_code)

    def forget(self, service: str) -> None:
        """Let a service forget every idempotency key."""
        self.http.post(f"{self.url}/forget/{service}").raise_for_status()

    def fail_refund(self, refund: str) -> None:
        """Let a refund that looked successful fail."""
        self.http.post(f"{self.url}/refunds/{refund}/fail").raise_for_status()

    def expire(self, intent: str) -> None:
        """Let the amount that a payment has reserved lapse."""
        self.http.post(f"{self.url}/payments/{intent}/expire").raise_for_status()

    def dispute(self, intent: str) -> str:
        """Let the customer dispute a charge; the dispute's id."""
        answer = self.http.post(f"{self.url}/disputes", json={"payment_intent": intent})
        answer.raise_for_status()
        return str(answer.json()["id"])

    def close_dispute(self, dispute: str, status: str) -> None:
        """Let the bank decide a dispute: `won` or `lost`."""
        self.http.post(f"{self.url}/disputes/{dispute}/{status}").raise_for_status()

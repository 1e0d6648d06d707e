"""The operator of a run: corrects orders in Error and resubmits them, or has them undone. Sometimes clicks twice.

Until all is healed, the operator also starts bulk jobs, which act on the same orders at the same time.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from chaos.client import Door
from chaos.journal import Journal
from chaos.traffic import DECLINED, NOWHERE, POISONED

EVERY_SECONDS = 2.0
REST_SECONDS = 5.0  # the least time between two operations on one order
JOB_SECONDS = 8.0
# Verbs and their orders. Poisoned orders stop at book-shipment, and are left there until an incident has gathered them.
JOBS = (
    ("resubmit", {"process_state": "Error", "step": "charge-payment"}),
    ("resubmit", {"process_state": "Error", "step": "notify-customer"}),
    ("cancel", {"process_state": "Processing"}),
    ("cancel", {"process_state": "Processing", "step": "notify-customer"}),
)


class Bot:
    """One operator of a run. Works until `stopped` is set."""

    def __init__(self, door: Door, journal: Journal, seed: int) -> None:
        self.door, self.journal = door, journal
        self.stopped = False
        self.healed = False  # until then the carrier fails for poisoned orders, and resubmitting one is useless
        self._dice = random.Random(f"{seed}:bot")
        self._acted: dict[str, float] = {}

    async def run(self) -> None:
        """Look for orders in Error, act on each of them, and wait; until stopped."""
        job_at = time.monotonic() + JOB_SECONDS
        while not self.stopped:
            if not self.healed and time.monotonic() > job_at:
                job_at = time.monotonic() + JOB_SECONDS
                await self._job()
            for order in await self._in_error():
                if time.monotonic() - self._acted.get(order["id"], 0.0) > REST_SECONDS:
                    self._acted[order["id"]] = time.monotonic()
                    await self._act(order)
            await asyncio.sleep(EVERY_SECONDS)

    async def _in_error(self) -> list[dict[str, Any]]:
        status, answer = await self.door.call("GET", "/api/v1/orders/?process_state=Error&ordering=created_at&page_size=50")
        return list(answer["results"]) if status == 200 else []

    async def _job(self) -> None:
        verb, orders = self._dice.choice(JOBS)
        body = {"verb": verb, "filter": orders, "reason": "chaos"}
        status, _ = await self.door.call("POST", "/api/v1/jobs/", body)
        self.journal.note("bot", "job", verb=verb, status=status)

    async def _act(self, order: dict[str, Any]) -> None:
        failed = [step for step in order["steps"] if step["process_state"] == "Error" and step["direction"] == order["direction"]]
        if len(failed) != 1:
            self.journal.note("bot", "puzzled", id=order["id"], steps=[step["name"] for step in failed])
            return
        step = failed[0]
        body: dict[str, Any] = {"reason": "chaos", "attempt": step["attempt"]}
        address = order["shipping_address"]
        poisoned = step["direction"] == "do" and step["name"] == "book-shipment" and address["postal_code"] == POISONED
        if poisoned and not (self.healed and order["incident"]):  # wait until the fault is over and an incident has the order
            self.journal.note("bot", "left", id=order["id"], incident=order["incident"])
            return
        if step["direction"] == "do" and step["name"] == "book-shipment" and address["postal_code"] == NOWHERE:
            if self._dice.random() < 0.5:
                await self._click(order, "compensate", {"reason": "the carrier does not deliver there"}, step)
                return
            body["amend"] = {"shipping_address": {**address, "postal_code": "10121"}}
        elif step["direction"] == "do" and step["name"] == "charge-payment" and order["payment_method"] == DECLINED:
            body["amend"] = {"payment_method": "pm_card_visa"}
        await self._click(order, "resubmit", body, step)

    async def _click(self, order: dict[str, Any], verb: str, body: dict[str, Any], step: dict[str, Any]) -> None:
        clicks = 2 if self._dice.random() < 0.3 else 1
        path = f"/api/v1/orders/{order['id']}/{verb}/"
        for status, answer in await asyncio.gather(*[self.door.call("POST", path, body) for _ in range(clicks)]):
            self.journal.note(
                "bot",
                verb,
                id=order["id"],
                step=step["name"],
                direction=step["direction"],
                attempt=step["attempt"],
                clicks=clicks,
                status=status,
                answer=str(answer)[:200] if status != 202 else None,
            )
